//! What the tests share.

use std::sync::Arc;
use std::time::Duration;

use checkdam::conformance::Harness;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Answer, FailurePolicy, Operation, Store, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Quota};

/// A store that must answer from Redis.
pub(crate) struct Answering(pub(crate) RedisStore);

impl Store for Answering {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Answer {
        self.0.try_apply(operation, tiers).await.unwrap()
    }
}

/// A store on a clock that the suite sets.
pub(crate) struct OnRedis {
    clock: Arc<ManualClock>,
    store: Answering,
}

impl OnRedis {
    pub(crate) fn new(url: String) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = RedisStore::with_clock(patient(url), Some(Arc::clone(&clock))).unwrap();
        Self { clock, store: Answering(store) }
    }
}

impl Harness for OnRedis {
    type Store = Answering;

    fn store(&self) -> &Answering {
        &self.store
    }

    fn set_now_us(&self, now_us: u64) {
        self.clock.set(now_us);
    }
}

/// Options for tests of what is answered, not of when.
pub(crate) fn patient(url: String) -> RedisOptions {
    RedisOptions { deadline: Duration::from_secs(10), ..RedisOptions::new(url) }
}

pub(crate) fn quota(text: &str) -> Quota {
    Quota::new(text.parse().unwrap(), Algorithm::TokenBucket).unwrap()
}

pub(crate) fn with_policy(tier: Tier<'_>, on_failure: FailurePolicy) -> Tier<'_> {
    Tier { on_failure, ..tier }
}
