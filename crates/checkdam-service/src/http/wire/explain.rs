//! Explanations of which rules apply to a request, as JSON.

use checkdam::{Mode, Outcome, Request, Rule, RuleSet};
use serde::Serialize;
use utoipa::ToSchema;

use super::json;
use super::responses::{BanAnswer, is_zero};
use crate::telemetry::{Unseen, unknown_attributes};

/// The maximum number of rules explained that do not apply to the request.
const OTHERS_MAX: usize = 100;
/// More hints would not be readable.
const HINTS_MAX: usize = 10;

/// Which rules apply to the request, and why.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ExplainAnswer<'a> {
    /// Whether a check would pass now.
    allowed: bool,
    /// The rule with the longest wait, if it would be denied.
    violated: Option<&'a str>,
    /// The ban on the request, if it is banned; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    ban: Option<BanAnswer>,
    /// The rules that apply to the request, in their order.
    matches: Vec<ExplainedRule<'a>>,
    /// Rules that do not apply to it, at most 100.
    others: Vec<OtherRule<'a>>,
    /// How many more there are that do not apply to it.
    others_left_out: usize,
    /// What may be wrong with the request's attributes or the rules', for people; absent if nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    hints: Vec<String>,
}

/// A rule that applies to the request.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ExplainedRule<'a> {
    /// Its name.
    rule: &'a str,
    /// What it is for.
    description: &'a str,
    /// Its key pattern.
    key: &'a str,
    /// The key filled with the request's attributes.
    subject: String,
    /// What kind of subject that is.
    scope: &'a str,
    /// `enforce` or `shadow`.
    mode: &'static str,
    /// How limits count that name no algorithm and follow no calendar.
    algorithm: String,
    /// Why it applies to the request.
    reasons: Vec<String>,
    /// Its limits and where they stand.
    tiers: Vec<ExplainedTier>,
}

/// One limit of a rule and where it stands.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ExplainedTier {
    /// The limit as it is written.
    quota: String,
    /// How it counts.
    algorithm: String,
    /// Whether it would let the request pass.
    allowed: bool,
    /// The most that can pass at once.
    limit: u64,
    /// What is left.
    remaining: u64,
    /// What was used beyond the limit and is not paid back yet; absent if nothing.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    debt: u64,
    /// How long until it would let the request pass, in milliseconds, rounded up: 0 if it does, null if it
    /// never will.
    retry_after_ms: Option<u64>,
    /// How long until it owes nothing any more, in milliseconds, rounded up.
    reset_after_ms: u64,
}

/// A rule that does not apply to the request.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct OtherRule<'a> {
    /// Its name.
    rule: &'a str,
    /// What it is for.
    description: &'a str,
    /// Why it does not apply to the request.
    reasons: Vec<String>,
}

/// Explains `request` under `rules`; `outcome` is that of a peek, and `unseen` the
/// attributes that rules need and no request had.
pub fn explain(rules: &RuleSet, request: &Request<'_>, outcome: &Outcome, unseen: &[Unseen]) -> Vec<u8> {
    let (mut matches, mut others) = (Vec::new(), Vec::new());
    for explanation in rules.explain(request, OTHERS_MAX) {
        let (rule, reasons) = (explanation.rule, explanation.reasons);
        if explanation.matches {
            matches.push(ExplainedRule::new(rule, reasons, request, outcome));
        } else {
            others.push(OtherRule { rule: &rule.name, description: &rule.description, reasons });
        }
    }
    json(&ExplainAnswer {
        allowed: outcome.is_allowed(),
        violated: outcome.violated().map(|tier| tier.rule.name.as_str()),
        ban: BanAnswer::from_outcome(outcome),
        others_left_out: rules.rules().len() - matches.len() - others.len(),
        matches,
        others,
        hints: hints(rules, request, unseen),
    })
}

/// What may be wrong with attributes: the request's, then the rules'.
fn hints(rules: &RuleSet, request: &Request<'_>, unseen: &[Unseen]) -> Vec<String> {
    let unknown = unknown_attributes(rules, request).map(|names| {
        let own: Vec<&str> = request.attributes().map(|(name, _)| name).collect();
        let names: Vec<&str> = names.into_iter().take(HINTS_MAX).collect();
        format!("no rule names an attribute of the request ({}): rules name {}", own.join(", "), names.join(", "))
    });
    let unseen = unseen.iter().map(|Unseen { rule, attribute }| {
        format!("no request of the last hour had {attribute:?}, without which rule {rule:?} matches nothing")
    });
    unknown.into_iter().chain(unseen).take(HINTS_MAX).collect()
}

impl<'a> ExplainedRule<'a> {
    fn new(rule: &'a Rule, reasons: Vec<String>, request: &Request<'_>, outcome: &Outcome) -> Self {
        Self {
            rule: &rule.name,
            description: &rule.description,
            key: rule.key.text(),
            subject: rule.key.render(request),
            scope: &rule.scope,
            mode: mode_name(rule.mode),
            algorithm: rule.algorithm.to_string(),
            reasons,
            tiers: tiers(rule, outcome),
        }
    }
}

/// A rule's mode as rule files write it.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

/// The rule's part of the outcome. A reload may have happened between the two; then
/// the rule has none.
fn tiers(rule: &Rule, outcome: &Outcome) -> Vec<ExplainedTier> {
    let own = outcome.tiers().filter(|tier| tier.rule.name == rule.name);
    own.map(|tier| ExplainedTier {
        quota: tier.quota.to_string(),
        algorithm: tier.quota.algorithm().to_string(),
        allowed: tier.decision.is_allowed(),
        limit: tier.decision.limit,
        remaining: tier.decision.remaining,
        debt: tier.decision.debt,
        retry_after_ms: tier.decision.retry_after().map(|_| tier.decision.retry_after_us.div_ceil(1_000)),
        reset_after_ms: tier.decision.reset_after_us.div_ceil(1_000),
    })
    .collect()
}
