//! An override: other limits for some subjects of a rule. Plain data.

mod scale;

pub use scale::{Scale, ScaleError};

use crate::quota::{Quota, QuotaError, QuotaSpec};
use crate::rule::Rule;
#[cfg(feature = "yaml")]
use crate::rule::spec_parts::{LimitSpec, SpecError, filled};
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
    pub(crate) fn quotas(&self, rule: &Rule) -> Result<Vec<Quota>, QuotaError> {
        match self {
            Self::Limits(specs) => {
                specs.iter().map(|spec| Quota::with_calendar(*spec, rule.algorithm, rule.calendar)).collect()
            }
            Self::Scale(scale) => rule.quotas.iter().map(|quota| scale.of(quota)).collect(),
            Self::Unlimited => Ok(Vec::new()),
        }
    }
}

/// An override as it is written: in rule files, in the admin API and in databases.
#[cfg(feature = "yaml")]
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(
    as = OverrideBody,
    description = "An override: one of limits, scale and unlimited.",
    example = json!({"rule": "user-free", "subject": "user:42", "limits": ["100/s burst 500"]})
))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OverrideSpec {
    /// The rule's name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub rule: Option<String>,
    /// Whose limits these are: `user:42`, or with a star `user:bot-*`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub subject: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub description: Option<String>,
    /// These limits instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub limits: Option<Vec<LimitSpec>>,
    /// So many times the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub scale: Option<serde_json::Value>,
    /// No limit at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub unlimited: Option<bool>,
}

#[cfg(feature = "yaml")]
impl TryFrom<OverrideSpec> for Override {
    type Error = SpecError;

    fn try_from(spec: OverrideSpec) -> Result<Self, SpecError> {
        let missing = |what: &str| SpecError::new(format!("the override has no {what}"));
        let rule = spec.rule.ok_or_else(|| missing("rule: write the name of one"))?;
        let subject = spec.subject.ok_or_else(|| missing("subject: write for example subject: \"user:42\""))?;
        let allowance = match (spec.limits, spec.scale, spec.unlimited.unwrap_or_default()) {
            (Some(limits), None, false) => LimitSpec::all(&limits).map(Allowance::Limits),
            (None, Some(scale), false) => {
                let text = scale.as_str().map_or_else(|| scale.to_string(), str::to_owned);
                let fail = |error: ScaleError| SpecError::at("scale", error.to_string());
                text.parse().map(Allowance::Scale).map_err(fail)
            }
            (None, None, true) => Ok(Allowance::Unlimited),
            _ => Err(SpecError::new("give it one of limits: [\"100/s burst 500\"], scale: 10 and unlimited: true")),
        };
        let allowance = allowance.map_err(|error| error.about(format!("override of {subject:?} for rule {rule:?}")))?;
        let description = spec.description.unwrap_or_default();
        Ok(Self { description, ..Self::new(rule, &subject, allowance) })
    }
}

#[cfg(feature = "yaml")]
impl From<&Override> for OverrideSpec {
    fn from(one: &Override) -> Self {
        let mut spec = Self {
            rule: Some(one.rule.clone()),
            subject: Some(one.subject.text().to_owned()),
            description: filled(&one.description),
            ..Self::default()
        };
        match &one.allowance {
            Allowance::Limits(specs) => {
                spec.limits = Some(specs.iter().map(|spec| LimitSpec::Text(spec.to_string())).collect());
            }
            Allowance::Scale(scale) => spec.scale = Some(scale.into()),
            Allowance::Unlimited => spec.unlimited = Some(true),
        }
        spec
    }
}
