//! Serializes rules, overrides and bans in the schema of a rule file, for JSON and
//! database columns. Default values are omitted.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::conditions::conditions;
use super::enum_names::{self, MODES, POLICIES};
use super::yaml_value::YamlValue;
use crate::ban::Ban;
use crate::overrides::{Allowance, Override, Scale};
use crate::quota::{Algorithm, Quota, period_text};
use crate::rule::{Lease, Rule};
use crate::time::rfc3339;

/// A rule as a rule file writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleText {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The domain, if it has one.
    pub domain: Option<String>,
    /// Its key pattern.
    pub key: String,
    /// The kind of subject, if it differs from the key's.
    pub scope: Option<String>,
    /// Its conditions.
    pub when: ConditionsText,
    /// Its limits.
    pub limits: Vec<String>,
    /// How it counts, if not as a token bucket.
    pub algorithm: Option<&'static str>,
    /// Whether a sliding window is strict.
    pub strict: bool,
    /// What it does with requests that it would deny, if it does not deny them.
    pub mode: Option<&'static str>,
    /// The failure policy, if not `local`.
    pub on_store_failure: Option<&'static str>,
    /// For how long tokens are prepaid, or `auto`.
    pub lease: Option<String>,
    /// Its priority, if not 0.
    pub priority: Option<i32>,
}

/// A rule's conditions as a rule file writes them: a map of attributes and what
/// they must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConditionsText(Vec<(String, YamlValue)>);

/// An override as a rule file writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverrideText {
    /// The rule's name.
    pub rule: String,
    /// The subjects with these limits.
    pub subject: String,
    /// What it is for.
    pub description: Option<String>,
    /// Limits instead of the rule's.
    pub limits: Option<Vec<String>>,
    /// So many times the rule's limits.
    pub scale: Option<Scale>,
    /// Whether anything is allowed.
    pub unlimited: bool,
}

/// A ban as a rule file writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BanText {
    /// The banned subject: an attribute and its value.
    pub subject: String,
    /// When it ends, in RFC 3339; never if absent.
    pub until: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

fn filled(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

impl From<&Rule> for RuleText {
    fn from(rule: &Rule) -> Self {
        let algorithm = rule.quotas.first().map(Quota::algorithm).unwrap_or_default();
        Self {
            name: rule.name.clone(),
            description: filled(&rule.description),
            domain: filled(&rule.domain),
            key: rule.key.text().to_owned(),
            scope: Some(rule.scope.clone()).filter(|scope| scope != rule.key.scope()),
            when: ConditionsText(conditions(&rule.when)),
            limits: rule.quotas.iter().map(ToString::to_string).collect(),
            algorithm: Some(algorithm.name()).filter(|name| *name != Algorithm::default().name()),
            strict: matches!(algorithm, Algorithm::SlidingWindow { strict: true }),
            mode: enum_names::non_default(rule.mode, &MODES),
            on_store_failure: enum_names::non_default(rule.on_store_failure, &POLICIES),
            lease: match rule.lease {
                Lease::Off => None,
                Lease::For(length_us) => Some(period_text(length_us)),
                Lease::Auto => Some("auto".to_owned()),
            },
            priority: Some(rule.priority).filter(|priority| *priority != 0),
        }
    }
}

impl From<&Override> for OverrideText {
    fn from(one: &Override) -> Self {
        let (mut limits, mut scale) = (None, None);
        match &one.allowance {
            Allowance::Limits(specs) => limits = Some(specs.iter().map(ToString::to_string).collect()),
            Allowance::Scale(given) => scale = Some(*given),
            Allowance::Unlimited => {}
        }
        Self {
            rule: one.rule.clone(),
            subject: one.subject.text().to_owned(),
            description: filled(&one.description),
            limits,
            scale,
            unlimited: one.allowance == Allowance::Unlimited,
        }
    }
}

impl From<&Ban> for BanText {
    fn from(ban: &Ban) -> Self {
        Self { subject: ban.subject(), until: ban.until_unix_s.map(rfc3339), reason: filled(&ban.reason) }
    }
}

/// The fields of an item of a rule file, in the order in which they are written.
pub(super) type Fields = Vec<(&'static str, YamlValue)>;

/// The fields that are given.
fn given<const N: usize>(fields: [(&'static str, Option<YamlValue>); N]) -> Fields {
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn text(text: Option<&str>) -> Option<YamlValue> {
    text.map(YamlValue::text)
}

fn truth(truth: bool) -> Option<YamlValue> {
    truth.then_some(YamlValue::Truth(true))
}

impl RuleText {
    pub(super) fn fields(&self) -> Fields {
        given([
            ("name", text(Some(&self.name))),
            ("description", text(self.description.as_deref())),
            ("domain", text(self.domain.as_deref())),
            ("priority", self.priority.map(|priority| YamlValue::Number(priority.into()))),
            ("key", text(Some(&self.key))),
            ("scope", text(self.scope.as_deref())),
            ("when", Some(YamlValue::Map(self.when.0.clone())).filter(|_| !self.when.is_empty())),
            ("limits", Some(YamlValue::texts(&self.limits))),
            ("algorithm", text(self.algorithm)),
            ("strict", truth(self.strict)),
            ("mode", text(self.mode)),
            ("on_store_failure", text(self.on_store_failure)),
            ("lease", text(self.lease.as_deref())),
        ])
    }
}

impl ConditionsText {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl OverrideText {
    pub(super) fn fields(&self) -> Fields {
        given([
            ("rule", text(Some(&self.rule))),
            ("subject", text(Some(&self.subject))),
            ("description", text(self.description.as_deref())),
            ("limits", self.limits.as_deref().map(YamlValue::texts)),
            ("scale", self.scale.map(|scale| YamlValue::Decimal(scale.thousandths()))),
            ("unlimited", truth(self.unlimited)),
        ])
    }
}

impl BanText {
    pub(super) fn fields(&self) -> Fields {
        given([
            ("subject", text(Some(&self.subject))),
            ("until", text(self.until.as_deref())),
            ("reason", text(self.reason.as_deref())),
        ])
    }
}

fn map<'a, N, S>(fields: impl ExactSizeIterator<Item = (N, &'a YamlValue)>, out: S) -> Result<S::Ok, S::Error>
where
    N: AsRef<str>,
    S: Serializer,
{
    let mut map = out.serialize_map(Some(fields.len()))?;
    for (name, value) in fields {
        map.serialize_entry(name.as_ref(), value)?;
    }
    map.end()
}

impl Serialize for RuleText {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        map(self.fields().iter().map(|(name, value)| (name, value)), out)
    }
}

impl Serialize for OverrideText {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        map(self.fields().iter().map(|(name, value)| (name, value)), out)
    }
}

impl Serialize for BanText {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        map(self.fields().iter().map(|(name, value)| (name, value)), out)
    }
}

impl Serialize for ConditionsText {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        map(self.0.iter().map(|(name, value)| (name, value)), out)
    }
}
