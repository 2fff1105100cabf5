//! An outcome: the decisions of all tiers of a request, combined.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use smallvec::SmallVec;

use crate::ban::Ban;
use crate::decision::{DecidedBy, Decision, Verdict};
use crate::descriptor::Descriptor;
use crate::quota::Quota;
use crate::request::Request;
use crate::rule::{Mode, Rule};
use crate::ruleset::{CompiledQuota, PolicyText, RuleSet};
use crate::store::{TIERS_INLINE, TierDecisions};

/// The quota of a tier whose limit the request brought with it.
pub(crate) const FROM_REQUEST: u32 = u32::MAX;

/// The combined decision on a request.
#[must_use = "an outcome that is ignored limits nothing"]
pub struct Outcome {
    rules: Guard<Arc<RuleSet>>,
    /// Which rule and which of its quotas each tier is.
    places: SmallVec<[(u32, u32); TIERS_INLINE]>,
    /// One decision per tier; places beyond them were not decided.
    answer: TierDecisions,
    governing: Option<usize>,
    verdict: Verdict,
    /// Whether the store charged the tiers.
    is_charged: bool,
    ban: Option<ActiveBan>,
    /// Where its path ends in a tree.
    leaf: Option<u32>,
    /// The limit that it brought with it.
    given: Option<Arc<CompiledQuota>>,
}

/// The ban on a request, by its number.
#[derive(Debug, Clone, Copy)]
struct ActiveBan {
    number: u32,
    /// How long it lasts still; `None` if for ever.
    left_us: Option<u64>,
}

/// One tier of an outcome.
#[derive(Debug, Clone, Copy)]
pub struct TierView<'a> {
    /// The rule it belongs to.
    pub rule: &'a Rule,
    /// That rule's number in [`RuleSet::numbered`].
    pub number: usize,
    /// The quota of the tier.
    pub quota: &'a Quota,
    /// Its decision.
    pub decision: &'a Decision,
    pub(crate) policy: &'a PolicyText,
}

impl TierView<'_> {
    /// The tier's name in headers: the rule's, with the limit where the rule
    /// has several.
    #[must_use]
    pub fn policy_name(&self) -> &str {
        &self.policy.plain
    }

    /// The limit as it is written in the rule or override, such as `10/s burst 50`.
    #[must_use]
    pub fn limit_name(&self) -> &str {
        &self.policy.limit
    }

    /// Whether the tier can deny.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.rule.mode == Mode::Enforce
    }
}

impl Outcome {
    /// The outcome of a request that no store has decided yet.
    #[inline]
    pub(crate) fn pending(rules: Guard<Arc<RuleSet>>) -> Self {
        Self {
            rules,
            places: SmallVec::new(),
            answer: TierDecisions::new(),
            governing: None,
            verdict: Verdict::Allowed,
            is_charged: false,
            ban: None,
            leaf: None,
            given: None,
        }
    }

    /// The rules, the rule and quota of each tier, and the decisions for a store to fill.
    #[inline]
    pub(crate) fn parts_mut(&mut self) -> (&RuleSet, &mut SmallVec<[(u32, u32); TIERS_INLINE]>, &mut TierDecisions) {
        (&self.rules, &mut self.places, &mut self.answer)
    }

    /// The rules, if no store is called after all.
    #[inline]
    pub(crate) fn into_rules(self) -> Guard<Arc<RuleSet>> {
        self.rules
    }

    /// Combines the decisions of a store.
    #[inline]
    pub(crate) fn combine(&mut self) {
        self.governing = find_governing(&self.rules, &self.places, &self.answer.decisions);
        self.verdict = self.governing.map_or(Verdict::Allowed, |tier| self.answer.decisions[tier].verdict);
    }

    /// Marks this as the outcome of a take that was not refunded.
    #[inline]
    pub(crate) const fn note_take(&mut self) {
        self.is_charged = matches!(self.verdict, Verdict::Allowed) && self.answer.by.is_refundable();
    }

    /// Whether buckets were charged for it that can be refunded.
    pub(crate) const fn is_charged(&self) -> bool {
        self.is_charged
    }

    /// The outcome of a request whose path was looked up in a tree: the limit at which it
    /// ends, and the request limit.
    #[inline]
    pub(crate) fn with_decisions(
        rules: Guard<Arc<RuleSet>>,
        places: SmallVec<[(u32, u32); TIERS_INLINE]>,
        answer: TierDecisions,
        (leaf, given): (Option<u32>, Option<Arc<CompiledQuota>>),
    ) -> Self {
        let mut outcome = Self { places, answer, leaf, given, ..Self::pending(rules) };
        outcome.combine();
        outcome
    }

    /// The outcome of a banned request.
    pub(crate) fn banned(rules: Guard<Arc<RuleSet>>, number: u32, until_us: u64, at_us: u64) -> Self {
        // The ban may have been decided on another clock.
        let left_us = (until_us < u64::MAX).then(|| until_us.saturating_sub(at_us).max(1));
        let ban = Some(ActiveBan { number, left_us });
        let answer = TierDecisions { at_us, ..TierDecisions::new() };
        Self { answer, verdict: Verdict::Banned, ban, ..Self::pending(rules) }
    }

    /// Whether the request passes.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// Whether it passes, must wait, can never pass, or is banned.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The rules that decided.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The limit of a tree at which the request's path ends, as it was written;
    /// none if it ends elsewhere, if another limit replaces it, or if the
    /// request brought one with it.
    #[must_use]
    pub fn descriptor(&self) -> Option<&Descriptor> {
        self.leaf.map(|leaf| &self.rules.trees().leaf(leaf).descriptor)
    }

    /// Whether the limit at the end of the request's path enables detailed metrics, so
    /// that [`Outcome::metric_name`] contains more than the rule's name.
    #[must_use]
    pub fn has_detailed_metric(&self) -> bool {
        self.leaf.is_some_and(|leaf| self.rules.trees().leaf(leaf).has_detailed_metric())
    }

    /// The name of the request's path in metrics, if it ends at a limit of a tree:
    /// bounded by what is written there, unless that enables values.
    #[must_use]
    pub fn metric_name(&self, request: &Request<'_>) -> Option<String> {
        self.leaf.map(|leaf| self.rules.trees().leaf(leaf).metric_name(request))
    }

    /// Every tier, in the order of the rules.
    pub fn tiers(&self) -> impl ExactSizeIterator<Item = TierView<'_>> {
        let tiers = self.places.iter().zip(self.answer.decisions.iter());
        tiers.map(|(place, decision)| self.view(*place, decision))
    }

    /// The tiers of each rule, in the order of the rules: tiers of one rule are adjacent.
    pub fn by_rule(&self) -> impl Iterator<Item = impl Iterator<Item = TierView<'_>> + Clone> {
        let places = &self.places[..self.places.len().min(self.answer.decisions.len())];
        let mut rest = &*self.answer.decisions;
        places.chunk_by(|(one, _), (other, _)| one == other).map(move |places| {
            let (decisions, others) = rest.split_at(places.len());
            rest = others;
            places.iter().zip(decisions).map(|(place, decision)| self.view(*place, decision))
        })
    }

    /// The enforced tiers that deny the request.
    pub fn denying(&self) -> impl Iterator<Item = TierView<'_>> {
        self.tiers().filter(|tier| tier.is_enforced() && !tier.decision.is_allowed())
    }

    /// The tier that governs: the violated one when denied, otherwise the one with the
    /// fewest remaining. `None` if no enforced rule applies.
    #[must_use]
    pub fn governing(&self) -> Option<TierView<'_>> {
        self.governing.map(|tier| self.view(self.places[tier], &self.answer.decisions[tier]))
    }

    /// The ban on the request, if that is why it does not pass.
    #[must_use]
    pub fn ban(&self) -> Option<&Ban> {
        self.ban.map(|ban| &self.rules.bans()[ban.number as usize])
    }

    /// The tier with the longest wait, if the request is denied and not banned.
    #[must_use]
    pub fn violated(&self) -> Option<TierView<'_>> {
        self.governing().filter(|_| !self.is_allowed())
    }

    /// Whether any rule or ban applied to the request. If not, nothing limits it: it
    /// passes, and no bucket was charged. That is often a mistake in the attributes of the
    /// request, since a rule applies only if it finds all that its key names.
    #[must_use]
    pub fn any_rule_applied(&self) -> bool {
        self.ban.is_some() || !self.places.is_empty()
    }

    /// How long until the same request could pass, or its ban ends: zero if it passes,
    /// `None` if it never will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match (self.ban, self.governing) {
            (Some(ban), _) => ban.left_us.map(Duration::from_micros),
            (None, Some(tier)) => self.answer.decisions[tier].retry_after(),
            (None, None) => Some(Duration::ZERO),
        }
    }

    /// How long to hold the request back (leaky bucket); 0 if it was denied.
    #[must_use]
    pub fn delay_us(&self) -> u64 {
        if !self.is_allowed() {
            return 0;
        }
        self.tiers().filter(TierView::is_enforced).map(|tier| tier.decision.delay_us).max().unwrap_or(0)
    }

    /// Of a record, what was not charged because a tier's debt would have exceeded its
    /// `max_debt`, summed over the tiers.
    #[must_use]
    pub const fn cut_off(&self) -> u64 {
        self.answer.cut_off
    }

    /// The store's time of the decision.
    #[must_use]
    pub const fn at_us(&self) -> u64 {
        self.answer.at_us
    }

    /// Where it was decided.
    #[must_use]
    pub const fn decided_by(&self) -> DecidedBy {
        self.answer.by
    }

    fn view<'a>(&'a self, (rule, quota): (u32, u32), decision: &'a Decision) -> TierView<'a> {
        let (compiled, number) = (self.rules.rule(rule), rule as usize);
        let quota = match &self.given {
            Some(given) if quota == FROM_REQUEST => given,
            _ => &compiled.quotas[quota as usize],
        };
        TierView { rule: &compiled.rule, number, quota: &quota.quota, decision, policy: &quota.policy }
    }
}

/// The governing tier: enforced tiers that deny come before all others, then the one
/// with the longest wait, otherwise the one with the fewest remaining. A request that
/// can never pass outweighs every wait; ties go to the first rule.
#[inline]
fn find_governing(rules: &RuleSet, places: &[(u32, u32)], decisions: &[Decision]) -> Option<usize> {
    let mut governing = None;
    let mut heaviest = (false, 0);
    for (tier, ((rule, _), decision)) in places.iter().zip(decisions).enumerate() {
        let weight = match decision.verdict {
            Verdict::Allowed => (false, u64::MAX - decision.remaining),
            Verdict::Denied => (true, decision.retry_after_us),
            Verdict::Unavailable => (true, u64::MAX - 1),
            Verdict::CostExceedsBurst | Verdict::Banned => (true, u64::MAX),
        };
        if (governing.is_none() || weight > heaviest) && rules.rule(*rule).rule.mode == Mode::Enforce {
            (governing, heaviest) = (Some(tier), weight);
        }
    }
    governing
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outcome")
            .field("verdict", &self.verdict)
            .field("tiers", &self.tiers().map(|tier| (&tier.rule.name, tier.decision)).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
