//! Descriptor trees: limits in the format of envoyproxy/ratelimit. Plain data.

mod to_rules;

pub use to_rules::TreeRules;

use crate::decision::FailurePolicy;
use crate::quota::{Algorithm, Quota};
use crate::rule::Mode;

/// The limits of one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorTree {
    /// Requests of this domain only.
    pub domain: String,
    /// How a request limit is counted, if the tree has
    /// none for it.
    pub algorithm: Algorithm,
    /// What the first entry of a request is compared with.
    pub descriptors: Vec<Descriptor>,
    /// Warnings of keys in the file that have no effect.
    pub warnings: Vec<String>,
}

/// One level of a tree: what an entry is compared with, and the limit of the
/// requests that end here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The entry's name.
    pub key: String,
    /// The entry's value, `*` standing for any run of characters; empty: any.
    pub value: String,
    /// What is allowed to requests that end here; none: anything.
    pub limit: Option<DescriptorLimit>,
    /// Whether the limit denies.
    pub mode: Mode,
    /// Whether the limit denies only together with all others of this kind.
    pub is_quota_mode: bool,
    /// Whether all values that match the pattern are counted together.
    pub is_shared: bool,
    /// Whether metrics name every value of the path.
    pub detailed_metric: bool,
    /// Whether metrics name this entry's value.
    pub value_to_metric: bool,
    /// Additional metadata of responses, a JSON object; empty: none.
    pub metadata: String,
    /// What the next entry is compared with.
    pub descriptors: Vec<Self>,
}

/// What requests are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// Its name, by which others replace it; may be empty.
    pub name: String,
    /// How many.
    pub allowance: DescriptorAllowance,
    /// The names of limits that do not count where this one applies.
    pub replaces: Vec<String>,
    /// How it decides when the store does not reply.
    pub on_store_failure: FailurePolicy,
}

/// How many requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorAllowance {
    /// Every one; nothing is counted.
    Unlimited,
    /// None, as a limit of 0 per this period.
    Nothing {
        /// The period in microseconds.
        period_us: u64,
    },
    /// So many.
    Quota(Quota),
}

impl Descriptor {
    /// How the level is named beside its siblings: no two may have the same.
    #[must_use]
    pub fn id(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }

    /// What its limit allows, if it has one.
    #[must_use]
    pub fn allowance(&self) -> Option<DescriptorAllowance> {
        self.limit.as_ref().map(|limit| limit.allowance)
    }

    /// Whether the value is a pattern.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.value.contains('*')
    }
}
