//! Circuit breaker of one server: opens after several failures in a row, admits one
//! trial call after a pause, and closes when that succeeds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerOptions {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// How long it stays open before one request may try, in microseconds.
    pub pause_us: u64,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { failures_max: 5, pause_us: 250_000 }
    }
}

/// Opens when a server fails; takes the time from its caller.
#[derive(Debug)]
pub(super) struct Breaker {
    options: BreakerOptions,
    failures: AtomicU32,
    /// When the next request may try; meaningful while failures are at the bound.
    retry_at_us: AtomicU64,
}

impl Breaker {
    pub(super) fn new(options: BreakerOptions) -> Self {
        Self { options, failures: AtomicU32::new(0), retry_at_us: AtomicU64::new(0) }
    }

    pub(super) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= self.options.failures_max
    }

    /// Whether a request may try the server now. While open, one request in
    /// every pause may.
    pub(super) fn may_try(&self, now_us: u64) -> bool {
        if !self.is_open() {
            return true;
        }
        let retry_at_us = self.retry_at_us.load(Ordering::Acquire);
        now_us >= retry_at_us
            && self
                .retry_at_us
                .compare_exchange(retry_at_us, now_us + self.options.pause_us, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    pub(super) fn succeeded(&self) {
        // Read first: what all requests write would go from core to core.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Release);
        }
    }

    /// Counts a failure; whether it opened the breaker.
    pub(super) fn failed(&self, now_us: u64) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        let opens = failures == self.options.failures_max;
        if opens {
            self.retry_at_us.store(now_us + self.options.pause_us, Ordering::Release);
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_tries_once_a_pause_and_recovers() {
        let breaker = Breaker::new(BreakerOptions { failures_max: 3, pause_us: 100 });
        assert!(!breaker.failed(0) && !breaker.failed(0) && breaker.may_try(0));
        assert!(breaker.failed(0), "the third failure opens it");
        assert!(!breaker.may_try(99));
        assert!(breaker.may_try(100), "one may try");
        assert!(!breaker.may_try(100), "and only one");
        breaker.failed(150);
        assert!(!breaker.may_try(199) && breaker.may_try(200));
        breaker.succeeded();
        assert!(breaker.may_try(200) && breaker.may_try(200));
    }
}
