//! Index of rules by the attributes of a request.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::network_map::NetworkMap;
use super::{Matched, Values};
use crate::hash::RandomState;
use crate::request::Request;
use crate::rule::{IndexKey, Rule};

/// An attribute's number in one rule set.
pub(super) type AttributeId = usize;

pub(super) type Map<K, V> = HashMap<K, V, RandomState>;

/// So few names that comparing each is quicker than hashing one.
const NAMES_MAX: usize = 8;

/// Finds candidates: every rule that applies to a request, and few others.
#[derive(Debug, Default)]
pub(super) struct Index {
    ids: Map<Box<str>, AttributeId>,
    /// The names of the first few attributes: where there are no others, they
    /// are compared one by one, which is quicker than to hash.
    names: SmallVec<[Box<str>; NAMES_MAX]>,
    /// Rules without a domain that no value, network or prefix singles out.
    always: Vec<u32>,
    /// The same for rules of a domain.
    of_domain: Map<Box<str>, Vec<u32>>,
    by_attribute: Vec<AttributeIndex>,
}

/// The rules filed under values of one attribute.
#[derive(Debug, Default)]
struct AttributeIndex {
    exact: Map<Box<str>, SmallVec<[u32; 2]>>,
    networks: NetworkMap<SmallVec<[u32; 2]>>,
    prefixed: Map<Box<str>, SmallVec<[u32; 2]>>,
    /// The lengths that prefixes have, ascending.
    prefix_lengths: Vec<usize>,
}

/// Where a rule could be filed.
struct IndexCandidate<'a> {
    /// Which of its conditions says so.
    condition: usize,
    attribute: &'a str,
    index_keys: Vec<IndexKey<'a>>,
}

impl Index {
    /// Indexes all rules; also returns the condition that each rule is found by, if that
    /// is known to hold.
    pub(super) fn new(rules: &[Rule]) -> (Self, Vec<Option<usize>>) {
        let places: Vec<Vec<IndexCandidate<'_>>> = rules.iter().map(candidates_of).collect();
        let mut shared: Map<(&str, IndexKey<'_>), usize> = Map::default();
        for place in places.iter().flatten() {
            for index_key in &place.index_keys {
                *shared.entry((place.attribute, *index_key)).or_default() += 1;
            }
        }
        let shared_by =
            |place: &IndexCandidate<'_>| place.index_keys.iter().map(|one| shared[&(place.attribute, *one)]).max();
        let width = |place: &IndexCandidate<'_>| place.index_keys.iter().copied().map(specificity).max();
        let mut index = Self::default();
        let mut held = vec![None; rules.len()];
        for (number, (rule, places)) in rules.iter().zip(&places).enumerate() {
            match places.iter().min_by_key(|place| (shared_by(place), width(place))) {
                Some(place) => {
                    index.insert(number as u32, place);
                    let is_whole = place.index_keys.iter().all(|index_key| matches!(index_key, IndexKey::Exact(_)));
                    held[number] = is_whole.then_some(place.condition);
                }
                None if rule.domain.is_empty() => index.always.push(number as u32),
                None => index.of_domain.entry(rule.domain.as_str().into()).or_default().push(number as u32),
            }
        }
        for attribute in &mut index.by_attribute {
            attribute.prefix_lengths.sort_unstable();
            attribute.prefix_lengths.dedup();
        }
        (index, held)
    }

    /// The number of an attribute, a new one if it is unknown.
    pub(super) fn attribute(&mut self, name: &str) -> AttributeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.ids.len();
        self.ids.insert(name.into(), id);
        if id < NAMES_MAX {
            self.names.push(name.into());
        }
        self.by_attribute.push(AttributeIndex::default());
        id
    }

    /// Files a request's attributes under their numbers.
    #[inline]
    pub(super) fn fill<'a>(&self, request: &'a Request<'_>, values: &mut Values<'a>) {
        for _ in 0..self.ids.len() {
            values.push(None);
        }
        let filed = values.as_mut_slice();
        for (name, value) in request.attributes() {
            let id = if filed.len() <= NAMES_MAX {
                self.names.iter().position(|known| **known == *name)
            } else {
                self.ids.get(name).copied()
            };
            if let Some(id) = id {
                // Of a name that repeats, the first counts.
                filed[id].get_or_insert(value);
            }
        }
    }

    /// Every rule that may apply to the values, ascending, once each.
    pub(super) fn candidates(&self, domain: &str, values: &[Option<&str>]) -> Matched {
        let always = match domain {
            "" => self.always.as_slice(),
            _ => self.of_domain.get(domain).map_or(&[][..], Vec::as_slice),
        };
        let mut found = Matched::new();
        for rule in always {
            found.push(*rule);
        }
        for (attribute, value) in self.by_attribute.iter().zip(values) {
            if let Some(value) = value {
                attribute.collect(value, &mut found);
            }
        }
        if found.len() > always.len() {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    fn insert(&mut self, rule: u32, place: &IndexCandidate<'_>) {
        let id = self.attribute(place.attribute);
        let attribute = &mut self.by_attribute[id];
        for index_key in &place.index_keys {
            let filed = match index_key {
                IndexKey::Exact(text) => attribute.exact.entry((*text).into()).or_default(),
                IndexKey::Network(network) => attribute.networks.entry(*network),
                IndexKey::Prefix(text) => {
                    attribute.prefix_lengths.push(text.len());
                    attribute.prefixed.entry((*text).into()).or_default()
                }
            };
            // A rule may name a value twice.
            if filed.last() != Some(&rule) {
                filed.push(rule);
            }
        }
    }
}

impl AttributeIndex {
    fn collect(&self, value: &str, found: &mut Matched) {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(value) };
        if let Some(rules) = exact {
            rules.iter().for_each(|rule| found.push(*rule));
        }
        self.networks.find(value, |rules| found.extend_from_slice(rules));
        for length in &self.prefix_lengths {
            let Some(prefix) = value.get(..*length) else { if *length > value.len() { break } else { continue } };
            if let Some(rules) = self.prefixed.get(prefix) {
                found.extend_from_slice(rules);
            }
        }
    }
}

/// How unselective a handle is: among equally crowded entries, the narrowest is
/// chosen.
const fn specificity(index_key: IndexKey<'_>) -> u8 {
    match index_key {
        IndexKey::Exact(_) => 0,
        IndexKey::Network(_) => 1,
        IndexKey::Prefix(_) => 2,
    }
}

fn candidates_of(rule: &Rule) -> Vec<IndexCandidate<'_>> {
    let mut places = Vec::new();
    for (number, (attribute, condition)) in rule.when.iter().enumerate() {
        places.extend(condition.index_keys().map(|index_keys| IndexCandidate {
            condition: number,
            attribute,
            index_keys,
        }));
    }
    places
}
