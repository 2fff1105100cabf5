//! Explains why a rule applies to a request, or does not.

use super::RuleSet;
use crate::overrides::{Allowance, Override};
use crate::request::Request;
use crate::rule::Rule;

/// Whether and why a rule applies to a request.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Whether it applies to the request.
    pub matches: bool,
    /// The override that counts instead of its own limits.
    pub applied: Option<&'a Override>,
    /// Every reason, for people.
    pub reasons: Vec<String>,
}

impl RuleSet {
    /// Why each rule applies to the request, or does not; applicable rules first, then at
    /// most `others_max` of the others.
    #[must_use]
    pub fn explain(&self, request: &Request<'_>, others_max: usize) -> Vec<Explanation<'_>> {
        let values = self.values(request);
        let holding = self.matching(request.domain(), &values);
        let explain = |number: u32| {
            let rule = &self.rule(number).rule;
            let applied = self.applied(number, &values);
            let is_lifted = applied.is_some_and(|one| one.allowance == Allowance::Unlimited);
            let mut reasons = reasons(rule, request, true);
            if let Some(one) = applied {
                reasons.push(by_override(one));
            }
            Explanation { rule, matches: !is_lifted, applied, reasons }
        };
        let ending = self.trees.get(request.domain()).and_then(|tree| tree.find(request));
        let ending = ending.and_then(|leaf| self.trees.leaf(leaf).rule);
        let (mut explained, lifted): (Vec<_>, Vec<_>) =
            holding.iter().map(|number| explain(*number)).partition(|explanation| explanation.matches);
        explained.extend(ending.map(|number| {
            let reasons = vec!["the request's path ends at this descriptor".to_owned()];
            Explanation { rule: &self.rule(number).rule, matches: true, applied: None, reasons }
        }));
        let others = (0..self.shown as u32).filter(|number| !holding.contains(number) && ending != Some(*number));
        let others = others.map(|number| {
            let rule = &self.rule(number).rule;
            let mut reasons = reasons(rule, request, false);
            if reasons.is_empty() {
                reasons.push("the request's path does not end at this descriptor".to_owned());
            }
            Explanation { rule, matches: false, applied: None, reasons }
        });
        explained.extend(lifted.into_iter().chain(others).take(others_max));
        explained
    }

    /// The override that applies to a rule whose conditions hold.
    fn applied(&self, rule: u32, values: &[Option<&str>]) -> Option<&Override> {
        let compiled = self.rule(rule);
        let compiled_override = self.compiled_override(compiled, compiled.overrides.as_deref()?, values)?;
        self.overrides.get(compiled_override.number as usize)
    }
}

fn by_override(one: &Override) -> String {
    let subject = one.subject.text();
    match &one.allowance {
        Allowance::Unlimited => format!("the override of {subject:?} lifts it"),
        Allowance::Scale(scale) => format!("the override of {subject:?} allows {scale} times its limits"),
        Allowance::Limits(limits) => {
            let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
            format!("the override of {subject:?} has limits of its own: {}", limits.join(", "))
        }
    }
}

/// The conditions that hold, if it matches; otherwise those that do not.
fn reasons(rule: &Rule, request: &Request<'_>, matches: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if (rule.domain == request.domain()) == matches && !(matches && rule.domain.is_empty()) {
        reasons.push(match (rule.domain.is_empty(), request.domain().is_empty()) {
            _ if matches => format!("the domain is the rule's {:?}", rule.domain),
            (true, _) => "the rule has no domain, so it matches only requests without one".to_owned(),
            (false, true) => format!("the request has no domain, and the rule's is {:?}", rule.domain),
            (false, false) => format!("the domain {:?} is not the rule's {:?}", request.domain(), rule.domain),
        });
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
        reasons.push("the rule matches every request".to_owned());
    }
    reasons
}
