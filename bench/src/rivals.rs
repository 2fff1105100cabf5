//! Limiters in this process that ours is compared with, each asked for one
//! token of one key.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use checkdam::time::{Clock, SystemClock};
use governor::clock::QuantaClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use throttlecrab::AdaptiveStore;

const RATE: u32 = 1_000_000;
const BURST: u32 = 1_000_000_000;
const INTERVAL_US: u64 = 1;

/// Our quota that lets every take of a benchmark pass, as text.
pub const QUOTA: &str = "1000000/s burst 1000000000";

/// The bare operation without which nothing is counted.
#[derive(Debug)]
pub struct Swap {
    words: Vec<AtomicU64>,
}

impl Swap {
    /// One word a key.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        Self { words: (0..keys).map(|_| AtomicU64::new(0)).collect() }
    }

    /// One take.
    #[must_use]
    pub fn take(&self, number: usize) -> bool {
        let word = &self.words[number];
        let seen = word.load(Ordering::Acquire);
        // A swap that lost is as much work as one that won.
        let _ = word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
        true
    }
}

/// governor's keyed limiter.
pub struct Governor {
    limiter: RateLimiter<String, DashMapStateStore<String>, QuantaClock>,
}

impl Default for Governor {
    fn default() -> Self {
        Self::new(Quota::per_second(number(RATE)).allow_burst(number(BURST)))
    }
}

impl Governor {
    /// With that quota.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self { limiter: RateLimiter::dashmap_with_clock(quota, QuantaClock::default()) }
    }

    /// With buckets that take hours to fill, for who counts their bytes.
    #[must_use]
    pub fn slow() -> Self {
        Self::new(Quota::per_hour(number(1)).allow_burst(number(100)))
    }

    /// One take.
    #[allow(clippy::ptr_arg, reason = "what governor asks for")]
    #[must_use]
    pub fn take(&self, key: &String) -> bool {
        self.limiter.check_key(key).is_ok()
    }
}

const fn number(value: u32) -> NonZeroU32 {
    match NonZeroU32::new(value) {
        Some(value) => value,
        None => NonZeroU32::MIN,
    }
}

/// Our arithmetic over a `DashMap`.
pub struct OnDashMap {
    map: dashmap::DashMap<String, AtomicU64>,
    clock: SystemClock,
}

impl Default for OnDashMap {
    fn default() -> Self {
        Self { map: dashmap::DashMap::new(), clock: SystemClock::new() }
    }
}

fn advance(full_at: u64, now: u64) -> Option<u64> {
    let new = full_at.max(now) + INTERVAL_US;
    (new - now <= u64::from(BURST)).then_some(new)
}

impl OnDashMap {
    /// One take.
    #[must_use]
    pub fn take(&self, key: &str) -> bool {
        let now = self.clock.now_us();
        let update = |word: &AtomicU64| {
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |full_at| advance(full_at, now)).is_ok()
        };
        match self.map.get(key) {
            Some(word) => update(&word),
            None => update(&self.map.entry(key.to_owned()).or_default()),
        }
    }
}

/// Our arithmetic over 64 maps, each behind a lock.
pub struct OnShards {
    hasher: hashbrown::DefaultHashBuilder,
    shards: Vec<Mutex<hashbrown::HashMap<String, u64>>>,
    clock: SystemClock,
}

impl Default for OnShards {
    fn default() -> Self {
        let hasher = hashbrown::DefaultHashBuilder::default();
        let shard = || Mutex::new(hashbrown::HashMap::with_hasher(hasher.clone()));
        Self { shards: (0..64).map(|_| shard()).collect(), hasher, clock: SystemClock::new() }
    }
}

impl OnShards {
    /// One take.
    #[must_use]
    pub fn take(&self, key: &str) -> bool {
        let now = self.clock.now_us();
        let mut shard = self.shards[(self.hasher.hash_one(key) >> 58) as usize].lock();
        match shard.get_mut(key) {
            Some(full_at) => advance(*full_at, now).map(|new| *full_at = new).is_some(),
            None => shard.insert(key.to_owned(), now + INTERVAL_US).is_none(),
        }
    }
}

/// throttlecrab's library, behind a lock, since a take needs it for itself.
pub struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<AdaptiveStore>>,
}

impl Throttlecrab {
    /// With room for so many keys.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        Self { limiter: Mutex::new(throttlecrab::RateLimiter::new(AdaptiveStore::with_capacity(keys))) }
    }

    /// One take.
    #[must_use]
    pub fn take(&self, key: &str) -> bool {
        let (rate, burst) = (i64::from(RATE), i64::from(BURST));
        let taken = self.limiter.lock().rate_limit(key, burst, rate, 1, 1, SystemTime::now());
        taken.is_ok_and(|(is_allowed, _)| is_allowed)
    }
}

/// leaky-bucket: one bucket, no keys.
pub struct LeakyBucket {
    limiter: leaky_bucket::RateLimiter,
}

impl Default for LeakyBucket {
    fn default() -> Self {
        let mut builder = leaky_bucket::RateLimiter::builder();
        let burst = BURST as usize;
        builder.initial(burst).max(burst).refill(RATE as usize).interval(Duration::from_secs(1));
        Self { limiter: builder.build() }
    }
}

impl LeakyBucket {
    /// One take.
    #[must_use]
    pub fn take(&self) -> bool {
        self.limiter.try_acquire(1)
    }
}
