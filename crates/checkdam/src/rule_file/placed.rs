//! Definitions with their places in the files they come from.

use serde_saphyr::Location;

use crate::ban::Ban;
use crate::definitions::Definitions;
use crate::descriptor::DescriptorTree;
use crate::overrides::Override;
use crate::rule::Rule;
use crate::ruleset::{Item, RuleSetError};

/// The number of a file, and a place in it.
pub(super) type Place = (usize, Location);

/// Definitions with their places.
#[derive(Default)]
pub(super) struct Placed {
    pub(super) rules: Vec<(Place, Rule)>,
    pub(super) overrides: Vec<(Place, Override)>,
    pub(super) bans: Vec<(Place, Ban)>,
    pub(super) trees: Vec<(Place, DescriptorTree)>,
}

/// The places alone.
pub(super) struct Places {
    rules: Vec<Place>,
    overrides: Vec<Place>,
    bans: Vec<Place>,
    trees: Vec<Place>,
}

impl Placed {
    pub(super) fn split(self) -> (Definitions, Places) {
        let (rule_places, rules) = self.rules.into_iter().unzip();
        let (override_places, overrides) = self.overrides.into_iter().unzip();
        let (ban_places, bans) = self.bans.into_iter().unzip();
        let (tree_places, trees) = self.trees.into_iter().unzip();
        let places = Places { rules: rule_places, overrides: override_places, bans: ban_places, trees: tree_places };
        (Definitions { rules, overrides, bans, trees }, places)
    }

    /// Joins the trees of one domain, in the order of their files.
    pub(super) fn merge_domains(&mut self) {
        let mut merged: Vec<(Place, DescriptorTree)> = Vec::new();
        for (place, tree) in std::mem::take(&mut self.trees) {
            match merged.iter_mut().find(|(_, known)| known.domain == tree.domain) {
                Some((_, known)) => {
                    known.descriptors.extend(tree.descriptors);
                    known.remarks.extend(tree.remarks);
                }
                None => merged.push((place, tree)),
            }
        }
        self.trees = merged;
    }
}

impl Places {
    /// Where what was refused stands.
    pub(super) fn of(&self, error: &RuleSetError) -> Place {
        let places = match error.item {
            Item::Rule { .. } => &self.rules,
            Item::Override { .. } => &self.overrides,
            Item::Ban { .. } => &self.bans,
            Item::Domain { .. } => &self.trees,
        };
        places.get(error.index).copied().unwrap_or((0, Location::UNKNOWN))
    }
}
