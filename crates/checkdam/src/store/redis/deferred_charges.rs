//! Queue of charges for Redis: what this node admitted, and what was recorded, while Redis
//! did not reply.
//!
//! Best effort, in bounded space: charges that do not fit, and those whose result is
//! unknown, are dropped and counted, never retried. A request that Redis charged but
//! whose reply was late is charged twice: errors count too much, never too little.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use indexmap::map::Entry;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::call_error::CallError;
use super::fallback::Fallback;
use super::script::ScriptCall;
use super::topology::Topology;

use crate::algorithm::{fixed_window, sliding_window};
use crate::decision::Decision;
use crate::hash::RandomState;
use crate::quota::{Algorithm, Quota, QuotaSpec};

/// The maximum size of the queue, in bytes: about 60,000 buckets.
const BYTES_MAX: usize = 16 << 20;
/// What one bucket takes beside its key.
const BYTES_EACH: usize = size_of::<AdmittedCost>() + size_of::<Key>() + 32;
/// After a charge that failed, none is sent for this long.
const PAUSE: Duration = Duration::from_millis(250);

/// The most charges that are under way at once.
const CHARGES_MAX: usize = 32;
/// Timeout of a charge: it is correct however late.
const CHARGE_LIMIT: Duration = Duration::from_millis(500);

/// A bucket in Redis, and how it is to be charged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) bytes: Box<[u8]>,
    /// Whether it is recorded use, which may lead to debt.
    pub(super) is_record: bool,
}

/// Buckets that Redis is to be charged with.
#[derive(Debug, Default)]
pub(super) struct DeferredCharges {
    waiting: Mutex<ChargeQueue>,
    /// Whether any are queued; read after every reply of Redis.
    is_due: AtomicBool,
    is_sending: AtomicBool,
    not_before: Mutex<Option<Instant>>,
    charged: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct ChargeQueue {
    /// Taken in no order: a server that is away delays the charges of others, and
    /// does not hold them up.
    buckets: IndexMap<Key, AdmittedCost, RandomState>,
    bytes: usize,
    drawn: u64,
}

/// What was admitted to one bucket, as far as it still counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmittedCost {
    /// The shared quota.
    pub(super) quota: Quota,
    /// What a token of this node's share takes to return, in ticks; if it was recorded, a
    /// token of the shared quota.
    interval: u64,
    is_record: bool,
    state: AdmittedState,
}

#[derive(Debug, Clone, Copy)]
enum AdmittedState {
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

impl AdmittedCost {
    /// A bucket that this node's share of, after its first admission, decided so.
    fn new(quota: &Quota, share: &Quota, decision: &Decision, cost: u64, now_us: u64) -> Self {
        let interval = share.interval;
        if quota.algorithm.is_bucket() {
            let with = (now_us + decision.reset_after_us) * quota.ticks_per_us;
            let without = with.saturating_sub(cost.saturating_mul(interval));
            let state = AdmittedState::Bucket { with, without };
            return Self { quota: *quota, interval, is_record: false, state };
        }
        Self::empty(quota, interval, false).with(cost, now_us)
    }

    /// A bucket of which use was recorded, and what it owed before, if that is known. It is
    /// paid back first, so nothing of the record is before then.
    fn recorded(quota: &Quota, cost: u64, owed_us: Option<u64>, now_us: u64) -> Self {
        let mut admitted = Self::empty(quota, quota.interval, true);
        if let AdmittedState::Bucket { with, without } = &mut admitted.state {
            let owed = owed_us.map_or(quota.owed_recorded_max(), |owed_us| owed_us.saturating_mul(quota.ticks_per_us));
            *without = (now_us * quota.ticks_per_us).saturating_add(owed);
            *with = *without;
        }
        admitted.with(cost, now_us)
    }

    fn empty(quota: &Quota, interval: u64, is_record: bool) -> Self {
        let state = match quota.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => AdmittedState::Bucket { with: 0, without: 0 },
            Algorithm::FixedWindow => AdmittedState::Fixed(None),
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => AdmittedState::Sliding(None),
        };
        Self { quota: *quota, interval, is_record, state }
    }

    fn with(mut self, cost: u64, now_us: u64) -> Self {
        self.add(cost, now_us);
        self
    }

    fn add(&mut self, cost: u64, now_us: u64) {
        let (weighed, is_record) = (self.weighed(), self.is_record);
        match &mut self.state {
            AdmittedState::Bucket { with, without } => {
                let now = now_us * self.quota.ticks_per_us;
                let most = (*without).max(now).saturating_add(self.quota.owed_recorded_max());
                let sum = (*with).max(now).saturating_add(cost.saturating_mul(self.interval));
                *with = if is_record { sum.min(most) } else { sum };
            }
            AdmittedState::Fixed(state) if is_record => {
                *state = Some(fixed_window::record(&self.quota, *state, now_us, cost).1);
            }
            AdmittedState::Fixed(state) => *state = Some(fixed_window::charge(&self.quota, *state, now_us, cost).1),
            AdmittedState::Sliding(state) if is_record => {
                *state = Some(sliding_window::record(&weighed, *state, now_us, cost).1);
            }
            AdmittedState::Sliding(state) => *state = Some(sliding_window::charge(&weighed, *state, now_us, cost).1),
        }
    }

    /// What of it still counts, in whole tokens, rounded up.
    pub(super) fn cost(&self, now_us: u64) -> u64 {
        match self.state {
            AdmittedState::Bucket { with, without } => {
                let now = now_us * self.quota.ticks_per_us;
                (with.max(now) - without.max(now).min(with.max(now))).div_ceil(self.interval.max(1))
            }
            AdmittedState::Fixed(state) => fixed_window::peek(&self.quota, state, now_us, 0).used(),
            AdmittedState::Sliding(state) => sliding_window::peek(&self.weighed(), state, now_us, 0).used(),
        }
    }

    /// The quota of two weighted counters over the same period.
    fn weighed(&self) -> Quota {
        let sliding = Algorithm::SlidingWindow { strict: false };
        match self.quota.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow { strict: true } => {
                let spec = QuotaSpec { algorithm: Some(sliding), ..self.quota.spec };
                Quota::new(spec, sliding).unwrap_or(self.quota)
            }
            Algorithm::SlidingWindow { strict: false }
            | Algorithm::FixedWindow
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket => self.quota,
        }
    }
}

impl DeferredCharges {
    /// Notes an admission: the share of the quota that decided, and how.
    pub(super) fn add(
        &self,
        key: &[u8],
        (quota, share): (&Quota, &Quota),
        decision: &Decision,
        cost: u64,
        now_us: u64,
    ) {
        let key = Key { bytes: key.into(), is_record: false };
        self.add_to(key, cost, now_us, || AdmittedCost::new(quota, share, decision, cost, now_us));
    }

    /// Notes use that was recorded.
    pub(super) fn record(&self, key: &[u8], quota: &Quota, cost: u64, owed_us: Option<u64>, now_us: u64) {
        let key = Key { bytes: key.into(), is_record: true };
        self.add_to(key, cost, now_us, || AdmittedCost::recorded(quota, cost, owed_us, now_us));
    }

    fn add_to(&self, key: Key, cost: u64, now_us: u64, first: impl FnOnce() -> AdmittedCost) {
        let mut waiting = self.lock();
        match waiting.buckets.get_mut(&key) {
            Some(admitted) => admitted.add(cost, now_us),
            None => {
                if !waiting.insert(key, first()) {
                    self.dropped.fetch_add(cost, Ordering::Relaxed);
                }
            }
        }
        self.is_due.store(true, Ordering::Release);
    }

    /// Forgets a bucket: it was reset.
    pub(super) fn forget(&self, key: &[u8]) {
        if self.is_due.load(Ordering::Acquire) {
            for is_record in [false, true] {
                self.lock().remove(&Key { bytes: key.into(), is_record });
            }
        }
    }

    /// Whether Redis should be charged now, by the caller, while the guard lives.
    #[inline]
    pub(super) fn begin(self: &Arc<Self>) -> Option<SendGuard> {
        if !self.is_due.load(Ordering::Relaxed) {
            return None;
        }
        let not_before = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = not_before.is_none_or(|not_before| not_before <= Instant::now());
        (is_time && !self.is_sending.swap(true, Ordering::AcqRel)).then(|| SendGuard(Arc::clone(self)))
    }

    /// Redis did not take a charge: none is sent for a while.
    pub(super) fn pause(&self) {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
    }

    /// Takes out some buckets of which something still counts.
    pub(super) fn take(&self, most: usize, now_us: u64) -> Vec<(Key, AdmittedCost)> {
        let mut waiting = self.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((key, admitted)) = waiting.draw()
        {
            if admitted.cost(now_us) > 0 {
                taken.push((key, admitted));
            }
        }
        self.is_due.store(!waiting.buckets.is_empty(), Ordering::Release);
        taken
    }

    /// Puts back what Redis certainly was not charged with.
    pub(super) fn put_back(&self, key: Key, admitted: AdmittedCost, now_us: u64) {
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

    fn lock(&self) -> MutexGuard<'_, ChargeQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Charges Redis, which has just replied, with what was admitted here while it did
/// not: in the background.
#[inline]
pub(super) fn send_deferred_charges(topology: &Arc<Topology>, fallback: &Arc<Fallback>) {
    if let Some(sending) = fallback.charges.begin() {
        let (topology, fallback) = (Arc::clone(topology), Arc::clone(fallback));
        tokio::spawn(async move {
            send_all_charges(&topology, &fallback).await;
            drop(sending);
        });
    }
}

/// One charge first, in case Redis is not well after all; then many at a time.
async fn send_all_charges(topology: &Arc<Topology>, fallback: &Fallback) {
    let (mut most, mut has_failed) = (1, false);
    while !has_failed {
        let now_us = fallback.now_us();
        let batch = fallback.charges.take(most, now_us);
        if batch.is_empty() {
            break;
        }
        most = CHARGES_MAX;
        let mut calls = JoinSet::new();
        for (key, admitted) in batch {
            let (topology, cost) = (Arc::clone(topology), admitted.cost(now_us));
            let packed = match key.is_record {
                true => ScriptCall::record(&admitted.quota, cost, &key.bytes, now_us),
                false => ScriptCall::charge(&admitted.quota, cost, &key.bytes, now_us),
            };
            calls.spawn(async move {
                let result = topology.call(topology.slot(&key.bytes), packed, 1, Instant::now() + CHARGE_LIMIT).await;
                (key, admitted, cost, result)
            });
        }
        while let Some(Ok((key, admitted, cost, result))) = calls.join_next().await {
            match result {
                Ok(_) => fallback.charges.note_charged(cost),
                Err(CallError::TimedOut | CallError::Disconnected { .. }) => {
                    fallback.charges.note_dropped(cost);
                    has_failed = true;
                }
                Err(CallError::Failed { .. }) => fallback.charges.note_dropped(cost),
                Err(_) => {
                    fallback.charges.put_back(key, admitted, fallback.now_us());
                    has_failed = true;
                }
            }
        }
    }
    if has_failed {
        fallback.charges.pause();
    }
}

/// Held by the one task that charges Redis.
#[derive(Debug)]
pub(super) struct SendGuard(Arc<DeferredCharges>);

impl Drop for SendGuard {
    fn drop(&mut self) {
        self.0.is_sending.store(false, Ordering::Release);
    }
}

impl ChargeQueue {
    /// Whether there is room for it.
    fn insert(&mut self, key: Key, admitted: AdmittedCost) -> bool {
        let bytes = key.bytes.len() + BYTES_EACH;
        if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.buckets.insert(key, admitted);
        true
    }

    /// Takes out any bucket.
    fn draw(&mut self) -> Option<(Key, AdmittedCost)> {
        // The golden ratio's multiples, which are well spread.
        self.drawn = self.drawn.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let index = (self.drawn >> 32) as usize % self.buckets.len().max(1);
        let (key, admitted) = self.buckets.swap_remove_index(index)?;
        self.bytes -= key.bytes.len() + BYTES_EACH;
        Some((key, admitted))
    }

    fn remove(&mut self, key: &Key) {
        if self.buckets.swap_remove(key).is_some() {
            self.bytes -= key.bytes.len() + BYTES_EACH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;

    #[test]
    fn what_is_put_back_lets_others_go_first_and_one_task_sends() {
        let charges = Arc::new(DeferredCharges::default());
        let quota: Quota = "10/s burst 50".parse().unwrap();
        let decision = Decision { reset_after_us: 100_000, ..Decision::undecided(50, Verdict::Allowed) };
        for key in [b"a", b"b", b"c"] {
            charges.add(key, (&quota, &quota), &decision, 1, 0);
        }
        let mut order = Vec::new();
        for _ in 0..30 {
            let (key, admitted) = charges.take(1, 0).pop().unwrap();
            order.push(key.bytes.clone());
            charges.put_back(key, admitted, 0);
        }
        order.sort();
        order.dedup();
        assert_eq!(order.len(), 3, "{order:?}");
        let sending = charges.begin().unwrap();
        assert!(charges.begin().is_none());
        drop(sending);
        assert!(charges.begin().is_some());
        charges.pause();
        assert!(charges.begin().is_none());
        assert!(charges.take(9, 1_000_000).is_empty(), "all has drained");
    }
}
