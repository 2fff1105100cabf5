//! Converts descriptor trees to flat rules.
//!
//! Conditions express which node of the tree an entry matches: a pattern applies only
//! where no exact value and no earlier pattern does. The attribute `descriptor`
//! preserves the depth and order of the path.

use super::{Descriptor, DescriptorAllowance, DescriptorTree};
use crate::rule::{Condition, Matcher, Pattern, Rule, is_attribute_name};

/// A tree as rules, and the limits that no rule can express.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeRules {
    /// What they allow is what the tree allows.
    pub rules: Vec<Rule>,
    /// Which limits are left out, and why.
    pub left_out: Vec<String>,
}

impl DescriptorTree {
    /// The limits as rules that apply to the same requests, each with the name of its
    /// path.
    #[must_use]
    pub fn rules(&self) -> TreeRules {
        let mut walk = TreeWalk { domain: &self.domain, path: Vec::new(), found: TreeRules::default() };
        walk.level(&self.descriptors);
        walk.found
    }
}

struct TreeWalk<'a> {
    domain: &'a str,
    path: Vec<WalkStep<'a>>,
    found: TreeRules,
}

struct WalkStep<'a> {
    one: &'a Descriptor,
    /// What the entry must be, and what it must not be.
    conditions: Result<Vec<Condition>, String>,
}

impl<'a> TreeWalk<'a> {
    fn level(&mut self, level: &'a [Descriptor]) {
        for (place, one) in level.iter().enumerate() {
            self.path.push(WalkStep { one, conditions: conditions(level, place) });
            if one.limit.is_some() {
                match self.rule(one) {
                    Ok(Some(rule)) => self.found.rules.push(rule),
                    Ok(None) => {}
                    Err(reason) => self.found.left_out.push(format!("{}: {reason}", self.name())),
                }
            }
            self.level(&one.descriptors);
            self.path.pop();
        }
    }

    fn name(&self) -> String {
        let ids = self.path.iter().map(|step| step.one.id());
        std::iter::once(self.domain.to_owned()).chain(ids).collect::<Vec<_>>().join(".")
    }

    fn rule(&self, one: &Descriptor) -> Result<Option<Rule>, String> {
        let Some(limit) = &one.limit else { return Ok(None) };
        let quota = match limit.allowance {
            // A request that no rule applies to is unlimited; the conditions of the other limits
            // exclude this one.
            DescriptorAllowance::Unlimited if limit.replaces.is_empty() => return Ok(None),
            DescriptorAllowance::Nothing { .. } => {
                let ban = match self.path.as_slice() {
                    [only] if !only.one.value.is_empty() => {
                        format!("checkdam ban '{}:{}'", only.one.key, only.one.value)
                    }
                    _ => "a ban".to_owned(),
                };
                return Err(format!("it lets nothing pass, which a rule cannot: without {ban} all of it passes"));
            }
            _ if !limit.replaces.is_empty() => return Err("it replaces other limits, which a rule cannot".to_owned()),
            DescriptorAllowance::Unlimited => return Ok(None),
            DescriptorAllowance::Quota(quota) => quota,
        };
        if one.is_quota_mode {
            return Err("it has quota_mode, which rules have not".to_owned());
        }
        let names: Vec<&str> = self.path.iter().map(|step| step.one.key.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !is_attribute_name(name)) {
            return Err(format!("{name:?} is no name of an attribute: use letters, digits, '_', '-' and '.'"));
        }
        if let Some(place) = (1..names.len()).find(|place| names[..*place].contains(&names[*place])) {
            return Err(format!("its path has {:?} twice, and a rule sees the first only", names[place]));
        }
        let part = |step: &WalkStep<'_>| match step.one.is_shared {
            true => format!("{}={}", step.one.key, step.one.value),
            false => format!("{0}={{{0}}}", step.one.key),
        };
        let key = self.path.iter().map(part).collect::<Vec<_>>().join(",");
        let key = key.parse().map_err(|error| format!("{error}"))?;
        let mut rule = Rule::new(self.name(), key, vec![quota]).when("descriptor", Condition::is(names.join(",")));
        for step in &self.path {
            let conditions = step.conditions.clone()?.into_iter();
            rule.when.extend(conditions.map(|condition| (step.one.key.clone(), condition)));
        }
        rule.domain = self.domain.to_owned();
        rule.scope = "descriptor".to_owned();
        rule.mode = one.mode;
        rule.on_store_failure = limit.on_store_failure;
        rule.description.clone_from(&limit.name);
        Ok(Some(rule))
    }
}

/// The conditions for an entry to match the node at `place`, and no other.
fn conditions(level: &[Descriptor], place: usize) -> Result<Vec<Condition>, String> {
    let one = &level[place];
    let siblings = || level.iter().enumerate().filter(|(_, other)| other.key == one.key && !other.value.is_empty());
    let exact = |text: &str| Matcher::Exact(text.to_owned());
    let pattern = |text: &str| {
        Pattern::new(text).map(Matcher::Pattern).map_err(|error| format!("{text:?} cannot be a pattern: {error}"))
    };
    if !one.value.is_empty() && !one.has_wildcard() {
        return Ok(vec![Condition::In(vec![exact(&one.value)])]);
    }
    let mut others: Vec<Matcher> =
        siblings().filter(|(_, other)| !other.has_wildcard()).map(|(_, other)| exact(&other.value)).collect();
    let is_before = |other: usize| one.value.is_empty() || other < place;
    for (_, other) in siblings().filter(|(number, other)| other.has_wildcard() && is_before(*number)) {
        others.push(pattern(&other.value)?);
    }
    let mut conditions = Vec::new();
    if one.has_wildcard() {
        conditions.push(Condition::In(vec![pattern(&one.value)?]));
    }
    if !others.is_empty() {
        conditions.push(Condition::NotIn(others));
    }
    Ok(conditions)
}
