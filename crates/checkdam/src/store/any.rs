//! A store that is chosen at run time.

use super::{MemoryStore, Operation, Store, TakeTerms, Tier, TierDecisions};

#[cfg(feature = "redis")]
use super::redis::{RedisOptions, RedisStore, RedisStoreError};

/// One of the library's stores, chosen at run time: `Limiter<AnyStore>`.
///
/// ```
/// use checkdam::store::{AnyStore, MemoryStore};
/// use checkdam::{Limiter, RuleSet};
///
/// let store = AnyStore::from(MemoryStore::default());
/// let limiter = Limiter::new(RuleSet::new(Vec::new())?, store);
/// # Ok::<(), checkdam::RuleSetError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// Buckets in this process.
    Memory(Box<MemoryStore>),
    /// Buckets in Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(RedisStore),
}

impl AnyStore {
    /// The store that a URL names: `memory`, or one of [`RedisOptions::url`].
    ///
    /// # Errors
    /// As [`RedisStore::new`].
    #[cfg(feature = "redis")]
    pub fn open(url: &str) -> Result<Self, RedisStoreError> {
        match url {
            "memory" => Ok(MemoryStore::default().into()),
            url => RedisStore::new(RedisOptions::new(url)).map(Self::from),
        }
    }
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Self::Memory(Box::new(store))
    }
}

#[cfg(feature = "redis")]
impl From<RedisStore> for AnyStore {
    fn from(store: RedisStore) -> Self {
        Self::Redis(store)
    }
}

impl Store for AnyStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        match self {
            Self::Memory(store) => store.apply_now(operation, tiers),
            // On the heap, so that decisions in memory do not carry the room for it.
            #[cfg(feature = "redis")]
            Self::Redis(store) => Box::pin(store.apply(operation, tiers)).await,
        }
    }

    #[inline]
    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        match self {
            Self::Memory(store) => store.try_apply_now(operation, tiers, answer),
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.try_apply_now(operation, tiers, answer),
        }
    }

    async fn take_on_terms(&self, tiers: &[Tier<'_>], terms: &TakeTerms) -> TierDecisions {
        match self {
            Self::Memory(store) => store.take_on_terms(tiers, terms).await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.take_on_terms(tiers, terms).await,
        }
    }
}
