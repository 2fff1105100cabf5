//! The store that the settings choose.

use checkdam::store::redis::{RedisOptions, RedisStore, StoreUrlError};
use checkdam::store::{Answer, MemoryOptions, MemoryStore, Operation, Store, Tier};

/// Where the buckets live.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(Box<MemoryStore>),
    Redis(Box<RedisStore>),
}

impl AnyStore {
    /// Buckets in this process.
    pub(crate) fn memory(max_buckets: usize) -> Self {
        Self::Memory(Box::new(MemoryStore::new(MemoryOptions { max_buckets })))
    }

    /// Buckets in Redis.
    pub(crate) fn redis(options: &RedisOptions) -> Result<Self, StoreUrlError> {
        Ok(Self::Redis(Box::new(RedisStore::new(options.clone())?)))
    }

    /// To be called about once a second.
    pub(crate) fn maintain(&self) {
        match self {
            Self::Memory(store) => store.maintain(),
            Self::Redis(store) => store.maintain(),
        }
    }
}

impl Store for AnyStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Answer {
        match self {
            Self::Memory(store) => store.apply_now(operation, tiers),
            Self::Redis(store) => store.apply(operation, tiers).await,
        }
    }
}
