//! limitador as its own server uses it: one limit a user, in memory or in Redis.

use std::collections::HashMap;

use limitador::limit::{Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, RateLimiter};

const NAMESPACE: &str = "bench";

/// limitador with its counters in Redis.
pub struct Limitador {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
}

/// One limit a user of requests to one endpoint, so high that all pass.
fn limit() -> Limit {
    let condition = "endpoint == '/api/search'".try_into();
    let variable = "user".try_into();
    let (Ok(condition), Ok(variable)) = (condition, variable) else { panic!("limitador refused a fixed expression") };
    Limit::new(NAMESPACE, 1_000_000_000, 3_600, vec![condition], vec![variable])
}

impl Limitador {
    /// On that server.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn on_redis(url: &str) -> Self {
        let storage = AsyncRedisStorage::new(url).await;
        let storage = storage.unwrap_or_else(|error| panic!("limitador cannot reach {url}: {error:?}"));
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
        limiter.add_limit(limit());
        Self { limiter, namespace: NAMESPACE.into() }
    }

    /// Whether a request passes.
    pub async fn check(&self, attributes: HashMap<String, String>) -> bool {
        let checked = self.limiter.check_rate_limited_and_update(&self.namespace, &attributes.into(), 1).await;
        checked.is_ok_and(|checked| !checked.limited)
    }
}

/// limitador with its counters in memory.
pub struct LimitadorInMemory {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl LimitadorInMemory {
    /// With room for so many counters.
    #[must_use]
    pub fn new(counters: u64) -> Self {
        let limiter = RateLimiter::new(counters);
        limiter.add_limit(limit());
        Self { limiter, namespace: NAMESPACE.into() }
    }

    /// Whether a request passes.
    #[must_use]
    pub fn check(&self, user: &str) -> bool {
        let attributes = [("user", user), ("endpoint", "/api/search")];
        let attributes: HashMap<String, String> = attributes.map(|(name, value)| (name.into(), value.into())).into();
        let checked = self.limiter.check_rate_limited_and_update(&self.namespace, &attributes.into(), 1);
        checked.is_ok_and(|checked| !checked.limited)
    }
}
