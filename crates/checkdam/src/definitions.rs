//! Definitions: the rules, overrides, bans and descriptor trees that a rule set is
//! compiled from. Plain data.

use crate::ban::Ban;
use crate::descriptor::DescriptorTree;
use crate::overrides::Override;
use crate::rule::Rule;

/// Rules, overrides, bans and trees, which [`RuleSet::compile`](crate::RuleSet::compile)
/// accepts or rejects as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    /// The rules, in the order in which ties are broken.
    pub rules: Vec<Rule>,
    /// Other limits for some subjects of a rule.
    pub overrides: Vec<Override>,
    /// The bans.
    pub bans: Vec<Ban>,
    /// Limits as trees of descriptors, one a domain.
    pub trees: Vec<DescriptorTree>,
}

impl From<Vec<Rule>> for Definitions {
    fn from(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }
}
