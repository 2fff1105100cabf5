//! A rule: conditions, a key and limits. Plain data.

mod condition;
mod key;
mod pattern;

pub use condition::{Condition, Matcher};
pub(crate) use condition::{Handle, canonical, named_network};
pub(crate) use key::is_attribute_name;
pub use key::{KeyPattern, KeyPatternError};
pub use pattern::{Pattern, PatternError};

use crate::decision::FailurePolicy;
use crate::quota::Quota;

/// The most quotas one rule may have.
pub const QUOTAS_MAX: usize = 16;
/// Names that no rule may have: bans are recorded under the first, and rules without
/// metrics of their own are counted under the second.
pub(crate) const RESERVED_NAMES: [&str; 2] = ["ban", "other"];
/// The longest rule name in bytes.
pub const RULE_NAME_MAX: usize = 128;

/// What a rule does with a request that it would deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// It is denied.
    #[default]
    Enforce,
    /// It is counted and reported, and passes.
    Shadow,
    /// The rule is ignored.
    Off,
}

/// Whether tokens of a shared bucket are prepaid and spent on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lease {
    /// Never.
    #[default]
    Off,
    /// For so many microseconds at a time.
    For(u64),
    /// When a subject's demand on this node deserves it.
    Auto,
}

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique in its rule set: printable ASCII.
    pub name: String,
    /// Requests of this domain only; empty: those without one.
    pub domain: String,
    /// The subject that a request is counted for.
    pub key: KeyPattern,
    /// What kind of subject that is, for people: `user`, `ip`, `global`.
    pub scope: String,
    /// All of these must hold, one or more an attribute.
    pub when: Vec<(String, Condition)>,
    /// All of these must pass.
    pub quotas: Vec<Quota>,
    /// Whether it denies.
    pub mode: Mode,
    /// How it decides when the store does not reply.
    pub on_store_failure: FailurePolicy,
    /// Whether its tokens may be prepaid. It changes how fast a limit is that is
    /// shared through Redis, never what it allows; see [`lease`](crate::lease).
    pub lease: Lease,
    /// Rules of higher priority come first: where several deny or govern alike, the first
    /// of them governs.
    pub priority: i32,
    /// What it is for.
    pub description: String,
}

impl Rule {
    /// An enforced rule without conditions.
    #[must_use]
    pub fn new(name: impl Into<String>, key: KeyPattern, quotas: Vec<Quota>) -> Self {
        Self {
            name: name.into(),
            domain: String::new(),
            scope: key.scope().to_owned(),
            key,
            when: Vec::new(),
            quotas,
            mode: Mode::default(),
            on_store_failure: FailurePolicy::default(),
            lease: Lease::default(),
            priority: 0,
            description: String::new(),
        }
    }

    /// The same rule with one condition more.
    #[must_use]
    pub fn when(mut self, attribute: impl Into<String>, condition: Condition) -> Self {
        self.when.push((attribute.into(), condition));
        self
    }
}
