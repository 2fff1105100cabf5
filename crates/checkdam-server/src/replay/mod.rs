//! Replays requests through a rule set in virtual time.
//!
//! A replay has its own buckets, in memory, all full at first. It does not affect the
//! active rules or buckets.

mod client_attributes;
mod preview;

pub(crate) use self::preview::{PassedCounts, Preview, PreviewCounts, PreviewRules, SubjectChange, preview};

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::{ManualClock, SECOND_US};
use checkdam::{Batch, Limiter, Outcome, Request, RuleSet};

/// Windows that have passed are forgotten so often, in virtual time.
const SWEEP_EVERY_US: u64 = 60 * SECOND_US;

/// A rule set, buckets and a manual clock.
#[derive(Debug)]
pub(crate) struct Replay {
    limiter: Limiter<MemoryStore<ManualClock>>,
    swept_us: u64,
}

impl Replay {
    /// With full buckets, at most this many that owe something: 18 bytes each, and more
    /// for windows.
    pub(crate) fn new(rules: RuleSet, buckets_max: usize) -> Self {
        let options = MemoryOptions { max_buckets: buckets_max };
        let store = MemoryStore::with_clock(options, ManualClock::at(0));
        Self { limiter: Limiter::new(rules, store), swept_us: 0 }
    }

    /// Decides a request at that time.
    pub(crate) fn check(&mut self, at_us: u64, request: &Request<'_>) -> Outcome {
        self.set_time(at_us);
        poll_once(self.limiter.check(request))
    }

    /// Decides requests that pass together or not at all.
    pub(crate) fn check_together(&mut self, at_us: u64, requests: &[Request<'_>]) -> Batch {
        self.set_time(at_us);
        poll_once(self.limiter.check_batch(requests))
    }

    /// The rules.
    pub(crate) fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.limiter.rules())
    }

    /// Buckets that were evicted for lack of room: their subjects may be denied early.
    pub(crate) fn evicted(&self) -> u64 {
        self.limiter.store().stats().evicted
    }

    fn set_time(&mut self, at_us: u64) {
        self.limiter.store().clock().set(at_us);
        if at_us > self.swept_us + SWEEP_EVERY_US {
            self.swept_us = at_us;
            self.limiter.store().maintain();
        }
    }
}

/// The value of a future that waits for nothing, as those of a memory store.
fn poll_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}
