//! Refunds an outcome to the buckets that it charged.

use super::batch_plan::BatchPlan;
use super::{Limiter, Tiers};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::store::{DeniedGroups, Operation, Store};

impl<S: Store> Limiter<S> {
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
