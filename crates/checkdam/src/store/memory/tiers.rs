//! Requests of several tiers: all of them charged, or none.
//!
//! Windows are locked first, in one order. Words are read and decided without
//! locks; if the request passes, every word that it changes is locked where it
//! still holds what was read, and only then are they written. Nobody waits for
//! another word while holding one: whoever finds a word changed, or no place for
//! a new one, gives back what it holds and begins anew.

use smallvec::SmallVec;

use super::table::{Insert, Position, STALE_MAX_US};
use super::windows::Locked;
use super::word::Word;
use super::{MemoryStore, answer, decide, inherited, is_word, peek};
use crate::algorithm::token_bucket;
use crate::decision::Decision;
use crate::hash::Tag;
use crate::quota::Quota;
use crate::store::{Answer, Groups, TIERS_INLINE, Tier};
use crate::sync::Backoff;
use crate::time::Clock;

/// What is known of one tier's bucket, and what its word would become.
#[derive(Clone, Copy)]
struct Plan {
    tag: Tag,
    spot: Spot,
    state: token_bucket::State,
    next: Option<Word>,
}

/// Where a tier's bucket was found.
#[derive(Clone, Copy)]
enum Spot {
    Window,
    Absent { inherited_us: u64 },
    Present { at: Position, seen: Word },
}

type Plans = SmallVec<[Plan; TIERS_INLINE]>;
type Decisions = SmallVec<[Decision; TIERS_INLINE]>;

impl<C: Clock> MemoryStore<C> {
    pub(super) fn take_all(&self, tiers: &[Tier<'_>]) -> Answer {
        let mut backoff = Backoff::default();
        loop {
            let mut locked = self.lock_windows(tiers);
            if let Some(answer) = self.try_take_all(tiers, &mut locked) {
                return answer;
            }
            drop(locked);
            backoff.wait();
        }
    }

    /// One attempt; `None` if another request changed a bucket meanwhile. The
    /// clock is read after the buckets: no state is younger than the decision.
    fn try_take_all(&self, tiers: &[Tier<'_>], locked: &mut Locked<'_>) -> Option<Answer> {
        let mut plans = Plans::new();
        self.tag_all(tiers, &mut plans);
        // Nothing stands between one look at memory and the next, so that the
        // processor waits for all of them at once.
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            plan.spot = self.spot(plan.tag, tier.quota)?;
        }
        let now_us = self.clock.now_us();
        let mut decisions = Decisions::new();
        let mut passes = true;
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            let decision = self.plan(tier, plan, locked, now_us)?;
            passes &= decision.is_allowed() && tier.cost > 0;
            decisions.push(decision);
        }
        let denied = (!passes).then(|| Groups::denied(tiers, decisions.iter().map(Decision::is_allowed)));
        if let Some(denied) = &denied {
            for ((tier, plan), decision) in tiers.iter().zip(&mut plans).zip(&mut decisions) {
                // What a tier that denies keeps is no charge, but its own time.
                if decision.is_allowed() && !denied.is_charged(tier) && !matches!(plan.spot, Spot::Window) {
                    plan.next = None;
                    *decision = peek(tier.quota, plan.state, now_us, tier.cost);
                }
            }
        }
        self.write_words(tiers, &mut plans, now_us)?;
        for ((tier, plan), decision) in tiers.iter().zip(&plans).zip(&mut decisions) {
            if matches!(plan.spot, Spot::Window)
                && (!decision.is_allowed() || denied.as_ref().is_none_or(|denied| denied.is_charged(tier)))
                && let Some(shard) = self.windows.of(locked, plan.tag)
            {
                *decision = shard.take(plan.tag, tier.quota, now_us, tier.cost);
            }
        }
        Some(answer(decisions, now_us))
    }

    /// The tags of all tiers; what a subject's have in common is made once.
    #[inline]
    fn tag_all(&self, tiers: &[Tier<'_>], plans: &mut Plans) {
        let mut last: Option<(&[u8], u64)> = None;
        for tier in tiers {
            let subject = match last {
                Some((same, subject)) if std::ptr::eq(same, tier.subject) => subject,
                _ => self.tags.subject(tier.subject),
            };
            last = Some((tier.subject, subject));
            let tag = self.tags.tag_of(tier.bucket.hash(), subject);
            plans.push(Plan { tag, spot: Spot::Window, state: None, next: None });
        }
    }

    /// Where a bucket stands; `None` if another request holds it right now.
    #[inline]
    fn spot(&self, tag: Tag, quota: &Quota) -> Option<Spot> {
        if !is_word(quota) {
            return Some(Spot::Window);
        }
        match self.table.find(tag) {
            Some((_, seen)) if seen.is_locked() => None,
            Some((at, seen)) => Some(Spot::Present { at, seen }),
            None => Some(Spot::Absent { inherited_us: self.table.inherited(tag) }),
        }
    }

    /// What the tier answers by itself.
    #[inline]
    fn plan(&self, tier: &Tier<'_>, plan: &mut Plan, locked: &mut Locked<'_>, now_us: u64) -> Option<Decision> {
        plan.state = match plan.spot {
            Spot::Window => {
                return Some(self.windows.of(locked, plan.tag)?.peek(plan.tag, tier.quota, now_us, tier.cost));
            }
            Spot::Present { seen, .. } => seen.state(tier.quota),
            Spot::Absent { inherited_us } => inherited(tier.quota, inherited_us, now_us),
        };
        let (decision, next) = decide(tier.quota, plan.state, now_us, tier.cost);
        if next != plan.state {
            plan.next = Some(Word::of(tier.quota, next));
        }
        Some(decision)
    }

    /// Writes every planned word at once: locks all of them, those that exist
    /// before those that must be added, then writes. `None`, with everything as
    /// it was, if one has changed since it was planned.
    fn write_words(&self, tiers: &[Tier<'_>], plans: &mut Plans, now_us: u64) -> Option<()> {
        let mut order: SmallVec<[(u64, usize); TIERS_INLINE]> = SmallVec::new();
        for (index, plan) in plans.iter().enumerate() {
            if plan.next.is_some() {
                order.push((plan.spot.rank(plan.tag), index));
            }
        }
        if !order.is_sorted() {
            order.sort_unstable();
        }
        for (held, (_, index)) in order.iter().enumerate() {
            if !self.lock_word(tiers[*index].quota, &mut plans[*index], now_us) {
                for (_, index) in &order[..held] {
                    if let Spot::Present { at, seen } = plans[*index].spot {
                        self.table.unlock(at, seen, seen);
                    }
                }
                return None;
            }
        }
        for (_, index) in &order {
            if let (Spot::Present { at, seen }, Some(next)) = (plans[*index].spot, plans[*index].next) {
                self.table.unlock(at, seen, next);
            }
        }
        Some(())
    }

    /// Locks a planned word where it stands, or adds it, locked.
    fn lock_word(&self, quota: &Quota, plan: &mut Plan, now_us: u64) -> bool {
        match plan.spot {
            Spot::Window => true,
            Spot::Present { at, seen } => self.table.swap(at, seen, seen.locked()),
            Spot::Absent { inherited_us: planned_us } => {
                let seen = Word::of(quota, inherited(quota, planned_us, now_us));
                let inserted = self.table.insert(plan.tag, |inherited_us| {
                    // Had the bucket come and gone since it was looked for, the
                    // sketch would know, unless that took very long.
                    let is_fresh = self.clock.now_us() <= now_us + STALE_MAX_US;
                    (now_us, (is_fresh && inherited_us == planned_us).then(|| seen.locked()))
                });
                let Insert::Done(at, word) = inserted else { return false };
                plan.spot = Spot::Present { at, seen: word.unlocked() };
                true
            }
        }
    }
}

impl Spot {
    /// In which order words are locked: those that exist by their place, then
    /// those that are added.
    #[inline]
    fn rank(self, tag: Tag) -> u64 {
        match self {
            Self::Present { at, .. } => at.rank(),
            Self::Absent { .. } | Self::Window => 1 << 63 | tag >> 1,
        }
    }
}
