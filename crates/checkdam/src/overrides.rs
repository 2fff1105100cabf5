//! An override: other limits for some subjects of a rule. Plain data.

mod scale;

pub use scale::{Scale, ScaleError};

use crate::quota::{Algorithm, Quota, QuotaError, QuotaSpec};
use crate::subject::SubjectPattern;

/// Other limits for the subjects of one rule that it names.
///
/// Of several that match a subject, an exact one counts before those with
/// wildcards, a wildcard that says more before one that says less, and what is
/// listed first before the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The rule's name.
    pub rule: String,
    /// Whose limits these are: the rule's key as it reads when it is filled,
    /// such as `user:42` or `user:bot-*`. A star stands within one attribute, unless
    /// what separates it from the next is left out.
    pub subject: SubjectPattern,
    /// What they are allowed instead.
    pub allowance: Allowance,
    /// What it is for.
    pub description: String,
}

/// What a subject is allowed instead of a rule's own limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Allowance {
    /// These limits. The first takes the place of the rule's first, and with it
    /// what was charged to that so far.
    Limits(Vec<QuotaSpec>),
    /// So many times what the rule allows.
    Scale(Scale),
    /// Anything: the rule does not concern the subject.
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
    /// The quotas that stand for a rule's own; none if anything is allowed.
    pub(crate) fn quotas(&self, own: &[Quota]) -> Result<Vec<Quota>, QuotaError> {
        let algorithm = own.first().map_or_else(Algorithm::default, Quota::algorithm);
        match self {
            Self::Limits(specs) => specs.iter().map(|spec| Quota::new(*spec, algorithm)).collect(),
            Self::Scale(scale) => own.iter().map(|quota| scale.of(quota)).collect(),
            Self::Unlimited => Ok(Vec::new()),
        }
    }
}
