//! Follow-up steps of a take of several requests: refunds if all quota-mode limits deny, and
//! records of metered costs.

use super::{DeniedGroups, FailurePolicy, Operation, Tier, TierDecisions};
use crate::decision::Decision;

/// The terms of a take whose requests are decided together
/// ([`Store::take_on_terms`](super::Store::take_on_terms)).
#[derive(Debug, Clone, Default)]
pub struct TakeTerms {
    /// If all of these groups deny, the take as a whole is denied, and what it charged is
    /// refunded. Empty if there are no such groups.
    pub alternatives: Vec<u8>,
    /// Tiers, by their index, and how much of their cost was used already: that is charged
    /// whether it fits or not.
    pub metered: Vec<(usize, u64)>,
    /// Whether something else denies the requests already, so that the take is only a peek.
    pub is_refused: bool,
}

impl TakeTerms {
    /// The first step.
    pub(super) const fn operation(&self) -> Operation {
        if self.is_refused { Operation::Peek } else { Operation::Take }
    }

    /// What was charged although all of the alternatives denied, except for metered costs.
    /// Decisions of a failure policy charged nothing that could be refunded.
    pub(super) fn refunds<'a>(&self, tiers: &[Tier<'a>], answer: &TierDecisions) -> Vec<Tier<'a>> {
        if self.alternatives.is_empty() || self.is_refused || !answer.by.is_refundable() {
            return Vec::new();
        }
        let denied = DeniedGroups::new(tiers, answer.decisions.iter().map(Decision::is_allowed));
        if !self.alternatives.iter().all(|group| denied.contains(*group)) {
            return Vec::new();
        }
        let charged = tiers.iter().enumerate().filter(|(_, tier)| denied.is_charged(tier));
        let refunds =
            charged.map(|(index, tier)| Tier { cost: tier.cost.saturating_sub(self.metered_cost(index)), ..*tier });
        refunds.filter(|tier| tier.cost > 0).collect()
    }

    /// The metered costs that the take did not charge.
    pub(super) fn records<'a>(&self, tiers: &[Tier<'a>], answer: &TierDecisions) -> Vec<Tier<'a>> {
        if self.metered.is_empty() {
            return Vec::new();
        }
        let denied = DeniedGroups::new(tiers, answer.decisions.iter().map(Decision::is_allowed));
        // A rule that lets everything pass while its store does not reply charges nothing.
        let is_open = |tier: &Tier<'_>| !answer.by.is_refundable() && tier.on_failure == FailurePolicy::Open;
        let is_charged = |tier: &Tier<'_>| !self.is_refused && denied.is_charged(tier) && !is_open(tier);
        let metered = self.metered.iter().filter_map(|(index, cost)| Some(Tier { cost: *cost, ..*tiers.get(*index)? }));
        metered.filter(|tier| tier.cost > 0 && !is_charged(tier)).collect()
    }

    fn metered_cost(&self, index: usize) -> u64 {
        self.metered.iter().find(|(metered, _)| *metered == index).map_or(0, |(_, cost)| *cost)
    }
}
