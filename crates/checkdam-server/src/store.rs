//! The store that the settings choose.

use std::sync::Mutex;

use checkdam::store::redis::{RedisOptions, RedisStats, RedisStore, StoreUrlError};
use checkdam::store::{Answer, MemoryOptions, MemoryStore, Operation, Store, Tier};

/// Where the buckets live.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(Box<MemoryStore>),
    Redis(Box<Watched>),
}

/// Redis, and what was last said of it.
#[derive(Debug)]
pub(crate) struct Watched {
    store: RedisStore,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    stats: RedisStats,
    is_failing: bool,
}

impl Watched {
    /// Says once when Redis begins to fail, and once when it answers again.
    fn watch(&self) {
        let stats = self.store.stats();
        let Ok(mut seen) = self.seen.lock() else { return };
        let failures = |stats: &RedisStats| stats.unknown + stats.refused + stats.not_asked;
        let failed = failures(&stats) - failures(&seen.stats);
        let answered = stats.answered - seen.stats.answered;
        if failed > 0 && !seen.is_failing {
            seen.is_failing = true;
            tracing::warn!(
                failed,
                answered,
                breaker_open = self.store.is_open(),
                "Redis does not answer: rules follow their on_store_failure; check --store and the server"
            );
        } else if failed == 0 && answered > 0 && seen.is_failing {
            seen.is_failing = false;
            tracing::info!(answered, "Redis answers again");
        }
        seen.stats = stats;
    }
}

impl AnyStore {
    /// Buckets in this process.
    pub(crate) fn memory(max_buckets: usize) -> Self {
        Self::Memory(Box::new(MemoryStore::new(MemoryOptions { max_buckets })))
    }

    /// Buckets in Redis.
    pub(crate) fn redis(options: &RedisOptions) -> Result<Self, StoreUrlError> {
        let store = RedisStore::new(options.clone())?;
        Ok(Self::Redis(Box::new(Watched { store, seen: Mutex::default() })))
    }

    /// To be called about once a second.
    pub(crate) fn maintain(&self) {
        match self {
            Self::Memory(store) => store.maintain(),
            Self::Redis(watched) => {
                watched.store.maintain();
                watched.watch();
            }
        }
    }
}

impl Store for AnyStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Answer {
        match self {
            Self::Memory(store) => store.apply_now(operation, tiers),
            Self::Redis(watched) => watched.store.apply(operation, tiers).await,
        }
    }
}
