//! Index of bans by attribute. Only attributes that have bans are looked up, and no
//! clock is read here.

use std::collections::HashSet;

use super::error::{RuleSetError, RuleSetItem};
use super::index::{AttributeId, Index, Map};
use super::network_map::NetworkMap;
use crate::ban::{Ban, BannedValue};

#[derive(Debug, Default)]
pub(super) struct CompiledBans {
    pub(super) list: Vec<Ban>,
    by_attribute: Vec<(AttributeId, AttributeBans)>,
}

/// The bans on values of one attribute, by their numbers.
#[derive(Debug, Default)]
struct AttributeBans {
    exact: Map<Box<str>, u32>,
    networks: NetworkMap<Vec<u32>>,
    wild: Vec<u32>,
}

impl CompiledBans {
    /// Compiles bans; the attributes they name are numbered by `index`.
    pub(super) fn new(list: Vec<Ban>, index: &mut Index) -> Result<Self, RuleSetError> {
        let mut known = HashSet::with_capacity(list.len());
        for (number, ban) in list.iter().enumerate() {
            let fail =
                |reason| RuleSetError { item: RuleSetItem::Ban { subject: ban.subject() }, index: number, reason };
            if let Some(reason) = ban.invalid_reason() {
                return Err(fail(reason));
            }
            if !known.insert((&ban.attribute, &ban.value)) {
                return Err(fail("it is banned by an earlier ban already: keep one of them".to_owned()));
            }
        }
        let mut bans = Self::default();
        for (number, ban) in list.iter().enumerate() {
            bans.insert(number as u32, ban, index.attribute(&ban.attribute));
        }
        bans.list = list;
        Ok(bans)
    }

    fn insert(&mut self, number: u32, ban: &Ban, id: AttributeId) {
        let place = self.by_attribute.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            self.by_attribute.push((id, AttributeBans::default()));
            self.by_attribute.len() - 1
        });
        let filed = &mut self.by_attribute[place].1;
        match &ban.value {
            BannedValue::Network(network) => filed.networks.entry(*network).push(number),
            BannedValue::Text(text) => match text.as_exact() {
                Some(exact) => {
                    filed.exact.insert(exact.into(), number);
                }
                None => filed.wild.push(number),
            },
        }
    }

    /// The ban on a request, expired or not: of several the one that ends last,
    /// since until then it will not be served.
    #[inline]
    pub(super) fn find(&self, values: &[Option<&str>]) -> Option<u32> {
        if self.by_attribute.is_empty() { None } else { self.longest(values) }
    }

    fn longest(&self, values: &[Option<&str>]) -> Option<u32> {
        let mut longest: Option<(u64, u32)> = None;
        let mut found = |number: u32| {
            let until_us = self.list[number as usize].until_us();
            if longest.is_none_or(|(known_us, _)| known_us < until_us) {
                longest = Some((until_us, number));
            }
        };
        for (id, filed) in &self.by_attribute {
            let Some(value) = values[*id] else { continue };
            filed.find(&self.list, value, &mut found);
        }
        longest.map(|(_, number)| number)
    }
}

impl AttributeBans {
    fn find(&self, list: &[Ban], value: &str, found: &mut impl FnMut(u32)) {
        let exact = if self.exact.is_empty() { None } else { self.exact.get(value) };
        if let Some(number) = exact {
            found(*number);
        }
        self.networks.find(value, |numbers| numbers.iter().for_each(|number| found(*number)));
        for number in &self.wild {
            match &list[*number as usize].value {
                BannedValue::Text(text) if text.matches(value) => found(*number),
                _ => {}
            }
        }
    }
}
