//! A limiter with one quota for each key: synchronous, in memory, without rules.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use crate::decision::Decision;
use crate::quota::{Quota, QuotaError};
use crate::store::{MemoryOptions, MemoryStats, MemoryStore, Operation};
use crate::time::{Clock, SystemClock, sleep};

/// One quota for each key, in memory.
///
/// ```
/// use checkdam::KeyedLimiter;
///
/// let limiter = KeyedLimiter::new("10/s burst 50")?;
/// assert!(limiter.check("alice").is_allowed());
/// # Ok::<(), checkdam::QuotaError>(())
/// ```
///
/// A key is any type that implements [`Hash`]: a string, an address, a number, a tuple
/// of them. All keys of a limiter have one type, which follows from the first use, or is
/// written down: `KeyedLimiter<str>` takes a `&String` too, `KeyedLimiter<IpAddr>` takes
/// addresses, and `KeyedLimiter<()>` is a single limit.
///
/// Share a limiter between threads by reference or in an [`Arc`](std::sync::Arc). A
/// check takes no lock if the key has a bucket already (token buckets; the windows of
/// the other algorithms are behind sharded locks), never waits and allocates nothing
/// for token and leaky buckets.
///
/// Memory is bounded: by default by a million buckets, 16 bytes each for token and leaky
/// buckets. When all are in use, the one that owes least is evicted and its debt
/// is kept in a sketch, so a flood of keys neither exhausts memory nor resets a limit.
/// Nothing needs to be called from time to time.
///
/// Keys are hashed with a random secret from the operating system and not stored. Two
/// keys with the same 54-bit hash share a bucket: among a million keys at a time
/// the odds that any two do are 3 in 100,000. One of the two could then be denied early;
/// more than the quota is never admitted, unless one is reset or refunded. The hash is
/// fast, not cryptographic: it is seeded at random, so that nobody can prepare
/// keys that collide.
///
/// Requests with several limits, limits by attributes, and limits that are shared by
/// many processes need a [`Limiter`](crate::Limiter).
pub struct KeyedLimiter<K: ?Sized, C = SystemClock> {
    quota: Quota,
    store: MemoryStore<C>,
    keys: PhantomData<fn(&K)>,
}

/// A cost that can never pass, because it exceeds what a bucket holds when full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cost of {cost} can never pass: at most {limit} pass at once; take less at a time, or raise the burst")]
#[non_exhaustive]
pub struct CostExceedsBurst {
    /// The cost.
    pub cost: u64,
    /// The most that can pass at once.
    pub limit: u64,
}

impl<K: Hash + ?Sized> KeyedLimiter<K> {
    /// A token bucket for each key, from text such as `"10/s burst 50"`, `"100/m"` or
    /// `"5 per 30s"`.
    ///
    /// # Errors
    /// Says what is wrong with the quota, and what would fit.
    pub fn new(quota: &str) -> Result<Self, QuotaError> {
        Ok(Self::with_store(quota.parse()?, MemoryStore::new(MemoryOptions::default())))
    }
}

impl<K: Hash + ?Sized, C: Clock> KeyedLimiter<K, C> {
    /// Any algorithm, and a store with another bound or clock.
    ///
    /// ```
    /// use checkdam::store::{MemoryOptions, MemoryStore};
    /// use checkdam::{Algorithm, KeyedLimiter, Quota};
    ///
    /// let quota = Quota::parse("100/m", Algorithm::SlidingWindow { strict: false })?;
    /// let store = MemoryStore::new(MemoryOptions { max_buckets: 10_000 });
    /// let limiter = KeyedLimiter::with_store(quota, store);
    /// assert_eq!(limiter.check(&42).remaining, 99);
    /// # Ok::<(), checkdam::QuotaError>(())
    /// ```
    #[must_use]
    pub const fn with_store(quota: Quota, store: MemoryStore<C>) -> Self {
        Self { quota, store, keys: PhantomData }
    }

    /// Takes one from the key's bucket, if it is there. A denied check takes nothing.
    #[inline]
    pub fn check(&self, key: &K) -> Decision {
        self.check_n(key, 1)
    }

    /// Takes `cost` from the key's bucket, all of it or nothing.
    #[inline]
    pub fn check_n(&self, key: &K, cost: u64) -> Decision {
        self.store.take_tagged(&self.quota, self.store.key_tag(&self.quota, key), cost).0
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    pub fn peek(&self, key: &K) -> Decision {
        self.apply(Operation::Peek, key, 1)
    }

    /// Gives back `cost`, at most what is owed: for work that was not done after all.
    pub fn refund(&self, key: &K, cost: u64) {
        let _ = self.apply(Operation::Refund, key, cost);
    }

    /// Takes `cost` for what was used already, whatever is left: beyond the limit the bucket
    /// is in debt, and nothing passes until that is paid back. The decision says whether
    /// anything would pass now.
    pub fn record(&self, key: &K, cost: u64) -> Decision {
        self.apply(Operation::Record, key, cost)
    }

    /// Forgets the key's bucket: it is as new.
    pub fn reset(&self, key: &K) {
        let _ = self.apply(Operation::Reset, key, 0);
    }

    /// Waits until one can be taken from the key's bucket, and takes it.
    ///
    /// It waits exactly as long as the bucket says, and again if another caller was faster;
    /// callers that wait for one key pass in no particular order. With a leaky bucket it
    /// also waits for the delay of the queue. Any executor will do: the wait is timed by a
    /// thread of this library, which the first wait starts. A future that is dropped while
    /// it waits for tokens has taken nothing.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let limiter = checkdam::KeyedLimiter::new("1000/s burst 1")?;
    /// for _ in 0..3 {
    ///     limiter.until_ready("alice").await;
    /// }
    /// # Ok::<(), checkdam::QuotaError>(()) }).unwrap();
    /// ```
    pub async fn until_ready(&self, key: &K) -> Decision {
        // One never exceeds a burst, so this always passes in the end.
        self.wait(key, 1).await
    }

    /// As [`until_ready`](Self::until_ready), for any cost.
    ///
    /// # Errors
    /// If that cost can never pass.
    pub async fn until_ready_n(&self, key: &K, cost: u64) -> Result<Decision, CostExceedsBurst> {
        let decision = self.wait(key, cost).await;
        if decision.is_allowed() { Ok(decision) } else { Err(CostExceedsBurst { cost, limit: decision.limit }) }
    }

    /// The decision that allows the cost, or the one that says it will never pass.
    async fn wait(&self, key: &K, cost: u64) -> Decision {
        let tag = self.store.key_tag(&self.quota, key);
        loop {
            let decision = self.store.take_tagged(&self.quota, tag, cost).0;
            if decision.is_allowed() {
                sleep(decision.delay()).await;
                return decision;
            }
            match decision.retry_after() {
                Some(wait) => sleep(wait).await,
                None => return decision,
            }
        }
    }

    /// The quota of every key.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// How many buckets are held, and how many were evicted. Reads the whole table.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        self.store.stats()
    }

    /// The store of the buckets.
    #[must_use]
    pub const fn store(&self) -> &MemoryStore<C> {
        &self.store
    }

    fn apply(&self, operation: Operation, key: &K, cost: u64) -> Decision {
        self.store.apply_tagged(operation, &self.quota, self.store.key_tag(&self.quota, key), cost)
    }
}

impl<K: ?Sized, C> fmt::Debug for KeyedLimiter<K, C> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KeyedLimiter").field("quota", &self.quota.to_string()).finish_non_exhaustive()
    }
}
