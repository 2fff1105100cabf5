//! An override: other limits for some subjects of a rule. Plain data.

mod scale;

pub use scale::{Scale, ScaleError};

use crate::quota::{Algorithm, Quota, QuotaError, QuotaSpec};
use crate::subject::SubjectPattern;

/// Other limits for some subjects of one rule.
///
/// Of several that match a subject, an exact one takes precedence over wildcards, a
/// wildcard with more literal text over one with less, and the first listed over the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The rule's name.
    pub rule: String,
    /// The subjects: the rule's key, filled in, such as `user:42` or `user:bot-*`. A star
    /// matches within one attribute, unless the text that separates it from the next is
    /// left out.
    pub subject: SubjectPattern,
    /// What they are allowed instead.
    pub allowance: Allowance,
    /// What it is for.
    pub description: String,
}

/// What a subject is allowed instead of a rule's own limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Allowance {
    /// These limits. The first replaces the rule's first, and inherits what was charged
    /// to that so far.
    Limits(Vec<QuotaSpec>),
    /// So many times what the rule allows.
    Scale(Scale),
    /// Everything: the rule does not apply to the subject.
    Unlimited,
}

impl Override {
    /// An override for one subject or, with `*`, for many.
    #[must_use]
    pub fn new(rule: impl Into<String>, subject: &str, allowance: Allowance) -> Self {
        let (rule, subject) = (rule.into(), SubjectPattern::parse(subject));
        Self { rule, subject, allowance, description: String::new() }
    }
}

impl Allowance {
    /// The quotas that replace a rule's own; none if everything is allowed.
    pub(crate) fn quotas(&self, own: &[Quota]) -> Result<Vec<Quota>, QuotaError> {
        let algorithm = own.first().map_or_else(Algorithm::default, Quota::algorithm);
        match self {
            Self::Limits(specs) => specs.iter().map(|spec| Quota::new(*spec, algorithm)).collect(),
            Self::Scale(scale) => own.iter().map(|quota| scale.of(quota)).collect(),
            Self::Unlimited => Ok(Vec::new()),
        }
    }
}
