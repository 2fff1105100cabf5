//! Rules compiled once into an immutable index.
//!
//! A check looks only at rules that its attributes can concern: each rule is
//! filed under the condition that the fewest other rules share. A rule set is
//! never changed; a new one takes its place.

mod explain;
mod index;

pub use explain::Explanation;

use std::collections::HashSet;

use smallvec::SmallVec;

use self::index::{AttributeId, Index};
use crate::headers::PolicyText;
use crate::quota::Quota;
use crate::request::Request;
use crate::rule::{Condition, KeyPattern, Mode, QUOTAS_MAX, RULE_NAME_MAX, Rule};
use crate::store::BucketName;

/// Rules, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    keys: Vec<CompiledKey>,
    index: Index,
}

/// A rule and what is known of it before any request.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: Rule,
    pub(crate) quotas: Vec<CompiledQuota>,
    conditions: Vec<(AttributeId, Condition)>,
    pub(crate) key: usize,
}

#[derive(Debug)]
pub(crate) struct CompiledQuota {
    pub(crate) quota: Quota,
    pub(crate) bucket: BucketName,
    pub(crate) policy: PolicyText,
}

/// A key pattern, shared by the rules that have the same.
#[derive(Debug)]
struct CompiledKey {
    pattern: KeyPattern,
    attributes: SmallVec<[AttributeId; 4]>,
}

/// Which rule of a set was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule:?}: {reason}")]
pub struct RuleSetError {
    /// Its place in the list, from 0.
    pub index: usize,
    /// Its name.
    pub rule: String,
    /// Why.
    pub reason: String,
}

/// The rules that concern a request, in their order.
pub(crate) type Matched = SmallVec<[u32; 8]>;

/// A request's attributes by their number in the rule set.
pub(crate) type Values<'a> = SmallVec<[Option<&'a str>; 16]>;

impl RuleSet {
    /// Compiles rules; their order is the order in which ties are broken.
    ///
    /// # Errors
    /// Names the first rule that cannot be part of the set, and why.
    pub fn new(rules: Vec<Rule>) -> Result<Self, RuleSetError> {
        let mut names = HashSet::new();
        for (index, rule) in rules.iter().enumerate() {
            let fail = |reason| RuleSetError { index, rule: rule.name.chars().take(80).collect(), reason };
            check(rule).map_err(fail)?;
            if !names.insert(&rule.name) {
                return Err(fail("the name is used by an earlier rule: give each rule its own".to_owned()));
            }
        }
        let rules: Vec<Rule> = rules.into_iter().filter(|rule| rule.mode != Mode::Off).collect();
        let mut index = Index::new(&rules);
        let mut keys: Vec<CompiledKey> = Vec::new();
        let mut known_keys = std::collections::HashMap::new();
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            let key = *known_keys.entry(rule.key.text().to_owned()).or_insert_with(|| {
                let attributes = rule.key.attributes().map(|name| index.attribute(name)).collect();
                keys.push(CompiledKey { pattern: rule.key.clone(), attributes });
                keys.len() - 1
            });
            let conditions = rule.when.iter().map(|(name, c)| (index.attribute(name), c.clone())).collect();
            let quotas = rule.quotas.iter().enumerate().map(|(n, quota)| CompiledQuota::new(&rule, n, quota)).collect();
            compiled.push(CompiledRule { rule, quotas, conditions, key });
        }
        Ok(Self { rules: compiled, keys, index })
    }

    /// The rules that are not switched off, in their order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    pub(crate) fn rule(&self, index: u32) -> &CompiledRule {
        &self.rules[index as usize]
    }

    pub(crate) fn values<'a>(&self, request: &'a Request<'_>) -> Values<'a> {
        self.index.values(request)
    }

    /// The rules that concern the request, in their order.
    pub(crate) fn matching(&self, request: &Request<'_>, values: &Values<'_>) -> Matched {
        let mut matched = self.index.candidates(values);
        matched.retain(|index| {
            let compiled = &self.rules[*index as usize];
            compiled.rule.domain == request.domain()
                && self.keys[compiled.key].attributes.iter().all(|id| values[*id].is_some())
                && compiled.conditions.iter().all(|(id, condition)| condition.holds(values[*id]))
        });
        matched
    }

    /// Writes a subject in a form that no two subjects share: the pattern, then
    /// each value with its length before it.
    pub(crate) fn write_subject(&self, key: usize, values: &Values<'_>, out: &mut SmallVec<[u8; 256]>) {
        let key = &self.keys[key];
        out.extend_from_slice(key.pattern.text().as_bytes());
        out.push(0);
        for value in key.attributes.iter().filter_map(|id| values[*id]) {
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value.as_bytes());
        }
    }
}

impl CompiledQuota {
    fn new(rule: &Rule, index: usize, quota: &Quota) -> Self {
        Self {
            quota: *quota,
            bucket: BucketName::new(&rule.name, index, quota.algorithm().name()),
            policy: PolicyText::new(rule, quota),
        }
    }
}

fn check(rule: &Rule) -> Result<(), String> {
    let name = &rule.name;
    if name.is_empty() {
        return Err("the name is empty: give the rule one".to_owned());
    }
    if name.len() > RULE_NAME_MAX {
        return Err(format!("the name is {} bytes long: at most {RULE_NAME_MAX} fit", name.len()));
    }
    if let Some(bad) = name.chars().find(|c| !(' '..='~').contains(c)) {
        return Err(format!("the name contains {bad:?}: use printable ASCII"));
    }
    if rule.quotas.is_empty() {
        return Err("it has no limits: give it at least one, such as \"10/s burst 50\"".to_owned());
    }
    if rule.quotas.len() > QUOTAS_MAX {
        return Err(format!("it has {} limits: at most {QUOTAS_MAX} fit", rule.quotas.len()));
    }
    Ok(())
}
