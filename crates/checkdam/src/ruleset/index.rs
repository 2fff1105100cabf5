//! Which rules a request's attributes can concern.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Matched, Values};
use crate::request::Request;
use crate::rule::Rule;

/// An attribute's number in one rule set.
pub(super) type AttributeId = usize;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Finds candidates: every rule that concerns a request, and few others.
#[derive(Debug, Default)]
pub(super) struct Index {
    ids: Map<Box<str>, AttributeId>,
    /// Rules that no exact value and no prefix singles out.
    always: Vec<u32>,
    by_attribute: Vec<ByAttribute>,
}

/// The rules filed under values of one attribute.
#[derive(Debug, Default)]
struct ByAttribute {
    exact: Map<Box<str>, SmallVec<[u32; 2]>>,
    prefixed: Map<Box<str>, SmallVec<[u32; 2]>>,
    /// The lengths that prefixes have, ascending.
    prefix_lengths: Vec<usize>,
}

/// Where a rule could be filed.
struct Place<'a> {
    attribute: &'a str,
    keys: Vec<&'a str>,
    is_exact: bool,
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let places: Vec<Vec<Place<'_>>> = rules.iter().map(places).collect();
        let mut shared: Map<(&str, &str), usize> = Map::default();
        for place in places.iter().flatten() {
            for key in &place.keys {
                *shared.entry((place.attribute, key)).or_default() += 1;
            }
        }
        let crowd = |place: &Place<'_>| place.keys.iter().map(|key| shared[&(place.attribute, *key)]).max();
        let mut index = Self::default();
        for (number, places) in places.iter().enumerate() {
            match places.iter().min_by_key(|place| (crowd(place), !place.is_exact)) {
                Some(place) => index.file(number as u32, place),
                None => index.always.push(number as u32),
            }
        }
        for attribute in &mut index.by_attribute {
            attribute.prefix_lengths.sort_unstable();
            attribute.prefix_lengths.dedup();
        }
        index
    }

    /// The number of an attribute, a new one if it is not known yet.
    pub(super) fn attribute(&mut self, name: &str) -> AttributeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.ids.len();
        self.ids.insert(name.into(), id);
        self.by_attribute.push(ByAttribute::default());
        id
    }

    pub(super) fn values<'a>(&self, request: &'a Request<'_>) -> Values<'a> {
        let mut values = SmallVec::from_elem(None, self.ids.len());
        for (name, value) in request.attributes() {
            if let Some(id) = self.ids.get(name) {
                values[*id] = Some(value);
            }
        }
        values
    }

    /// Every rule that may concern the values, ascending, once each.
    pub(super) fn candidates(&self, values: &Values<'_>) -> Matched {
        let mut found = Matched::from_slice(&self.always);
        for (attribute, value) in self.by_attribute.iter().zip(values) {
            if let Some(value) = value {
                attribute.collect(value, &mut found);
            }
        }
        if found.len() > self.always.len() {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    fn file(&mut self, rule: u32, place: &Place<'_>) {
        let id = self.attribute(place.attribute);
        let attribute = &mut self.by_attribute[id];
        for key in &place.keys {
            if place.is_exact {
                attribute.exact.entry((*key).into()).or_default().push(rule);
            } else {
                attribute.prefixed.entry((*key).into()).or_default().push(rule);
                attribute.prefix_lengths.push(key.len());
            }
        }
    }
}

impl ByAttribute {
    fn collect(&self, value: &str, found: &mut Matched) {
        if !self.exact.is_empty()
            && let Some(rules) = self.exact.get(value)
        {
            found.extend_from_slice(rules);
        }
        for length in &self.prefix_lengths {
            let Some(prefix) = value.get(..*length) else { if *length > value.len() { break } else { continue } };
            if let Some(rules) = self.prefixed.get(prefix) {
                found.extend_from_slice(rules);
            }
        }
    }
}

fn places(rule: &Rule) -> Vec<Place<'_>> {
    rule.when
        .iter()
        .filter_map(|(attribute, condition)| {
            let (keys, is_exact) = match condition.exact_values() {
                Some(keys) => (keys, true),
                None => (condition.prefixes()?, false),
            };
            Some(Place { attribute, keys, is_exact })
        })
        .collect()
}
