//! The in-memory store: the default, exact and bounded.
//!
//! Buckets are found by randomly keyed hashes, so no key text is stored and no client
//! can choose keys that collide. Token and leaky buckets are in a flat table
//! (`bucket_table`), the window algorithms in sharded maps (`window_map`). A request with
//! several tiers locks their words, decides, and writes all of them or none.

mod atomic_take;
mod bucket_table;
mod bucket_word;
mod debt_sketch;
mod evicted;
mod window_map;

use std::cell::Cell;
use std::future::ready;
use std::hash::Hash;

use self::bucket_table::{BucketTable, InsertResult};
use self::bucket_word::BucketWord;
use self::evicted::Evicted;
use self::window_map::{LockedShards, WindowMap};
use super::{Operation, Store, Tier, TierDecisions};
use crate::algorithm::{decide_bucket, peek_bucket, token_bucket};
#[cfg(feature = "redis")]
use crate::decision::Verdict;
use crate::decision::{DecidedBy, Decision};
use crate::hash::{Tag, TagMaker};
use crate::quota::{Algorithm, Quota};
use crate::sync::Backoff;
use crate::time::{Clock, HORIZON_US, SystemClock};

/// How large the store may grow.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOptions {
    /// The most buckets that are held in words (token and leaky buckets: 16 bytes
    /// each), and again the most in windows (the other algorithms,
    /// which take more; a log counts as one bucket for every four requests that it
    /// has room for). Where buckets are evicted, their debts take 4 bytes more for
    /// each bucket in words, and 16 for each in windows, once for every capacity in
    /// time that rules give to buckets which were evicted.
    pub max_buckets: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { max_buckets: 1_000_000 }
    }
}

/// What the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// Buckets that owe something.
    pub buckets: usize,
    /// The most buckets in words, and the most in windows.
    pub buckets_max: usize,
    /// Buckets evicted at the bound since the start.
    pub evicted: u64,
}

/// Buckets in this process.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    tags: TagMaker,
    table: BucketTable,
    windows: WindowMap,
    buckets_max: usize,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self::with_clock(options, SystemClock::new())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(MemoryOptions::default())
    }
}

impl<C: Clock> MemoryStore<C> {
    /// An empty store on a clock of the caller's choice.
    #[must_use]
    pub fn with_clock(options: MemoryOptions, clock: C) -> Self {
        Self {
            clock,
            tags: TagMaker::default(),
            table: BucketTable::new(options.max_buckets),
            windows: WindowMap::new(options.max_buckets),
            buckets_max: options.max_buckets,
        }
    }

    /// The store's clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Frees the memory of windows that have passed. Optional: the store does so itself
    /// while it adds buckets, and is bounded in any case. For stores that are idle for a
    /// long time after many windows were counted.
    pub fn sweep(&self) {
        self.windows.sweep(self.clock.now_us());
    }

    /// What the store holds now. Reads the whole table.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let (held, evicted) = self.windows.counts();
        let now_us = self.clock.now_us();
        MemoryStats {
            buckets: self.table.live(now_us) + held,
            buckets_max: self.buckets_max,
            evicted: self.table.evicted() + evicted,
        }
    }

    /// Applies `operation` to all `tiers` at one instant, without waiting.
    pub fn apply_now(&self, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        let mut answer = TierDecisions::new();
        self.apply_into(operation, tiers, &mut answer);
        answer
    }

    /// The same, into an empty answer.
    #[inline]
    fn apply_into(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) {
        answer.by = DecidedBy::Memory;
        match (operation, tiers) {
            (Operation::Take, [tier]) => {
                let (decision, at_us) = self.take_one(tier);
                answer.decisions.push(decision);
                answer.at_us = at_us;
            }
            (Operation::Take, _) => self.take_all(tiers, answer),
            _ => self.apply_other(operation, tiers, answer),
        }
    }

    fn apply_other(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) {
        let mut locked = self.lock_windows(tiers);
        answer.at_us = self.clock.now_us();
        for tier in tiers {
            let (quota, tag, cost) = (tier.quota, self.tag(tier), tier.cost);
            let decision = match operation {
                Operation::Peek => self.peek(quota, tag, cost, &mut locked, answer.at_us),
                Operation::Record => {
                    let (decision, at_us, cut_off) = self.record(quota, tag, cost, &mut locked);
                    answer.at_us = at_us;
                    answer.cut_off = answer.cut_off.saturating_add(cut_off);
                    decision
                }
                _ => {
                    let (decision, at_us) = self.refund_charge_or_reset(operation, quota, tag, cost, &mut locked);
                    answer.at_us = at_us;
                    decision
                }
            };
            answer.decisions.push(decision);
        }
    }

    #[inline]
    fn tag(&self, tier: &Tier<'_>) -> Tag {
        self.tags.tag(tier.bucket_hash(), tier.subject)
    }

    /// Locks the windows that the tiers need. The clock is read under the locks:
    /// no other request can have seen a later time.
    #[inline]
    fn lock_windows(&self, tiers: &[Tier<'_>]) -> LockedShards<'_> {
        if tiers.iter().all(|tier| fits_in_word(tier.quota)) {
            return LockedShards::default();
        }
        let windowed = tiers.iter().filter(|tier| !fits_in_word(tier.quota));
        self.windows.lock(windowed.map(|tier| self.tag(tier)))
    }

    /// The same for one bucket.
    #[inline]
    fn lock_window(&self, quota: &Quota, tag: Tag) -> LockedShards<'_> {
        if fits_in_word(quota) { LockedShards::default() } else { self.windows.lock(std::iter::once(tag)) }
    }

    /// The common case, one tier: returns the decision and its time.
    #[inline(always)]
    pub fn take_one(&self, tier: &Tier<'_>) -> (Decision, u64) {
        self.take_tagged(tier.quota, self.tag(tier), tier.cost)
    }

    /// The tag of a key's only bucket.
    #[inline]
    pub(crate) fn key_tag<K: Hash + ?Sized>(&self, quota: &Quota, key: &K) -> Tag {
        self.tags.key(quota.arithmetic, key)
    }

    /// Takes from the bucket of that tag; returns the decision and its time.
    #[inline(always)]
    pub(crate) fn take_tagged(&self, quota: &Quota, tag: Tag, cost: u64) -> (Decision, u64) {
        // The common path first, so that this stays small enough to be inlined into the
        // caller, and computes only what that uses.
        if quota.algorithm == Algorithm::TokenBucket {
            if let Some((at, seen)) = self.table.find_at_home(tag).filter(|(_, seen)| !seen.is_locked()) {
                // Read after the word, so that the word is never of a later time.
                let now_us = self.clock.now_us();
                let state = seen.state();
                let (decision, next) = token_bucket::decide(quota, state, now_us, cost);
                if next == state || self.table.swap(at, seen, BucketWord::of(quota, next)) {
                    return (decision, now_us);
                }
            }
        }
        self.take_slow_path(quota, tag, cost)
    }

    /// Applies any other operation to the bucket of that tag, or a take.
    pub(crate) fn apply_tagged(&self, operation: Operation, quota: &Quota, tag: Tag, cost: u64) -> Decision {
        if operation == Operation::Take {
            return self.take_tagged(quota, tag, cost).0;
        }
        let mut locked = self.lock_window(quota, tag);
        match operation {
            Operation::Peek => self.peek(quota, tag, cost, &mut locked, self.clock.now_us()),
            Operation::Record => self.record(quota, tag, cost, &mut locked).0,
            _ => self.refund_charge_or_reset(operation, quota, tag, cost, &mut locked).0,
        }
    }

    /// Raises a bucket's debt to what returns in `owed_us`, if it owes less, as reported
    /// by another owner of the limit.
    #[cfg(feature = "redis")]
    pub(crate) fn raise_debt(&self, tier: &Tier<'_>, owed_us: u64) {
        let (quota, tag) = (tier.quota, self.tag(tier));
        let owed = owed_us * quota.ticks_per_us;
        let _ = self.update_word(quota, tag, 1, |state, now_us| {
            let raised = token_bucket::raise(quota, state, now_us, owed);
            (Decision::undecided(quota.limit, Verdict::Allowed), raised)
        });
    }

    /// Raises what a window has counted to `used`, if that is less.
    #[cfg(feature = "redis")]
    pub(crate) fn raise_count(&self, tier: &Tier<'_>, used: u64) {
        let (quota, tag) = (tier.quota, self.tag(tier));
        let mut locked = self.lock_window(quota, tag);
        let now_us = self.clock.now_us();
        if let Some(shard) = self.windows.shard_mut(&mut locked, tag) {
            let known = shard.peek(tag, quota, now_us, 0).used();
            if known < used {
                let _ = shard.record(tag, quota, now_us, used - known);
            }
        }
    }

    /// The general case of one bucket.
    #[inline(never)]
    fn take_slow_path(&self, quota: &Quota, tag: Tag, cost: u64) -> (Decision, u64) {
        let mut locked = self.lock_window(quota, tag);
        let Some(shard) = self.windows.shard_mut(&mut locked, tag) else {
            return self.update_word(quota, tag, cost, |state, now_us| decide_bucket(quota, state, now_us, cost));
        };
        let now_us = self.clock.now_us();
        if cost == 0 {
            // A take of nothing that passes adds no bucket.
            let decision = shard.peek(tag, quota, now_us, 0);
            if decision.is_allowed() {
                return (decision, now_us);
            }
        }
        (shard.take(tag, quota, now_us, cost), now_us)
    }

    /// Changes one word by a pure function of its state and the time; returns that
    /// function's result, and the time.
    #[inline]
    fn update_word(
        &self,
        quota: &Quota,
        tag: Tag,
        cost: u64,
        change: impl Fn(token_bucket::State, u64) -> (Decision, token_bucket::State),
    ) -> (Decision, u64) {
        let mut backoff = Backoff::default();
        loop {
            let Some((at, seen)) = self.table.find(tag) else {
                match self.insert_word(quota, tag, cost, &change) {
                    Some(done) => return done,
                    None => continue,
                }
            };
            if seen.is_locked() {
                backoff.wait();
                continue;
            }
            // Read after the word, so that the word is never of a later time.
            let now_us = self.clock.now_us();
            let state = seen.state();
            let (decision, next) = change(state, now_us);
            if next == state || self.table.swap(at, seen, BucketWord::of(quota, next)) {
                return (decision, now_us);
            }
        }
    }

    /// Changes a bucket that was absent; `None` if it no longer is.
    #[cold]
    fn insert_word(
        &self,
        quota: &Quota,
        tag: Tag,
        cost: u64,
        change: impl Fn(token_bucket::State, u64) -> (Decision, token_bucket::State),
    ) -> Option<(Decision, u64)> {
        let mut done = None;
        let inserted = self.table.insert(tag, |evicted| {
            let now_us = self.clock.now_us();
            let state = evicted.state(quota, now_us);
            let (decision, next) = change(state, now_us);
            done = Some((decision, now_us));
            (now_us, initial_word(quota, cost, &decision, next))
        });
        if matches!(inserted, InsertResult::Lost) { None } else { done }
    }

    fn peek(&self, quota: &Quota, tag: Tag, cost: u64, locked: &mut LockedShards<'_>, now_us: u64) -> Decision {
        if let Some(shard) = self.windows.shard_mut(locked, tag).filter(|_| !fits_in_word(quota)) {
            return shard.peek(tag, quota, now_us, cost);
        }
        let state = match self.table.find(tag) {
            Some((_, seen)) => seen.unlocked().state(),
            None => self.table.inherited(tag).state(quota, now_us),
        };
        peek_bucket(quota, state, now_us, cost)
    }

    /// Records use of one bucket; returns its time, and what was not charged.
    fn record(&self, quota: &Quota, tag: Tag, cost: u64, locked: &mut LockedShards<'_>) -> (Decision, u64, u64) {
        if let Some(shard) = self.windows.shard_mut(locked, tag).filter(|_| !fits_in_word(quota)) {
            let now_us = self.clock.now_us();
            let (decision, cut_off) = shard.record(tag, quota, now_us, cost);
            return (decision, now_us, cut_off);
        }
        let cut_off = Cell::new(0);
        let (decision, at_us) = self.update_word(quota, tag, cost, |state, now_us| {
            let (decision, next, rest) = token_bucket::record(quota, state, now_us, cost);
            cut_off.set(rest);
            (decision, next)
        });
        (decision, at_us, cut_off.get())
    }

    /// Refunds, charges or resets one bucket; returns its time.
    fn refund_charge_or_reset(
        &self,
        operation: Operation,
        quota: &Quota,
        tag: Tag,
        cost: u64,
        locked: &mut LockedShards<'_>,
    ) -> (Decision, u64) {
        if let Some(shard) = self.windows.shard_mut(locked, tag).filter(|_| !fits_in_word(quota)) {
            let now_us = self.clock.now_us();
            let decision = match operation {
                Operation::Reset => shard.reset(tag, quota, now_us),
                Operation::Charge => shard.charge(tag, quota, now_us, cost),
                _ => shard.refund(tag, quota, now_us, cost),
            };
            return (decision, now_us);
        }
        if operation == Operation::Charge {
            return self
                .update_word(quota, tag, cost, |state, now_us| token_bucket::charge(quota, state, now_us, cost));
        }
        let mut backoff = Backoff::default();
        loop {
            let found = self.table.find(tag);
            let evicted = self.table.inherited(tag);
            // Read after the word, so that the word is never of a later time.
            let now_us = self.clock.now_us();
            // If the sketch would restore an evicted bucket's debt, a new bucket is written
            // explicitly; it remains until its slot is needed.
            let reset = evicted
                .is_owing(quota, now_us)
                .then(|| now_us.min(HORIZON_US) * quota.ticks_per_us + quota.owed_initially);
            let Some((at, seen)) = found else {
                let state = evicted.state(quota, now_us);
                let (decision, next) = match operation {
                    Operation::Reset => (token_bucket::peek(quota, reset, now_us, 0), reset),
                    _ => token_bucket::refund(quota, state, now_us, cost),
                };
                if next.is_none() || next == state {
                    return (decision, now_us);
                }
                let is_same = |now: &Evicted| *now == evicted;
                let initial_word = |now| (now_us, Some(now).filter(is_same).map(|_| BucketWord::of(quota, next)));
                if let InsertResult::Done(..) = self.table.insert(tag, initial_word) {
                    return (decision, now_us);
                }
                backoff.wait();
                continue;
            };
            if seen.is_locked() {
                backoff.wait();
                continue;
            }
            let (decision, next) = match operation {
                Operation::Reset => (token_bucket::peek(quota, reset, now_us, 0), reset),
                _ => token_bucket::refund(quota, seen.state(), now_us, cost),
            };
            if self.table.swap(at, seen, BucketWord::of(quota, next)) {
                return (decision, now_us);
            }
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> impl Future<Output = TierDecisions> + Send {
        ready(self.apply_now(operation, tiers))
    }

    #[inline]
    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        self.apply_into(operation, tiers, answer);
        true
    }
}

#[inline]
fn fits_in_word(quota: &Quota) -> bool {
    quota.algorithm.is_bucket()
}

/// The first word of a bucket that was absent, from its decision and next state. An
/// inherited debt is written even if the request is denied, so that it drains from
/// now on, whatever others add to the sketch.
fn initial_word(quota: &Quota, cost: u64, decision: &Decision, next: token_bucket::State) -> Option<BucketWord> {
    next.filter(|_| cost > 0).map(|_| BucketWord::of(quota, next).with_denied_at_insert(!decision.is_allowed()))
}

#[cfg(all(test, checkdam_loom))]
mod loom_models;
