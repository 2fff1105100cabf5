//! Finds rules that apply to exactly the same requests.

use std::collections::HashMap;

use checkdam::{Condition, Mode, Rule};

/// What decides which requests a rule applies to: its domain, key, scope and
/// conditions.
type MatchedRequests<'a> = (&'a str, &'a str, &'a str, Vec<&'a (String, Condition)>);

/// Rejects two enforced rules with the same domain, key, scope and conditions: it
/// would be unclear which of them is meant. The database's own index does the same
/// for statements that bypass this program.
pub(super) fn check(rules: &[Rule]) -> Result<(), String> {
    let mut known = HashMap::new();
    for rule in rules.iter().filter(|rule| rule.mode == Mode::Enforce) {
        if let Some(earlier) = known.insert(matched_requests(rule), &rule.name) {
            return Err(duplicate_error(rule, earlier));
        }
    }
    Ok(())
}

/// The same for one rule among others that do not conflict with each other.
pub(super) fn check_among<'a>(rule: &Rule, mut others: impl Iterator<Item = &'a Rule>) -> Result<(), String> {
    if rule.mode != Mode::Enforce {
        return Ok(());
    }
    let concerned = matched_requests(rule);
    match others.find(|other| other.mode == Mode::Enforce && matched_requests(other) == concerned) {
        Some(other) => Err(duplicate_error(rule, &other.name)),
        None => Ok(()),
    }
}

fn matched_requests(rule: &Rule) -> MatchedRequests<'_> {
    let mut conditions: Vec<_> = rule.when.iter().collect();
    conditions.sort_by(|(one, _), (other, _)| one.cmp(other));
    (&rule.domain, rule.key.text(), &rule.scope, conditions)
}

fn duplicate_error(rule: &Rule, other: &str) -> String {
    format!(
        "rule {:?}: it has the same domain, key, scope and conditions as the rule {other:?}: \
         join their limits, or make one of them a shadow",
        rule.name
    )
}
