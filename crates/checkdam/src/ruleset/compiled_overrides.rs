//! Compiled overrides: the limits of a rule for one subject.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::error::{RuleSetError, RuleSetItem};
use super::index::Map;
use crate::overrides::{Allowance, Override};
use crate::quota::Quota;
use crate::rule::{QUOTAS_MAX, Rule};
use crate::subject::{SPLITS_MAX, SubjectPattern};

#[derive(Debug, Default)]
pub(super) struct CompiledOverrides {
    /// By subject; short ones are stored inline, which saves a cache miss.
    exact: Map<SmallVec<[u8; 22]>, CompiledOverride>,
    /// The nearest first.
    wild: Vec<(WildcardOverride, CompiledOverride)>,
}

#[derive(Debug)]
struct WildcardOverride {
    subject: SubjectPattern,
    /// What each attribute must be, in one way or another; the whole subject counts
    /// if there is none.
    ways: Vec<Vec<SubjectPattern>>,
}

impl WildcardOverride {
    fn matches<'a>(&self, subject: &[u8], values: &(impl Iterator<Item = &'a str> + Clone)) -> bool {
        let fits = |way: &Vec<SubjectPattern>| way.iter().zip(values.clone()).all(|(one, value)| one.matches(value));
        if self.ways.is_empty() { self.subject.matches_bytes(subject) } else { self.ways.iter().any(fits) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CompiledOverride {
    pub(super) number: u32,
    /// Which of the rule's quotas are meant, from the first to before the last;
    /// none if anything is allowed.
    pub(super) quotas: (u32, u32),
}

impl CompiledOverrides {
    /// What applies to a subject, if anything does; `values` are those of its
    /// attributes.
    pub(super) fn of<'a>(
        &self,
        subject: &[u8],
        values: &(impl Iterator<Item = &'a str> + Clone),
    ) -> Option<CompiledOverride> {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(subject) };
        if let Some(compiled_override) = exact {
            return Some(*compiled_override);
        }
        let matches = |(wild, _): &&(WildcardOverride, CompiledOverride)| wild.matches(subject, values);
        self.wild.iter().find(matches).map(|(_, compiled_override)| *compiled_override)
    }
}

/// The overrides of one rule while they are gathered.
pub(super) struct OverridesBuilder {
    pub(super) overrides: CompiledOverrides,
    /// The quotas of overrides, each list once, behind the rule's own.
    pub(super) quotas: Vec<Vec<Quota>>,
    own: usize,
    subjects: SubjectPattern,
    wild: HashSet<String>,
    known: HashMap<Allowance, (u32, u32)>,
    length: u32,
}

/// Groups overrides by the index of their rule.
pub(super) fn group_by_rule(
    rules: &[Rule],
    overrides: &[Override],
) -> Result<HashMap<usize, OverridesBuilder>, RuleSetError> {
    let mut gathered = HashMap::new();
    if overrides.is_empty() {
        return Ok(gathered);
    }
    let places: Map<&str, usize> = rules.iter().enumerate().map(|(place, rule)| (rule.name.as_str(), place)).collect();
    for (index, one) in overrides.iter().enumerate() {
        let item = || RuleSetItem::Override { rule: one.rule.clone(), subject: one.subject.text().to_owned() };
        let fail = |reason| RuleSetError { item: item(), index, reason };
        let Some(place) = places.get(one.rule.as_str()) else {
            return Err(fail("there is no rule of that name: name one, or remove the override".to_owned()));
        };
        let rule = &rules[*place];
        gathered
            .entry(*place)
            .or_insert_with(|| OverridesBuilder::new(rule))
            .add(rule, index as u32, one)
            .map_err(fail)?;
    }
    for gathered in gathered.values_mut() {
        // Stable: of equally specific patterns, the first listed wins.
        gathered.overrides.wild.sort_by_key(|(wild, _)| std::cmp::Reverse(wild.subject.literal_length()));
    }
    Ok(gathered)
}

impl OverridesBuilder {
    fn new(rule: &Rule) -> Self {
        let own = rule.quotas.len();
        Self {
            overrides: CompiledOverrides::default(),
            quotas: Vec::new(),
            own,
            subjects: rule.key.subject_pattern(),
            wild: HashSet::new(),
            known: HashMap::new(),
            length: own as u32,
        }
    }

    fn add(&mut self, rule: &Rule, number: u32, one: &Override) -> Result<(), String> {
        let compiled_override = CompiledOverride { number, quotas: self.quotas(rule, &one.allowance)? };
        let never = || {
            let key = rule.key.text();
            format!("no subject of the rule reads so: its key is {key:?}")
        };
        let twice = || "the rule has an earlier override of that subject: keep one of them".to_owned();
        let Some(exact) = one.subject.as_exact() else {
            let (own, prefix) = (self.subjects.prefix(), one.subject.prefix());
            if !own.starts_with(prefix) && !prefix.starts_with(own) {
                return Err(never());
            }
            if !self.wild.insert(one.subject.text().to_owned()) {
                return Err(twice());
            }
            let Some(ways) = one.subject.split(&rule.key.literals()) else {
                let key = rule.key.text();
                return Err(format!(
                    "the subject fits the key {key:?} in more than {SPLITS_MAX} ways: name its attributes with fewer \
                     wildcards"
                ));
            };
            self.overrides.wild.push((WildcardOverride { subject: one.subject.clone(), ways }, compiled_override));
            return Ok(());
        };
        if !self.subjects.matches(exact) {
            return Err(never());
        }
        match self.overrides.exact.entry(SmallVec::from_slice(exact.as_bytes())) {
            Entry::Occupied(_) => Err(twice()),
            Entry::Vacant(place) => {
                place.insert(compiled_override);
                Ok(())
            }
        }
    }

    /// The range of the allowance's quotas among the rule's; equal ones are stored once.
    fn quotas(&mut self, rule: &Rule, allowance: &Allowance) -> Result<(u32, u32), String> {
        if let Some(known) = self.known.get(allowance) {
            return Ok(*known);
        }
        let count = match allowance {
            Allowance::Limits(specs) => specs.len(),
            Allowance::Scale(_) => self.own,
            Allowance::Unlimited => return Ok((0, 0)),
        };
        if count == 0 {
            return Err("it has no limits: give it at least one, a scale, or unlimited: true".to_owned());
        }
        if count > QUOTAS_MAX {
            return Err(format!("it has {count} limits: at most {QUOTAS_MAX} fit"));
        }
        self.quotas.push(allowance.quotas(rule).map_err(|error| error.to_string())?);
        let range = (self.length, self.length + count as u32);
        self.length = range.1;
        self.known.insert(allowance.clone(), range);
        Ok(range)
    }
}
