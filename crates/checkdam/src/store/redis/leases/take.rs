//! A take of which some or all tiers are prepaid.
//!
//! Prepaid tokens are reserved first, and put back if another tier denies. So the
//! tiers that Redis decides are still one call, and need not share a slot with the
//! others.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::run_to_completion::{OwnedTiers, RunToCompletion};
use super::super::{RedisStore, not_decided};
use super::{Leases, Purchase, TierPayment, decision, terms};
use crate::decision::{DecidedBy, Decision, Verdict};
use crate::lease::Spend;
use crate::store::{Decisions, DeniedGroups, Operation, TIERS_INLINE, Tier, TierDecisions};

/// What was paid here for a request that is not decided yet: put back unless it
/// is kept, also when the request is dropped.
struct Reserved<L: Deref<Target = Leases>> {
    leases: L,
    /// With the index of the tier.
    paid: SmallVec<[(usize, Purchase); TIERS_INLINE]>,
}

impl<L: Deref<Target = Leases>> Reserved<L> {
    fn new(leases: L) -> Self {
        Self { leases, paid: SmallVec::new() }
    }

    fn keep_if(&mut self, is_kept: impl Fn(usize) -> bool) {
        self.paid.retain(|(place, _)| !is_kept(*place));
    }
}

impl<L: Deref<Target = Leases>> Drop for Reserved<L> {
    #[inline]
    fn drop(&mut self) {
        for (_, bought) in &self.paid {
            self.leases.table().accounts.account(bought.number).put_back(bought.paid.receipt);
        }
    }
}

impl RedisStore {
    /// Decides a take without Redis: all of it is prepaid here, or one of its tiers is
    /// known to deny. `false`, with nothing done, if Redis is needed.
    #[inline]
    pub(in super::super) fn try_take_now(&self, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        let is_decided = self.spend_all(tiers, answer).is_some();
        if !is_decided {
            answer.decisions.clear();
        }
        is_decided
    }

    #[inline]
    fn spend_all(&self, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> Option<()> {
        self.leases.table.get()?;
        let mut reserved = Reserved::new(&*self.leases);
        answer.by = DecidedBy::Lease;
        for (place, tier) in tiers.iter().enumerate() {
            terms(tier)?;
            let (table, number, tag) = self.leases.find(tier)?;
            match self.leases.spend(table, (number, tag), tier.cost) {
                Ok(bought) => {
                    if bought.paid.is_low {
                        self.refill_ahead(tier, (number, tag), bought.paid.at_us);
                    }
                    answer.at_us = bought.at_us;
                    let account = table.accounts.account(number);
                    answer.decisions.push(decision(tier, account, bought.paid.left, bought.paid.at_us));
                    if place + 1 < tiers.len() {
                        reserved.paid.push((place, bought));
                    }
                }
                Err(Spend::Insufficient) if tier.group == 0 => {
                    let (steady_us, now_us) = self.leases.clock.read();
                    let wait_us = table.accounts.account(number).denied_for_us(tier.cost, steady_us)?;
                    table.deny(number, tier.cost);
                    answer.decisions.push(self.denied(tier, number, wait_us));
                    answer.decisions.extend(tiers[place + 1..].iter().map(not_decided));
                    answer.at_us = now_us;
                    return Some(());
                }
                Err(_) => return None,
            }
        }
        reserved.paid.clear();
        Some(())
    }

    /// Decides a take of which some tiers are prepaid here, or could be.
    pub(in super::super) async fn take_leased(&self, tiers: &[Tier<'_>]) -> TierDecisions {
        let deadline = Instant::now() + self.deadline();
        let mut reserved = Reserved::new(&*self.leases);
        let mut decisions: SmallVec<[Option<Decision>; TIERS_INLINE]> = tiers.iter().map(|_| None).collect();
        let (mut has_failed, mut is_denied) = (false, false);
        for (place, tier) in tiers.iter().enumerate() {
            if !self.is_spent_here(tiers, tier) {
                continue;
            }
            match self.pay(tier, deadline).await {
                TierPayment::Paid(bought) => reserved.paid.push((place, bought)),
                TierPayment::Denied { number, wait_us } => {
                    decisions[place] = Some(self.denied(tier, number, wait_us));
                    is_denied |= tier.group == 0;
                }
                TierPayment::Direct => {}
                TierPayment::Failed => has_failed = true,
            }
            if is_denied {
                break;
            }
        }
        if !is_denied {
            for (place, Purchase { number, paid, .. }) in &reserved.paid {
                let account = self.leases.table().accounts.account(*number);
                decisions[*place] = Some(decision(&tiers[*place], account, paid.left, paid.at_us));
            }
        }
        let rest = (!is_denied && decisions.contains(&None)).then_some((has_failed, deadline));
        if rest.is_none() || reserved.paid.is_empty() {
            return self.complete_take(tiers, decisions, reserved, rest).await;
        }
        // What was paid here and what Redis charges belong together, also if the
        // caller leaves meanwhile.
        let mut owned = Reserved::new(Arc::clone(&self.leases));
        owned.paid = std::mem::take(&mut reserved.paid);
        let (store, tiers) = (self.clone(), OwnedTiers::new(tiers));
        let completing = async move { store.complete_take(&tiers.tiers(), decisions, owned, rest).await };
        RunToCompletion::new(&self.runtime, completing).await
    }

    /// Has the `rest` decided, if there is one, and keeps what was paid here if all
    /// passes.
    async fn complete_take<L: Deref<Target = Leases> + Send>(
        &self,
        tiers: &[Tier<'_>],
        mut decisions: SmallVec<[Option<Decision>; TIERS_INLINE]>,
        mut reserved: Reserved<L>,
        rest: Option<(bool, Instant)>,
    ) -> TierDecisions {
        let (mut by, mut at_us) = (DecidedBy::Lease, self.leases.clock.read().1);
        if let Some(rest) = rest {
            let rest = self.take_rest(tiers, &mut decisions, rest).await;
            (by, at_us) = (rest.by, rest.at_us);
        }
        let decisions: Decisions =
            decisions.into_iter().zip(tiers).map(|(known, tier)| known.unwrap_or_else(|| not_decided(tier))).collect();
        let denied = DeniedGroups::new(tiers, decisions.iter().map(Decision::is_allowed));
        reserved.keep_if(|place| denied.is_charged(&tiers[place]));
        TierDecisions { decisions, at_us, by, cut_off: 0 }
    }

    /// Decides the tiers that were not paid here: by Redis, or by their failure policies
    /// if it has just failed to reply.
    async fn take_rest(
        &self,
        tiers: &[Tier<'_>],
        decisions: &mut [Option<Decision>],
        (has_failed, deadline): (bool, Instant),
    ) -> TierDecisions {
        let rest = undecided(tiers, decisions);
        let answer = if has_failed {
            self.fallback.apply(Operation::Take, &rest, &self.keys)
        } else {
            self.apply_direct(Operation::Take, &rest, deadline).await
        };
        if answer.by == DecidedBy::Redis {
            rest.iter().for_each(|tier| self.leases.note(tier));
        }
        let mut answered = answer.decisions.iter().copied();
        for known in decisions.iter_mut().filter(|known| known.is_none()) {
            *known = answered.next();
        }
        answer
    }

    /// Gives back what was charged in Redis, and nothing of what has an account
    /// here.
    pub(in super::super) async fn refund_leased(&self, tiers: &[Tier<'_>]) -> TierDecisions {
        let kept: SmallVec<[Option<Decision>; TIERS_INLINE]> =
            tiers.iter().map(|tier| tier.lease.and_then(|_| self.leases.standing(tier))).collect();
        let rest = undecided(tiers, &kept);
        let (by, at_us) = (DecidedBy::Lease, self.leases.clock.read().1);
        let answer = if rest.is_empty() {
            TierDecisions { at_us, by, ..TierDecisions::new() }
        } else {
            self.apply_direct(Operation::Refund, &rest, Instant::now() + self.deadline()).await
        };
        let mut answered = answer.decisions.iter().copied();
        let one = |(kept, tier): (Option<Decision>, &Tier<'_>)| {
            kept.or_else(|| answered.next()).unwrap_or_else(|| not_decided(tier))
        };
        TierDecisions { decisions: kept.into_iter().zip(tiers).map(one).collect(), ..answer }
    }

    /// Whether a tier may be paid here: one of a rule in shadow only if all of
    /// that rule can be, since they are charged together or not at all.
    fn is_spent_here(&self, tiers: &[Tier<'_>], tier: &Tier<'_>) -> bool {
        let can_be = |tier: &Tier<'_>| terms(tier).is_some() && self.leases.find(tier).is_some();
        can_be(tier) && (tier.group == 0 || tiers.iter().filter(|other| other.group == tier.group).all(can_be))
    }

    fn denied(&self, tier: &Tier<'_>, number: usize, wait_us: u64) -> Decision {
        let now_us = self.leases.clock.read().0;
        let account = self.leases.table.get().map(|table| table.accounts.account(number));
        let reset_after_us = account.map_or(0, |account| account.shared_bucket(now_us).1);
        let remaining = account.map_or(0, |account| account.held(now_us));
        let (limit, retry_after_us) = (tier.quota.limit(), wait_us.max(1));
        Decision { verdict: Verdict::Denied, limit, remaining, debt: 0, retry_after_us, reset_after_us, delay_us: 0 }
    }
}

/// The tiers of which nothing is known yet.
fn undecided<'a>(tiers: &[Tier<'a>], known: &[Option<Decision>]) -> SmallVec<[Tier<'a>; TIERS_INLINE]> {
    tiers.iter().zip(known).filter(|(_, known)| known.is_none()).map(|(tier, _)| *tier).collect()
}
