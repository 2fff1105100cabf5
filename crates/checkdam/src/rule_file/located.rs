//! Definitions with the file and line that they come from.

use serde_saphyr::Location;

use crate::ban::Ban;
use crate::definitions::Definitions;
use crate::descriptor::DescriptorTree;
use crate::overrides::Override;
use crate::rule::Rule;
use crate::ruleset::{Item, RuleSetError};

/// The number of a file, and a location in it.
pub(super) type FileLocation = (usize, Location);

/// Definitions with their locations.
#[derive(Default)]
pub(super) struct LocatedDefinitions {
    pub(super) rules: Vec<(FileLocation, Rule)>,
    pub(super) overrides: Vec<(FileLocation, Override)>,
    pub(super) bans: Vec<(FileLocation, Ban)>,
    pub(super) trees: Vec<(FileLocation, DescriptorTree)>,
}

/// The locations alone.
pub(super) struct Locations {
    rules: Vec<FileLocation>,
    overrides: Vec<FileLocation>,
    bans: Vec<FileLocation>,
    trees: Vec<FileLocation>,
}

impl LocatedDefinitions {
    pub(super) fn split(self) -> (Definitions, Locations) {
        let (rule_places, rules) = self.rules.into_iter().unzip();
        let (override_places, overrides) = self.overrides.into_iter().unzip();
        let (ban_places, bans) = self.bans.into_iter().unzip();
        let (tree_places, trees) = self.trees.into_iter().unzip();
        let places = Locations { rules: rule_places, overrides: override_places, bans: ban_places, trees: tree_places };
        (Definitions { rules, overrides, bans, trees }, places)
    }

    /// Joins the trees of one domain, in the order of their files.
    pub(super) fn merge_domains(&mut self) {
        let mut merged: Vec<(FileLocation, DescriptorTree)> = Vec::new();
        for (place, tree) in std::mem::take(&mut self.trees) {
            match merged.iter_mut().find(|(_, known)| known.domain == tree.domain) {
                Some((_, known)) => {
                    known.descriptors.extend(tree.descriptors);
                    known.warnings.extend(tree.warnings);
                }
                None => merged.push((place, tree)),
            }
        }
        self.trees = merged;
    }
}

impl Locations {
    /// The location of a rejected item.
    pub(super) fn of(&self, error: &RuleSetError) -> FileLocation {
        let places = match error.item {
            Item::Rule { .. } => &self.rules,
            Item::Override { .. } => &self.overrides,
            Item::Ban { .. } => &self.bans,
            Item::Domain { .. } => &self.trees,
        };
        places.get(error.index).copied().unwrap_or((0, Location::UNKNOWN))
    }
}
