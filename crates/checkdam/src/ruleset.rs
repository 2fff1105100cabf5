//! Rule sets: definitions compiled into an immutable index.
//!
//! A check tests only the rules that its attributes can match: each rule is indexed
//! by its most selective condition, the one that the fewest other rules share. A rule
//! set is never modified, only replaced.

mod compile;
mod compile_trees;
mod compiled_bans;
mod compiled_overrides;
mod descriptor_trees;
mod error;
mod explain;
mod index;
mod network_map;
mod policy_text;

pub use error::{RuleSetError, RuleSetItem};
pub use explain::Explanation;

use smallvec::SmallVec;

use self::compiled_bans::CompiledBans;
use self::compiled_overrides::{CompiledOverride, CompiledOverrides};
pub(crate) use self::descriptor_trees::{CompiledTree, CompiledTrees, Leaf, write_subject as write_path_subject};
use self::index::{AttributeId, Index};
pub(crate) use self::policy_text::{FIELD_MAX, PolicyText};
use crate::ban::Ban;
use crate::lease::LeaseTerms;
use crate::overrides::Override;
use crate::quota::Quota;
use crate::request::Request;
use crate::rule::{Condition, KeyPattern, Rule};
use crate::small_buffer::SmallBuffer;
use crate::store::BucketName;

/// Rules, overrides, bans and descriptor trees, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    /// How many of them people wrote.
    shown: usize,
    keys: Vec<CompiledKey>,
    index: Index,
    overrides: Vec<Override>,
    bans: CompiledBans,
    trees: CompiledTrees,
}

/// A rule with what is computed before any request.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: Rule,
    /// The rule's own, and behind them those of its overrides.
    pub(crate) quotas: Vec<CompiledQuota>,
    overrides: Option<Box<CompiledOverrides>>,
    /// Those that hold not already because the index has found it.
    conditions: Vec<(AttributeId, Condition)>,
    pub(crate) key: usize,
}

#[derive(Debug)]
pub(crate) struct CompiledQuota {
    pub(crate) quota: Quota,
    pub(crate) bucket: BucketName,
    pub(crate) policy: PolicyText,
    /// On which terms a shared store may prepay for it.
    pub(crate) lease: Option<LeaseTerms>,
}

/// A key pattern, shared by the rules that have the same.
#[derive(Debug)]
struct CompiledKey {
    pattern: KeyPattern,
    /// The pattern's text and a zero byte, with which its subjects begin.
    prefix: Box<[u8]>,
    attributes: SmallVec<[AttributeId; 4]>,
}

impl CompiledKey {
    fn new(pattern: KeyPattern, attributes: SmallVec<[AttributeId; 4]>) -> Self {
        let prefix = [pattern.text().as_bytes(), &[0]].concat().into();
        Self { pattern, prefix, attributes }
    }
}

/// The rules that apply to a request, in their order.
pub(crate) type Matched = SmallVec<[u32; 8]>;

/// A request's attributes by their number in the rule set.
pub(crate) type Values<'a> = SmallVec<[Option<&'a str>; 16]>;

impl RuleSet {
    /// The rules that are not switched off: by descending priority, then as they were
    /// listed; after them those that represent the limits of trees.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules[..self.shown].iter().map(|compiled| &compiled.rule)
    }

    /// Every rule by its number: first [`rules`](Self::rules), then what else a
    /// request can be decided by.
    pub fn numbered(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// Whether there is nothing to decide by: no rule, no tree and no ban.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.bans.list.is_empty()
    }

    /// The overrides, as they were listed.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// The bans, as they were listed, expired ones among them.
    #[must_use]
    pub fn bans(&self) -> &[Ban] {
        &self.bans.list
    }

    #[inline]
    pub(crate) fn rule(&self, index: u32) -> &CompiledRule {
        &self.rules[index as usize]
    }

    pub(crate) const fn trees(&self) -> &CompiledTrees {
        &self.trees
    }

    pub(crate) fn values<'a>(&self, request: &'a Request<'_>) -> Values<'a> {
        let mut values = Values::new();
        self.fill_values(request, &mut values);
        values
    }

    /// The same, into an empty list.
    #[inline]
    pub(crate) fn fill_values<'a>(&self, request: &'a Request<'_>, values: &mut Values<'a>) {
        self.index.fill(request, values);
    }

    /// The number of the ban on a request, expired or not.
    #[inline]
    pub(crate) fn find_ban(&self, values: &[Option<&str>]) -> Option<u32> {
        self.bans.find(values)
    }

    /// The rules that apply to the request, in their order.
    #[inline]
    pub(crate) fn matching(&self, domain: &str, values: &[Option<&str>]) -> Matched {
        let mut matched = Matched::new();
        for rule in &self.index.candidates(domain, values) {
            if self.applies(*rule, domain, values) {
                matched.push(*rule);
            }
        }
        matched
    }

    /// Whether a rule that the index has found does apply to the request.
    #[inline]
    fn applies(&self, rule: u32, domain: &str, values: &[Option<&str>]) -> bool {
        let compiled = &self.rules[rule as usize];
        // Most have no domain: nothing is compared for these.
        let is_of_domain =
            if domain.is_empty() { compiled.rule.domain.is_empty() } else { compiled.rule.domain == domain };
        is_of_domain
            && self.keys[compiled.key].attributes.iter().all(|id| values[*id].is_some())
            && compiled.conditions.iter().all(|(id, condition)| condition.holds(values[*id]))
    }

    /// Which of a matching rule's quotas count for the request, from the first
    /// to before the last; none if an override lifts the rule.
    #[inline]
    pub(crate) fn quotas(&self, rule: u32, values: &[Option<&str>]) -> (u32, u32) {
        let compiled = &self.rules[rule as usize];
        match &compiled.overrides {
            None => (0, compiled.quotas.len() as u32),
            Some(overrides) => self
                .compiled_override(compiled, overrides, values)
                .map_or((0, compiled.rule.quotas.len() as u32), |compiled_override| compiled_override.quotas),
        }
    }

    fn compiled_override(
        &self,
        rule: &CompiledRule,
        overrides: &CompiledOverrides,
        values: &[Option<&str>],
    ) -> Option<CompiledOverride> {
        let key = &self.keys[rule.key];
        let (mut subject, values) = (SmallBuffer::new(), key.attributes.iter().filter_map(|id| values[*id]));
        key.pattern.write(values.clone(), &mut subject);
        overrides.of(&subject, &values)
    }

    /// Writes a subject in a form that no two subjects share: the pattern, then
    /// each value with its length before it.
    #[inline]
    pub(crate) fn write_subject(&self, key: usize, values: &[Option<&str>], out: &mut SmallBuffer) {
        let key = &self.keys[key];
        out.push(&key.prefix);
        for value in key.attributes.iter().filter_map(|id| values[*id]) {
            out.push(&(value.len() as u32).to_le_bytes());
            out.push_str(value);
        }
    }
}
