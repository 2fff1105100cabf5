//! Errors of rejected definitions: the item and the reason.

use std::fmt;

/// Which item was rejected, and why: the definitions are rejected as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{item}: {reason}")]
pub struct RuleSetError {
    /// The kind of item.
    pub item: RuleSetItem,
    /// Its index in the list of its kind, from 0.
    pub index: usize,
    /// Why.
    pub reason: String,
}

/// A rule, an override, a ban or a tree, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetItem {
    /// A rule.
    Rule {
        /// Its name.
        name: String,
    },
    /// An override.
    Override {
        /// The rule it names.
        rule: String,
        /// Its subject.
        subject: String,
    },
    /// A ban.
    Ban {
        /// Its subject.
        subject: String,
    },
    /// A tree of descriptors.
    Domain {
        /// Its domain.
        name: String,
    },
}

/// Names are cut to this many characters in messages.
const SHOWN_MAX: usize = 80;

impl fmt::Display for RuleSetItem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { name } => write!(out, "rule {:?}", shown(name)),
            Self::Override { rule, subject } => {
                write!(out, "override of {:?} for rule {:?}", shown(subject), shown(rule))
            }
            Self::Domain { name } => write!(out, "domain {:?}", shown(name)),
            Self::Ban { subject } => write!(out, "ban {:?}", shown(subject)),
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
