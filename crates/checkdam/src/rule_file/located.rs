//! Finds the line and column of a value in a rule file. Definitions store no positions:
//! when one is rejected, the file is parsed again up to that value.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Options, Spanned};

use crate::definitions::Definitions;
use crate::descriptor::DescriptorTree;
use crate::rule::spec_parts::PathStep;
use crate::ruleset::{RuleSetError, RuleSetItem};

/// Definitions of several files, and which are whose.
#[derive(Default)]
pub(super) struct LocatedDefinitions {
    pub(super) definitions: Definitions,
    /// For each file, how many rules, overrides and bans stand in those before it.
    starts: Vec<[usize; 3]>,
    /// The number of a tree's file, and the place of its domain.
    tree_places: Vec<(usize, Location)>,
}

/// Where an item stands: a place, or the path that leads to it.
pub(super) enum ItemPlace {
    Path([PathStep; 2]),
    Location(Location),
}

impl LocatedDefinitions {
    /// What is added from now on is of the next file.
    pub(super) fn begin_file(&mut self) {
        let Definitions { rules, overrides, bans, .. } = &self.definitions;
        self.starts.push([rules.len(), overrides.len(), bans.len()]);
    }

    pub(super) fn add_tree(&mut self, place: Location, tree: DescriptorTree) {
        self.tree_places.push((self.starts.len().saturating_sub(1), place));
        self.definitions.trees.push(tree);
    }

    /// Joins the trees of one domain, in the order of their files.
    pub(super) fn merge_domains(&mut self) {
        let places = std::mem::take(&mut self.tree_places);
        let mut merged: Vec<DescriptorTree> = Vec::new();
        for (place, tree) in places.into_iter().zip(std::mem::take(&mut self.definitions.trees)) {
            match merged.iter_mut().find(|known| known.domain == tree.domain) {
                Some(known) => {
                    known.descriptors.extend(tree.descriptors);
                    known.warnings.extend(tree.warnings);
                }
                None => {
                    self.tree_places.push(place);
                    merged.push(tree);
                }
            }
        }
        self.definitions.trees = merged;
    }

    /// The number of the file that holds what was refused, and where it stands there.
    pub(super) fn place(&self, error: &RuleSetError) -> (usize, ItemPlace) {
        let (kind, list) = match error.item {
            RuleSetItem::Rule { .. } => (0, "rules"),
            RuleSetItem::Override { .. } => (1, "overrides"),
            RuleSetItem::Ban { .. } => (2, "bans"),
            RuleSetItem::Domain { .. } => {
                let (file, place) = self.tree_places.get(error.index).copied().unwrap_or((0, Location::UNKNOWN));
                return (file, ItemPlace::Location(place));
            }
        };
        let file = self.starts.partition_point(|start| start[kind] <= error.index).saturating_sub(1);
        let index = error.index - self.starts.get(file).map_or(0, |start| start[kind]);
        (file, ItemPlace::Path(item_path(list, index)))
    }
}

pub(super) fn item_path(list: &str, index: usize) -> [PathStep; 2] {
    [PathStep::Key(list.to_owned()), PathStep::Index(index)]
}

/// The place in `text` to which `path` leads.
pub(super) fn locate(text: &str, options: Options, path: &[PathStep]) -> Location {
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| Locate { path }.deserialize(yaml))
        .ok()
        .flatten()
        .unwrap_or(Location::UNKNOWN)
}

/// Finds the place of one value; all others are passed over.
struct Locate<'a> {
    path: &'a [PathStep],
}

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = Option<Location>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() {
            return Spanned::<IgnoredAny>::deserialize(deserializer).map(|value| Some(value.referenced));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = Option<Location>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            match self.path.split_first() {
                Some((PathStep::Key(wanted), path)) if *wanted == key => {
                    found = map.next_value_seed(Locate { path })?
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some((PathStep::Index(wanted), path)) = self.path.split_first() else { return Ok(None) };
        for _ in 0..*wanted {
            list.next_element::<IgnoredAny>()?;
        }
        let found = list.next_element_seed(Locate { path })?.flatten();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}
