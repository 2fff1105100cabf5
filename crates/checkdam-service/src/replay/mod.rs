//! Replays requests through a rule set in virtual time.
//!
//! A replay has its own buckets, in memory, all full at first. It does not affect the
//! active rules or buckets.

mod preview;

pub use self::preview::{Preview, PreviewCounts, PreviewRules, SubjectChange, preview};

use std::sync::Arc;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Batch, Limiter, Outcome, Request, RuleSet};

/// A rule set, buckets and a manual clock.
#[derive(Debug)]
pub struct Replay {
    limiter: Limiter<MemoryStore<ManualClock>>,
}

impl Replay {
    /// With full buckets, at most this many that owe something: 18 bytes each, and more
    /// for windows.
    pub fn new(rules: RuleSet, buckets_max: usize) -> Self {
        let options = MemoryOptions { max_buckets: buckets_max };
        let store = MemoryStore::with_clock(options, ManualClock::at(0));
        Self { limiter: Limiter::new(rules, store) }
    }

    pub fn check(&mut self, at_us: u64, request: &Request<'_>) -> Outcome {
        self.set_time(at_us);
        self.limiter.check_now(request)
    }

    /// Decides requests that pass together or not at all.
    pub fn check_together(&mut self, at_us: u64, requests: &[Request<'_>]) -> Batch {
        self.set_time(at_us);
        self.limiter.check_batch_now(requests)
    }

    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.limiter.rules())
    }

    /// Buckets that were evicted for lack of room: their subjects may be denied early.
    pub fn evicted(&self) -> u64 {
        self.limiter.store().stats().evicted
    }

    fn set_time(&mut self, at_us: u64) {
        self.limiter.store().clock().set(at_us);
    }
}
