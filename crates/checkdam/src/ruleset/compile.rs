//! Compiles definitions into a rule set; they are accepted or rejected as a whole.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::compile_trees::TreeCompiler;
use super::compiled_bans::CompiledBans;
use super::compiled_overrides::{self, OverridesBuilder};
use super::error::{RuleSetError, RuleSetItem};
use super::index::Index;
use super::{CompiledKey, CompiledQuota, CompiledRule, PolicyText, RuleSet};
use crate::definitions::Definitions;
use crate::lease::LeaseTerms;
use crate::quota::Quota;
use crate::rule::{Mode, QUOTAS_MAX, RESERVED_NAMES, RULE_NAME_MAX, Rule};
use crate::store::BucketName;

impl RuleSet {
    /// Compiles rules alone; see [`compile`](Self::compile).
    ///
    /// # Errors
    /// Names the first rule that cannot be part of the set, and why.
    pub fn new(rules: Vec<Rule>) -> Result<Self, RuleSetError> {
        Self::compile(rules.into())
    }

    /// Compiles rules, overrides, bans and trees. Rules of higher priority stand first,
    /// then as they are listed: that is the order in which ties are broken.
    ///
    /// # Errors
    /// Names the first item that cannot be part of the set, and why.
    pub fn compile(definitions: Definitions) -> Result<Self, RuleSetError> {
        let Definitions { rules, overrides, bans, trees } = definitions;
        check_all(&rules)?;
        let mut gathered = compiled_overrides::group_by_rule(&rules, &overrides)?;
        let mut listed: Vec<(usize, Rule)> = rules.into_iter().enumerate().collect();
        listed.retain(|(_, rule)| rule.mode != Mode::Off);
        listed.sort_by_key(|(_, rule)| Reverse(rule.priority));
        let (places, rules): (Vec<usize>, Vec<Rule>) = listed.into_iter().unzip();

        let (mut index, held) = Index::new(&rules);
        let mut keys: Vec<CompiledKey> = Vec::new();
        let mut known_keys = HashMap::new();
        let mut compiled = Vec::with_capacity(rules.len());
        for ((place, rule), held) in places.into_iter().zip(rules).zip(held) {
            let key = *known_keys.entry(rule.key.text().to_owned()).or_insert_with(|| {
                let attributes = rule.key.attributes().map(|name| index.attribute(name)).collect();
                keys.push(CompiledKey::new(rule.key.clone(), attributes));
                keys.len() - 1
            });
            compiled.push(CompiledRule::new(rule, key, gathered.remove(&place), (&mut index, held)));
        }
        let bans = CompiledBans::new(bans, &mut index)?;
        let (trees, shown) = TreeCompiler::new(&mut compiled, &mut keys).compile(&trees)?;
        Ok(Self { rules: compiled, shown, keys, index, overrides, bans, trees })
    }
}

impl CompiledRule {
    /// `held` is the condition that is known to hold for every request that the index
    /// finds it by.
    fn new(
        rule: Rule,
        key: usize,
        gathered: Option<OverridesBuilder>,
        (index, held): (&mut Index, Option<usize>),
    ) -> Self {
        let others = rule.when.iter().enumerate().filter(|(number, _)| Some(*number) != held);
        let conditions = others.map(|(_, (name, c))| (index.attribute(name), c.clone())).collect();
        let mut quotas = CompiledQuota::all(&rule, &rule.quotas);
        let overrides = gathered.map(|gathered| {
            quotas.extend(gathered.quotas.iter().flat_map(|list| CompiledQuota::all(&rule, list)));
            Box::new(gathered.overrides)
        });
        quotas.shrink_to_fit();
        Self { rule, quotas, overrides, conditions, key }
    }
}

impl CompiledQuota {
    /// The ordinal of a bucket counts the limits before it in its list that would
    /// share it.
    fn all(rule: &Rule, quotas: &[Quota]) -> Vec<Self> {
        let is_pinned = rule.key.attributes().next().is_none();
        let ordinal = |place: usize, quota: &Quota| {
            quotas[..place].iter().filter(|earlier| earlier.shares_bucket_with(quota)).count()
        };
        let one = |(place, quota): (usize, &Quota)| Self {
            quota: *quota,
            bucket: BucketName::new(&rule.name, ordinal(place, quota)).pinned(is_pinned),
            policy: PolicyText::new(&rule.name, quota, quotas),
            lease: LeaseTerms::of(rule.lease, quota),
        };
        quotas.iter().enumerate().map(one).collect()
    }
}

fn check_all(rules: &[Rule]) -> Result<(), RuleSetError> {
    let mut names = HashSet::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        let fail = |reason| RuleSetError { item: RuleSetItem::Rule { name: rule.name.clone() }, index, reason };
        check(rule).map_err(fail)?;
        if !names.insert(rule.name.as_str()) {
            return Err(fail("the name is used by an earlier rule: give each rule its own".to_owned()));
        }
    }
    Ok(())
}

fn check(rule: &Rule) -> Result<(), String> {
    let name = &rule.name;
    if name.is_empty() {
        return Err("the name is empty: give the rule one".to_owned());
    }
    if RESERVED_NAMES.contains(&name.as_str()) {
        return Err(format!("the name {name:?} stands for something else in metrics and violations: choose another"));
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
