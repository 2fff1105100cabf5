//! The upstream servers of the proxy, and their health.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkdam_service::config::UpstreamUrl;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::http1::Pool;
use super::lock;

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) url: UpstreamUrl,
    /// Its connections that rest, unless it is spoken to in HTTP/2.
    pub(super) pool: Arc<Pool>,
    /// One permit for each connection that it may still have.
    permits: Arc<Semaphore>,
    /// Until when it is passed over, because it could not be reached.
    aside_until: Mutex<Option<Instant>>,
    /// Whether its last health check failed.
    is_ill: AtomicBool,
}

impl Upstream {
    pub(super) fn new(url: UpstreamUrl, connections_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max));
        let (pool, aside_until, is_ill) = Default::default();
        Self { url, pool, permits, aside_until, is_ill }
    }

    /// The right to one more connection to it; none if it has as many as it may.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Skips it for a while.
    pub(super) fn suspend(&self, pause: Duration, reason: &str) {
        let now = Instant::now();
        let mut until = lock(&self.aside_until);
        // Several requests may find it out at once.
        let is_news = until.is_none_or(|until| until <= now);
        *until = Some(now + pause);
        drop(until);
        if is_news {
            tracing::warn!(upstream = %self.url, reason, "cannot reach an upstream: skipping it temporarily");
        }
    }

    pub(super) fn record_health(&self, is_well: bool) {
        if self.is_ill.swap(!is_well, Ordering::Relaxed) == is_well {
            if is_well {
                tracing::info!(upstream = %self.url, "an upstream is healthy again");
            } else {
                tracing::warn!(upstream = %self.url, "an upstream is unhealthy: skipping it");
            }
        }
    }

    fn is_usable(&self) -> bool {
        let is_aside = |until: Instant| Instant::now() < until;
        let until = *lock(&self.aside_until);
        !self.is_ill.load(Ordering::Relaxed) && !until.is_some_and(is_aside)
    }
}

#[derive(Debug)]
pub(super) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    next: AtomicUsize,
}

impl Upstreams {
    pub(super) fn new(all: Vec<Arc<Upstream>>) -> Self {
        Self { all, next: AtomicUsize::new(0) }
    }

    /// The upstreams to try, in order: usable ones, round robin, then the others, since
    /// none may be usable.
    pub(super) fn rotation(&self) -> Vec<&Arc<Upstream>> {
        if let [only] = &self.all[..] {
            return vec![only];
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len().max(1);
        let (before, from) = self.all.split_at(first);
        let (mut order, others): (Vec<_>, Vec<_>) =
            from.iter().chain(before).partition(|upstream| upstream.is_usable());
        order.extend(others);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstreams(count: u16) -> Upstreams {
        let url = |number| format!("http://127.0.0.1:{number}").parse().unwrap();
        Upstreams::new((1..=count).map(|number| Arc::new(Upstream::new(url(number), 1))).collect())
    }

    fn ports(upstreams: &Upstreams) -> Vec<u16> {
        upstreams.rotation().iter().map(|upstream| upstream.url.authority.port_u16().unwrap()).collect()
    }

    #[test]
    fn upstreams_take_turns_and_those_set_aside_come_last() {
        let three = upstreams(3);
        assert_eq!([ports(&three), ports(&three), ports(&three)], [[1, 2, 3], [2, 3, 1], [3, 1, 2]]);
        three.all[0].suspend(Duration::from_secs(5), "refused");
        assert_eq!(ports(&three), [2, 3, 1]);
        three.all[1].record_health(false);
        assert_eq!(ports(&three), [3, 2, 1]);
        three.all[0].suspend(Duration::ZERO, "refused");
        three.all[1].record_health(true);
        assert_eq!([ports(&three), ports(&three)], [[3, 1, 2], [1, 2, 3]]);
    }
}
