//! Requests of several tiers: all tiers are charged, or none.
//!
//! Windows are locked first, in a fixed order. Words are read and decided without
//! locks; if the request passes, every word that it changes is locked if it still has
//! the value that was read, and only then are all of them written. No thread waits
//! for a word while it holds another: if a word has changed, or there is no slot for
//! a new one, the thread releases its locks and starts again.
//!
//! The common case, a request that passes and has only words that exist, is tried
//! first by a shorter path.

use smallvec::SmallVec;

use super::bucket_table::{InsertResult, Position, STALE_MAX_US};
use super::bucket_word::BucketWord;
use super::evicted::Evicted;
use super::window_map::LockedShards;
use super::{MemoryStore, fits_in_word, initial_word};
use crate::algorithm::{decide_bucket, peek_bucket, token_bucket};
use crate::decision::Decision;
use crate::hash::Tag;
use crate::quota::Quota;
use crate::store::{DeniedGroups, TIERS_INLINE, Tier, TierDecisions};
use crate::sync::Backoff;
use crate::time::Clock;

/// What is known of one tier's bucket, and the next value of its word.
#[derive(Clone, Copy)]
struct TierPlan {
    tag: Tag,
    location: BucketLocation,
    state: token_bucket::State,
    next: Option<BucketWord>,
}

/// Where a tier's bucket was found.
#[derive(Clone, Copy)]
enum BucketLocation {
    Window,
    Absent { evicted: Evicted },
    Present { at: Position, seen: BucketWord },
}

type TierPlans = SmallVec<[TierPlan; TIERS_INLINE]>;

/// A word that is there, and what it becomes.
#[derive(Clone, Copy, Default)]
struct FoundWord {
    at: Position,
    seen: BucketWord,
    next: BucketWord,
}

impl<C: Clock> MemoryStore<C> {
    pub(super) fn take_all(&self, tiers: &[Tier<'_>], answer: &mut TierDecisions) {
        if self.take_words(tiers, answer).is_some() {
            return;
        }
        if self.has_duplicates(tiers) {
            *answer = TierDecisions::unavailable(tiers);
            return;
        }
        let mut backoff = Backoff::default();
        loop {
            answer.decisions.clear();
            let mut locked = self.lock_windows(tiers);
            if self.try_take_all(tiers, &mut locked, answer).is_some() {
                return;
            }
            drop(locked);
            backoff.wait();
        }
    }

    /// The common case: every tier has a word, which is there, and lets the
    /// request pass. `None`, with nothing done, if it is not so, or if another
    /// request changed a word meanwhile.
    #[inline]
    fn take_words(&self, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> Option<()> {
        let mut tags = [0; TIERS_INLINE];
        let mut found = [FoundWord::default(); TIERS_INLINE];
        let (tags, found) = (tags.get_mut(..tiers.len())?, &mut found[..tiers.len()]);
        self.tag_all(tiers, tags);
        // No dependencies between one load and the next, so that the processor waits for all
        // of them at once.
        for ((tier, tag), word) in tiers.iter().zip(tags).zip(&mut *found) {
            (word.at, word.seen) = self.table.find_at_home(*tag)?;
            if word.seen.is_locked() || !fits_in_word(tier.quota) || tier.cost == 0 {
                return None;
            }
        }
        answer.at_us = self.clock.now_us();
        for (tier, word) in tiers.iter().zip(&mut *found) {
            let (decision, next) = decide_bucket(tier.quota, word.seen.state(), answer.at_us, tier.cost);
            if !decision.is_allowed() {
                return None;
            }
            word.next = BucketWord::of(tier.quota, next);
            answer.decisions.push(decision);
        }
        if !found.is_sorted_by_key(|word| word.at) {
            found.sort_unstable_by_key(|word| word.at);
        }
        // The last is not locked: no thread can intervene between its swap and the rest.
        let (last, others) = found.split_last()?;
        let unlock = |words: &[FoundWord], is_taken: bool| {
            for FoundWord { at, seen, next } in words {
                self.table.unlock(*at, *seen, if is_taken { *next } else { *seen });
            }
        };
        for (held, FoundWord { at, seen, .. }) in others.iter().enumerate() {
            if !self.table.swap(*at, *seen, seen.locked()) {
                unlock(&others[..held], false);
                return None;
            }
        }
        let is_taken = self.table.swap(last.at, last.seen, last.next);
        unlock(others, is_taken);
        is_taken.then_some(())
    }

    /// One attempt; `None` if another request changed a bucket meanwhile. The
    /// clock is read after the buckets: no state is younger than the decision.
    fn try_take_all(
        &self,
        tiers: &[Tier<'_>],
        locked: &mut LockedShards<'_>,
        answer: &mut TierDecisions,
    ) -> Option<()> {
        let mut tags = SmallVec::<[Tag; TIERS_INLINE]>::from_elem(0, tiers.len());
        self.tag_all(tiers, &mut tags);
        let new = |tag| TierPlan { tag, location: BucketLocation::Window, state: None, next: None };
        let mut plans: TierPlans = tags.into_iter().map(new).collect();
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            plan.location = self.locate(plan.tag, tier.quota)?;
        }
        let now_us = self.clock.now_us();
        answer.at_us = now_us;
        let decisions = &mut answer.decisions;
        let mut passes = true;
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            let decision = self.decide_tier(tier, plan, locked, now_us)?;
            passes &= decision.is_allowed() && tier.cost > 0;
            decisions.push(decision);
        }
        let denied = (!passes).then(|| DeniedGroups::new(tiers, decisions.iter().map(Decision::is_allowed)));
        if let Some(denied) = &denied {
            for ((tier, plan), decision) in tiers.iter().zip(&mut plans).zip(decisions.iter_mut()) {
                // What a tier that denies keeps is no charge, but its own time.
                if decision.is_allowed() && !denied.is_charged(tier) && !matches!(plan.location, BucketLocation::Window)
                {
                    plan.next = None;
                    *decision = peek_bucket(tier.quota, plan.state, now_us, tier.cost);
                }
            }
        }
        self.write_words(tiers, &mut plans, now_us)?;
        for ((tier, plan), decision) in tiers.iter().zip(&plans).zip(decisions.iter_mut()) {
            let is_written = matches!(plan.location, BucketLocation::Window)
                && (!decision.is_allowed() || denied.as_ref().is_none_or(|denied| denied.is_charged(tier)));
            if let Some(shard) = self.windows.shard_mut(locked, plan.tag).filter(|_| is_written) {
                *decision = shard.take(plan.tag, tier.quota, now_us, tier.cost);
            }
        }
        Some(())
    }

    /// Whether two tiers are one bucket, which could not be charged as a whole:
    /// the first of them changes or locks what the second one reads.
    fn has_duplicates(&self, tiers: &[Tier<'_>]) -> bool {
        if tiers.len() < 2 {
            return false;
        }
        let mut tags = SmallVec::<[Tag; TIERS_INLINE]>::from_elem(0, tiers.len());
        self.tag_all(tiers, &mut tags);
        tags.sort_unstable();
        tags.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// The tags of all tiers; what a subject's have in common is made once.
    #[inline]
    fn tag_all(&self, tiers: &[Tier<'_>], tags: &mut [Tag]) {
        let mut last: Option<(&[u8], u64)> = None;
        for (tier, tag) in tiers.iter().zip(tags) {
            let subject = match last {
                Some((same, subject)) if std::ptr::eq(same, tier.subject) => subject,
                _ => self.tags.subject(tier.subject),
            };
            last = Some((tier.subject, subject));
            *tag = self.tags.tag_of(tier.bucket_hash(), subject);
        }
    }

    /// The slot of a bucket; `None` if another request has locked it.
    #[inline]
    fn locate(&self, tag: Tag, quota: &Quota) -> Option<BucketLocation> {
        if !fits_in_word(quota) {
            return Some(BucketLocation::Window);
        }
        match self.table.find(tag) {
            Some((_, seen)) if seen.is_locked() => None,
            Some((at, seen)) => Some(BucketLocation::Present { at, seen }),
            None => Some(BucketLocation::Absent { evicted: self.table.inherited(tag) }),
        }
    }

    /// The decision of the tier by itself.
    #[inline]
    fn decide_tier(
        &self,
        tier: &Tier<'_>,
        plan: &mut TierPlan,
        locked: &mut LockedShards<'_>,
        now_us: u64,
    ) -> Option<Decision> {
        plan.state = match plan.location {
            BucketLocation::Window => {
                return Some(self.windows.shard_mut(locked, plan.tag)?.peek(plan.tag, tier.quota, now_us, tier.cost));
            }
            BucketLocation::Present { seen, .. } => seen.state(),
            BucketLocation::Absent { evicted } => evicted.state(tier.quota, now_us),
        };
        let (decision, next) = decide_bucket(tier.quota, plan.state, now_us, tier.cost);
        if let BucketLocation::Absent { .. } = plan.location {
            plan.next = initial_word(tier.quota, tier.cost, &decision, next);
        } else if next != plan.state {
            plan.next = Some(BucketWord::of(tier.quota, next));
        }
        Some(decision)
    }

    /// Writes all planned words atomically: locks all of them, existing ones before those
    /// that must be added, then writes. `None`, with everything as it was, if one has
    /// changed since it was planned.
    fn write_words(&self, tiers: &[Tier<'_>], plans: &mut TierPlans, now_us: u64) -> Option<()> {
        let mut order: SmallVec<[(u64, usize); TIERS_INLINE]> = SmallVec::new();
        for (index, plan) in plans.iter().enumerate() {
            if plan.next.is_some() {
                order.push((plan.location.rank(plan.tag), index));
            }
        }
        if !order.is_sorted() {
            order.sort_unstable();
        }
        for (held, (_, index)) in order.iter().enumerate() {
            if !self.lock_word(tiers[*index].quota, &mut plans[*index], now_us) {
                for (_, index) in &order[..held] {
                    if let BucketLocation::Present { at, seen } = plans[*index].location {
                        self.table.unlock(at, seen, seen);
                    }
                }
                return None;
            }
        }
        for (_, index) in &order {
            if let (BucketLocation::Present { at, seen }, Some(next)) = (plans[*index].location, plans[*index].next) {
                self.table.unlock(at, seen, next);
            }
        }
        Some(())
    }

    /// Locks a planned word in its slot, or adds it, locked.
    fn lock_word(&self, quota: &Quota, plan: &mut TierPlan, now_us: u64) -> bool {
        match plan.location {
            BucketLocation::Window => true,
            BucketLocation::Present { at, seen } => self.table.swap(at, seen, seen.locked()),
            BucketLocation::Absent { evicted: planned } => {
                let is_denied_at_insert = plan.next.is_some_and(BucketWord::is_denied_at_insert);
                let seen =
                    BucketWord::of(quota, planned.state(quota, now_us)).with_denied_at_insert(is_denied_at_insert);
                let inserted = self.table.insert(plan.tag, |evicted| {
                    // If the bucket was added and evicted since it was looked up, its debt is recorded,
                    // unless that took very long.
                    let is_fresh = self.clock.now_us() <= now_us + STALE_MAX_US;
                    (now_us, (is_fresh && evicted == planned).then(|| seen.locked()))
                });
                let InsertResult::Done(at, word) = inserted else { return false };
                plan.location = BucketLocation::Present { at, seen: word.unlocked() };
                true
            }
        }
    }
}

impl BucketLocation {
    /// The lock order of words: existing ones by slot, then those to be added.
    #[inline]
    fn rank(self, tag: Tag) -> u64 {
        match self {
            Self::Present { at, .. } => at.rank(),
            Self::Absent { .. } | Self::Window => 1 << 63 | tag >> 1,
        }
    }
}
