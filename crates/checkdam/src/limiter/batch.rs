//! Batches: several requests that pass together or not at all; and refunds of what one was
//! charged.

use std::sync::Arc;

use super::batch_plan::BatchPlan;
use super::{Limiter, Tiers, bound_delays};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::ruleset::RuleSet;
use crate::store::{DeniedGroups, Operation, Store, TIERS_MAX, TierDecisions};

/// The outcomes of requests that were decided together.
#[must_use = "a batch that is ignored limits nothing"]
#[derive(Debug)]
pub struct Batch {
    outcomes: Vec<Outcome>,
    is_allowed: bool,
}

impl Batch {
    /// Whether they pass: all requests that deny individually, and at least one of those
    /// that deny only together, if there are any.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// One a request, in their order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// What of metered costs was not charged because a tier's debt would have exceeded its
    /// `max_debt`, summed over the tiers of all requests.
    #[must_use]
    pub fn cut_off(&self) -> u64 {
        self.outcomes.first().map_or(0, Outcome::cut_off)
    }

    pub(super) fn into_only(mut self) -> Outcome {
        self.outcomes.swap_remove(0)
    }
}

impl<S: Store> Limiter<S> {
    /// Charges every tier that applies to any of the requests, or none. A bucket of
    /// several requests is charged with the sum of their costs. The costs of
    /// [metered](Request::metered) requests are charged also if they are denied; the
    /// outcomes are those before that.
    pub async fn check_batch(&self, requests: &[Request<'_>]) -> Batch {
        match requests {
            [request] if !request.is_metered() && self.rules.load().trees().get(request.domain()).is_none() => {
                // Nothing is to be joined: the short way decides the same.
                let outcome = self.check(request).await;
                Batch { is_allowed: outcome.is_allowed(), outcomes: vec![outcome] }
            }
            // On the heap, so that the short way's future stays small.
            _ => Box::pin(self.apply_batch(Operation::Take, requests, u64::MAX)).await,
        }
    }

    pub(super) async fn apply_batch(&self, operation: Operation, requests: &[Request<'_>], delay_max_us: u64) -> Batch {
        let rules = self.rules.load_full();
        let mut plan = BatchPlan::new(&rules, requests);
        let is_asked = matches!(operation, Operation::Take | Operation::Peek);
        if !is_asked {
            // A banned subject may still be refunded what was charged before.
            plan.forget_bans();
        }
        let is_refused = self.is_banned(&rules, &mut plan).await || plan.is_blocked(&rules);
        let done = if is_refused && operation == Operation::Take { Operation::Peek } else { operation };
        let mut queues = Vec::new();
        let mut tiers = plan.tiers(&rules);
        bound_delays(&mut tiers, &mut queues, delay_max_us);
        let mut answer = TierDecisions::new();
        if tiers.len() > TIERS_MAX {
            answer = TierDecisions::unavailable(&tiers);
        } else if let Some(terms) = plan.terms(&rules, is_refused).filter(|_| operation == Operation::Take) {
            answer = self.store.take_on_terms(&tiers, &terms).await;
        } else if !self.store.try_apply_now(done, &tiers, &mut answer) {
            answer = self.store.apply(done, &tiers).await;
        }
        let is_allowed = plan.is_allowed(&rules, &answer);
        drop(tiers);
        let mut outcomes = plan.outcomes(&rules, answer, done);
        if done == Operation::Take && is_allowed {
            outcomes.iter_mut().for_each(Outcome::note_take);
        }
        Batch { outcomes, is_allowed }
    }

    /// Whether any of the requests is banned now; bans that are over are forgotten.
    async fn is_banned(&self, rules: &Arc<RuleSet>, plan: &mut BatchPlan) -> bool {
        if plan.requests.iter().all(|request| request.ban.is_none()) {
            return false;
        }
        let at_us = self.store.apply(Operation::Peek, &[]).await.at_us;
        for request in &mut plan.requests {
            request.ban = request.ban.filter(|ban| at_us < rules.bans()[*ban as usize].until_us());
        }
        plan.requests.iter().any(|request| request.ban.is_some())
    }

    /// Refunds what `request` was charged when `outcome` was decided: to the same
    /// buckets, whatever rules are active by now, and to no others. Does nothing if
    /// nothing was charged: for denied requests, peeks, refunds, and decisions of a
    /// failure policy. Call at most once for an outcome.
    pub async fn refund_outcome(&self, request: &Request<'_>, outcome: &Outcome) {
        if !outcome.is_charged() {
            return;
        }
        let rules = outcome.rules();
        let plan = BatchPlan::new(rules, std::slice::from_ref(request));
        let mut tiers = plan.tiers(rules);
        // A limit that another request of the same call replaced is last.
        tiers.truncate(outcome.tiers().len());
        let denied = DeniedGroups::new(&tiers, outcome.tiers().map(|tier| tier.decision.is_allowed()));
        let charged: Tiers<'_> = tiers.iter().filter(|tier| denied.is_charged(tier)).copied().collect();
        if !charged.is_empty() {
            self.store.apply(Operation::Refund, &charged).await;
        }
    }
}
