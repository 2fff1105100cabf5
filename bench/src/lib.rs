//! What the benchmarks share. Without the feature `rivals` only what counts our
//! own instructions: keys, and takes of our store.

#[cfg(feature = "rivals")]
pub mod bare;
#[cfg(feature = "rivals")]
pub mod calls;
#[cfg(feature = "rivals")]
pub mod chart;
#[cfg(feature = "rivals")]
pub mod checks;
#[cfg(feature = "rivals")]
pub mod client;
#[cfg(feature = "rivals")]
pub mod contest;
#[cfg(feature = "rivals")]
pub mod figures;
#[cfg(feature = "rivals")]
pub mod inside;
#[cfg(feature = "rivals")]
pub mod load;
#[cfg(feature = "rivals")]
pub mod machine;
#[cfg(feature = "rivals")]
pub mod report;
#[cfg(feature = "rivals")]
pub mod rivals;
#[cfg(feature = "rivals")]
pub mod server;
#[cfg(feature = "rivals")]
pub mod session;
#[cfg(feature = "rivals")]
pub mod suites;

use checkdam::conformance::TestBucket;
use checkdam::store::{BucketName, FailurePolicy, MemoryOptions, MemoryStore, Tier};
use checkdam::{KeyedLimiter, Quota};

/// Writes the key of that number, 20 bytes of text, over the last one: a key
/// comes from a request that was just read, so it is in the cache of every
/// limiter.
#[inline]
pub fn write_key(key: &mut String, number: usize) {
    key.clear();
    key.push_str("user:");
    for shift in (0..15).rev() {
        key.push((b'a' + (number >> (4 * shift) & 15) as u8) as char);
    }
}

/// A pseudo-random walk over `count` places.
#[derive(Debug)]
pub struct Walk {
    state: u64,
    count: usize,
}

impl Walk {
    /// A walk of its own for each seed.
    #[must_use]
    pub const fn new(seed: u64, count: usize) -> Self {
        Self { state: seed | 1, count }
    }

    /// The next place.
    #[inline]
    pub fn step(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * self.count as u128) >> 64) as usize
    }
}

/// checkdam's keyed limiter, with room for twice as many buckets as there will be.
///
/// # Panics
/// If the quota is not understood.
#[must_use]
#[allow(clippy::expect_used)]
pub fn keyed_limiter(buckets: usize, quota: &str) -> KeyedLimiter<str> {
    let store = MemoryStore::new(MemoryOptions { max_buckets: buckets * 2 });
    KeyedLimiter::with_store(quota.parse().expect("the quota is fixed"), store)
}

/// checkdam's memory store with one quota.
#[derive(Debug)]
pub struct Checkdam {
    store: MemoryStore,
    name: BucketName,
    quota: Quota,
}

impl Checkdam {
    /// A store with room for twice as many buckets as there will be.
    ///
    /// # Panics
    /// If the quota is not understood.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn new(buckets: usize, quota: &str) -> Self {
        Self {
            store: MemoryStore::new(MemoryOptions { max_buckets: buckets * 2 }),
            name: TestBucket::new("bench", "").name().clone(),
            quota: quota.parse().expect("the quota is fixed"),
        }
    }

    /// One take.
    #[inline]
    pub fn take(&self, key: &str) -> bool {
        let tier = Tier {
            quota: &self.quota,
            bucket: &self.name,
            subject: key.as_bytes(),
            cost: 1,
            group: 0,
            on_failure: FailurePolicy::Closed,
            lease: None,
        };
        self.store.take_one(&tier).0.is_allowed()
    }
}
