//! What this node admitted while Redis did not answer, until Redis is charged
//! with it.
//!
//! Best effort, in bounded space: what does not fit, and what may have been
//! charged already, is dropped and counted. Nothing is ever charged twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::algorithm::{fixed_window, sliding_window};
use crate::decision::Decision;
use crate::quota::{Algorithm, Quota};

/// What all that waits may take, in bytes: about 60,000 buckets.
const BYTES_MAX: usize = 16 << 20;
/// What one bucket takes beside its key.
const BYTES_EACH: usize = size_of::<Admitted>() + size_of::<Key>() + 32;
/// After a charge that was not taken, Redis is left alone for so long.
const PAUSE_US: u64 = 250_000;

/// A bucket's key in Redis.
pub(super) type Key = Box<[u8]>;

/// Buckets that Redis is to be charged with.
#[derive(Debug, Default)]
pub(super) struct Charges {
    waiting: Mutex<Waiting>,
    /// Whether any wait; looked at after every answer of Redis.
    is_due: AtomicBool,
    is_sending: AtomicBool,
    not_before_us: AtomicU64,
    charged: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    buckets: HashMap<Key, Admitted>,
    bytes: usize,
}

/// What was admitted to one bucket, as far as it still counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    /// The shared quota.
    pub(super) quota: Quota,
    /// What a token of this node's share takes to return, in ticks.
    interval: u64,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// When the bucket would be full, in ticks: with what was admitted here, and
    /// without it.
    Bucket {
        with: u64,
        without: u64,
    },
    Fixed(Option<fixed_window::State>),
    /// Also for logs and strict windows: nearly what they count, in little space.
    Sliding(Option<sliding_window::State>),
}

impl Admitted {
    /// A bucket that this node's share of, after its first admission, decided so.
    fn new(quota: &Quota, share: &Quota, decision: &Decision, cost: u64, now_us: u64) -> Self {
        let interval = share.interval;
        if quota.algorithm.is_bucket() {
            let with = (now_us + decision.reset_after_us) * quota.ticks_per_us;
            let without = with.saturating_sub(cost.saturating_mul(interval));
            return Self { quota: *quota, interval, state: State::Bucket { with, without } };
        }
        let (quota, state) = match quota.algorithm {
            Algorithm::FixedWindow => (*quota, State::Fixed(None)),
            _ => (*quota, State::Sliding(None)),
        };
        let mut admitted = Self { quota, interval, state };
        admitted.add(cost, now_us);
        admitted
    }

    fn add(&mut self, cost: u64, now_us: u64) {
        let weighed = self.weighed();
        match &mut self.state {
            State::Bucket { with, .. } => {
                *with = (*with).max(now_us * self.quota.ticks_per_us) + cost.saturating_mul(self.interval);
            }
            State::Fixed(state) => *state = Some(fixed_window::charge(&self.quota, *state, now_us, cost).1),
            State::Sliding(state) => *state = Some(sliding_window::charge(&weighed, *state, now_us, cost).1),
        }
    }

    /// What of it still counts, in whole tokens, rounded up.
    pub(super) fn cost(&self, now_us: u64) -> u64 {
        let used = |decision: Decision| decision.limit - decision.remaining;
        match self.state {
            State::Bucket { with, without } => {
                let now = now_us * self.quota.ticks_per_us;
                (with.max(now) - without.max(now).min(with.max(now))).div_ceil(self.interval.max(1))
            }
            State::Fixed(state) => used(fixed_window::peek(&self.quota, state, now_us, 0)),
            State::Sliding(state) => used(sliding_window::peek(&self.weighed(), state, now_us, 0)),
        }
    }

    /// The quota of two weighted counters over the same period.
    fn weighed(&self) -> Quota {
        let sliding = Algorithm::SlidingWindow { strict: false };
        match self.quota.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow { strict: true } => {
                Quota::new(self.quota.spec, sliding).unwrap_or(self.quota)
            }
            _ => self.quota,
        }
    }
}

impl Charges {
    /// Notes an admission: the share of the quota that decided, and how.
    pub(super) fn add(
        &self,
        key: &[u8],
        (quota, share): (&Quota, &Quota),
        decision: &Decision,
        cost: u64,
        now_us: u64,
    ) {
        let mut waiting = self.lock();
        match waiting.buckets.get_mut(key) {
            Some(admitted) => admitted.add(cost, now_us),
            None => {
                let admitted = Admitted::new(quota, share, decision, cost, now_us);
                if !waiting.insert(key.into(), admitted) {
                    self.dropped.fetch_add(cost, Ordering::Relaxed);
                }
            }
        }
        self.is_due.store(true, Ordering::Release);
    }

    /// Forgets a bucket: it was reset.
    pub(super) fn forget(&self, key: &[u8]) {
        if self.is_due.load(Ordering::Acquire) {
            self.lock().remove(key);
        }
    }

    /// Whether Redis should be charged now, by the caller.
    #[inline]
    pub(super) fn begin(&self, now_us: impl Fn() -> u64) -> bool {
        self.is_due.load(Ordering::Relaxed)
            && self.not_before_us.load(Ordering::Relaxed) <= now_us()
            && !self.is_sending.swap(true, Ordering::AcqRel)
    }

    /// The caller is done; not before a while if Redis did not take it.
    pub(super) fn end(&self, has_failed: bool, now_us: u64) {
        if has_failed {
            self.not_before_us.store(now_us + PAUSE_US, Ordering::Relaxed);
        }
        self.is_sending.store(false, Ordering::Release);
    }

    /// Takes out some buckets of which something still counts.
    pub(super) fn take(&self, most: usize, now_us: u64) -> Vec<(Key, Admitted)> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(key) = waiting.buckets.keys().next().cloned()
        {
            taken.extend(waiting.remove(&key).filter(|it| it.cost(now_us) > 0).map(|it| (key, it)));
        }
        self.is_due.store(!waiting.buckets.is_empty(), Ordering::Release);
        taken
    }

    /// Puts back what Redis certainly was not charged with.
    pub(super) fn put_back(&self, key: Key, admitted: Admitted, now_us: u64) {
        let mut waiting = self.lock();
        let cost = admitted.cost(now_us);
        match waiting.buckets.entry(key) {
            Entry::Occupied(mut newer) => newer.get_mut().add(cost, now_us),
            Entry::Vacant(free) => {
                let key = free.into_key();
                if !waiting.insert(key, admitted) {
                    self.dropped.fetch_add(cost, Ordering::Relaxed);
                }
            }
        }
        self.is_due.store(true, Ordering::Release);
    }

    pub(super) fn note_charged(&self, cost: u64) {
        self.charged.fetch_add(cost, Ordering::Relaxed);
    }

    pub(super) fn note_dropped(&self, cost: u64) {
        self.dropped.fetch_add(cost, Ordering::Relaxed);
    }

    /// What Redis was charged with, and what it never will be.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.charged.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether there is room for it.
    fn insert(&mut self, key: Key, admitted: Admitted) -> bool {
        let bytes = key.len() + BYTES_EACH;
        if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.buckets.insert(key, admitted);
        true
    }

    fn remove(&mut self, key: &[u8]) -> Option<Admitted> {
        let removed = self.buckets.remove(key)?;
        self.bytes -= key.len() + BYTES_EACH;
        Some(removed)
    }
}
