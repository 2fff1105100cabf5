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

/// What one tier answers by itself, and what its word would become.
#[derive(Clone, Copy)]
struct Plan {
    tag: Tag,
    spot: Spot,
    state: token_bucket::State,
    decision: Decision,
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
        let mut spots: SmallVec<[(Tag, Spot); TIERS_INLINE]> = SmallVec::new();
        for tier in tiers {
            let tag = self.tag(tier);
            spots.push((tag, self.spot(tag, tier.quota)?));
        }
        let now_us = self.clock.now_us();
        let mut plans: Plans = SmallVec::new();
        for (tier, (tag, spot)) in tiers.iter().zip(spots) {
            plans.push(self.plan(tier, tag, spot, locked, now_us)?);
        }
        let denied = Groups::denied(tiers, plans.iter().map(|plan| plan.decision.is_allowed()));
        let charged = |tier: &Tier<'_>| denied.is_charged(tier);
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            // What a tier that denies keeps is no charge, but its own time.
            if plan.decision.is_allowed() && !charged(tier) && !matches!(plan.spot, Spot::Window) {
                plan.next = None;
                plan.decision = peek(tier.quota, plan.state, now_us, tier.cost);
            }
        }
        self.write_words(tiers, &mut plans, now_us)?;
        for (tier, plan) in tiers.iter().zip(&mut plans) {
            if matches!(plan.spot, Spot::Window)
                && (charged(tier) || !plan.decision.is_allowed())
                && let Some(shard) = self.windows.of(locked, plan.tag)
            {
                plan.decision = shard.take(plan.tag, tier.quota, now_us, tier.cost);
            }
        }
        Some(answer(plans.into_iter().map(|plan| plan.decision).collect(), now_us))
    }

    /// Where a bucket stands; `None` if another request holds it right now.
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

    fn plan(&self, tier: &Tier<'_>, tag: Tag, spot: Spot, locked: &mut Locked<'_>, now_us: u64) -> Option<Plan> {
        let state = match spot {
            Spot::Window => {
                let decision = self.windows.of(locked, tag)?.peek(tag, tier.quota, now_us, tier.cost);
                return Some(Plan { tag, spot, state: None, decision, next: None });
            }
            Spot::Present { seen, .. } => seen.state(tier.quota),
            Spot::Absent { inherited_us } => inherited(tier.quota, inherited_us, now_us),
        };
        let (decision, next) = decide(tier.quota, state, now_us, tier.cost);
        let next = (next != state).then(|| Word::of(tier.quota, next));
        Some(Plan { tag, spot, state, decision, next })
    }

    /// Writes every planned word at once: locks all of them, those that exist
    /// before those that must be added, then writes. `None`, with everything as
    /// it was, if one has changed since it was planned.
    fn write_words(&self, tiers: &[Tier<'_>], plans: &mut Plans, now_us: u64) -> Option<()> {
        let mut order: SmallVec<[usize; TIERS_INLINE]> =
            (0..plans.len()).filter(|index| plans[*index].next.is_some()).collect();
        order.sort_unstable_by_key(|index| match plans[*index].spot {
            Spot::Present { at, .. } => (0, Some(at), 0),
            Spot::Absent { .. } | Spot::Window => (1, None, plans[*index].tag),
        });
        for (held, index) in order.iter().enumerate() {
            if !self.lock_word(tiers[*index].quota, &mut plans[*index], now_us) {
                for index in &order[..held] {
                    if let Spot::Present { at, seen } = plans[*index].spot {
                        self.table.unlock(at, seen, seen);
                    }
                }
                return None;
            }
        }
        for index in order {
            if let (Spot::Present { at, seen }, Some(next)) = (plans[index].spot, plans[index].next) {
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
