//! Why a rule concerns a request, or does not.

use super::RuleSet;
use crate::request::Request;
use crate::rule::Rule;

/// What a rule has to say to a request.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Whether it concerns the request.
    pub matches: bool,
    /// Every reason, for people.
    pub reasons: Vec<String>,
}

impl RuleSet {
    /// Why each rule concerns the request, or does not; rules that do first,
    /// and at most `others_max` of those that do not.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>, others_max: usize) -> Vec<Explanation<'_>> {
        let matched = self.matching(request, &self.values(request));
        let concerned = matched.iter().map(|index| &self.rule(*index).rule);
        let others = (0..self.rules.len() as u32).filter(|index| !matched.contains(index)).take(others_max);
        let others = others.map(|index| &self.rule(index).rule);
        let explain = |matches| move |rule| Explanation { rule, matches, reasons: reasons(rule, request, matches) };
        concerned.map(explain(true)).chain(others.map(explain(false))).collect()
    }
}

/// The conditions that hold, if it matches; otherwise those that do not.
fn reasons(rule: &Rule, request: &Request<'_>, matches: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if (rule.domain == request.domain()) == matches && !(matches && rule.domain.is_empty()) {
        let is = if matches { "is" } else { "is not" };
        reasons.push(format!("the domain {:?} {is} the rule's {:?}", request.domain(), rule.domain));
    }
    for name in rule.key.attributes() {
        if request.get(name).is_some() == matches {
            let has = if matches { "has" } else { "lacks" };
            reasons.push(format!("the request {has} {name:?}, which the key {:?} names", rule.key.text()));
        }
    }
    for (name, condition) in &rule.when {
        if condition.holds(request.get(name)) == matches {
            let value = request.get(name).map_or("absent".to_owned(), |value| format!("{value:?}"));
            let holds = if matches { "holds" } else { "does not hold" };
            reasons.push(format!("the condition that {name:?} {condition} {holds}: it is {value}"));
        }
    }
    if reasons.is_empty() && matches {
        reasons.push("the rule concerns every request".to_owned());
    }
    reasons
}
