//! Attributes that rules name, beside those that requests have: what cannot meet
//! is told, because such a rule limits nobody and nothing else shows it.

use checkdam::origin::PathForms;
use checkdam::{Condition, Matcher, Rule, RuleSet};

/// More warnings than that nobody reads.
const WARNINGS_MAX: usize = 20;

/// Warns of paths in conditions that no path of a proxied request is written as.
pub(super) fn warn_of_unmatched_paths(rules: &RuleSet, paths: &PathForms) {
    let unmatched = rules.rules().flat_map(|rule| unmatched_paths(rule, paths).map(move |found| (rule, found)));
    for (rule, (written, meant)) in unmatched.take(WARNINGS_MAX) {
        tracing::warn!(
            rule = rule.name,
            endpoint = written,
            "no proxied request has this endpoint, as the settings of paths write them: write {meant:?}"
        );
    }
}

/// Exact endpoints of a rule that are written otherwise, and how they would be.
fn unmatched_paths<'a>(rule: &'a Rule, paths: &PathForms) -> impl Iterator<Item = (&'a str, String)> {
    let conditions = rule.when.iter().filter(|(attribute, _)| attribute == "endpoint");
    let matchers = conditions.flat_map(|(_, condition)| match condition {
        Condition::In(matchers) | Condition::NotIn(matchers) => matchers.as_slice(),
        Condition::Present(_) => &[],
    });
    let paths = *paths;
    matchers.filter_map(move |matcher| {
        let Matcher::Exact(text) = matcher else { return None };
        // What is refused reaches no rule; decoded, it is how the rule should be written.
        let decoding = PathForms { slashes: checkdam::origin::Slashes::Decode, ..paths };
        let meant = paths.endpoint(text).or_else(|_| decoding.endpoint(text)).ok()?;
        (text.starts_with('/') && meant != text.as_str()).then(|| (text.as_str(), meant.into_owned()))
    })
}
