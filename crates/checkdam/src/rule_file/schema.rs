//! The serde schema of a rule file.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::quota::{Align, DAY_US, QuotaError, QuotaSpec, parse_period};
use crate::rule::{Condition, Matcher};

pub(super) type SpannedText = Spanned<String>;
pub(super) type Limits = Spanned<Vec<Spanned<LimitWire>>>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWire {
    pub(super) rules: Option<Vec<Spanned<RuleWire>>>,
    pub(super) overrides: Option<Vec<Spanned<OverrideWire>>>,
    pub(super) bans: Option<Vec<Spanned<BanWire>>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleWire {
    pub(super) name: Option<SpannedText>,
    pub(super) key: Option<SpannedText>,
    pub(super) scope: Option<String>,
    pub(super) domain: Option<String>,
    #[serde(default)]
    pub(super) when: Conditions,
    pub(super) limits: Option<Limits>,
    pub(super) algorithm: Option<SpannedText>,
    pub(super) strict: Option<Spanned<bool>>,
    pub(super) mode: Option<SpannedText>,
    pub(super) on_store_failure: Option<SpannedText>,
    pub(super) lease: Option<SpannedText>,
    pub(super) priority: Option<i32>,
    pub(super) description: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverrideWire {
    pub(super) rule: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) limits: Option<Limits>,
    /// Text, so that no decimal is rounded on its way.
    pub(super) scale: Option<SpannedText>,
    pub(super) unlimited: Option<bool>,
    pub(super) description: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BanWire {
    pub(super) subject: Option<SpannedText>,
    pub(super) until: Option<SpannedText>,
    pub(super) reason: Option<String>,
}

/// A limit: text such as `10/s burst 50`, or its parts.
pub(super) enum LimitWire {
    Text(String),
    Parts(LimitParts),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitParts {
    limit: u64,
    per: String,
    burst: Option<u64>,
    initial: Option<u64>,
}

impl LimitWire {
    pub(super) fn spec(&self) -> Result<QuotaSpec, QuotaError> {
        match self {
            Self::Text(text) => text.parse(),
            Self::Parts(parts) => {
                let (period_us, align) = match parts.per.as_str() {
                    "calendar day" => (DAY_US, Align::Day),
                    "calendar week" => (7 * DAY_US, Align::Week),
                    "calendar month" => (30 * DAY_US, Align::Month),
                    "calendar year" => (365 * DAY_US, Align::Year),
                    text => {
                        let period_us = parse_period(text).ok_or_else(|| QuotaError::Syntax {
                            text: text.chars().take(80).collect(),
                            reason: "per is not a period: write s, 30s, m, h, d, w, month, y or \"calendar month\""
                                .to_owned(),
                        })?;
                        (period_us, Align::Epoch)
                    }
                };
                Ok(QuotaSpec { amount: parts.limit, period_us, burst: parts.burst, initial: parts.initial, align })
            }
        }
    }
}

impl<'de> Deserialize<'de> for LimitWire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LimitVisitor;
        impl<'de> Visitor<'de> for LimitVisitor {
            type Value = LimitWire;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a limit such as \"10/s burst 50\" or {limit: 10, per: s, burst: 50}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LimitWire, E> {
                Ok(LimitWire::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitWire, A::Error> {
                LimitParts::deserialize(de::value::MapAccessDeserializer::new(map)).map(LimitWire::Parts)
            }
        }
        deserializer.deserialize_any(LimitVisitor)
    }
}

/// The conditions of a rule, by attribute, in their order.
#[derive(Default)]
pub(super) struct Conditions(Vec<(String, Spanned<ConditionWire>)>);

impl IntoIterator for Conditions {
    type Item = (String, Spanned<ConditionWire>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConditionsVisitor;
        impl<'de> Visitor<'de> for ConditionsVisitor {
            type Value = Conditions;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("attributes and what they must be, such as {plan: free}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Conditions, A::Error> {
                let mut conditions = Vec::new();
                while let Some(entry) = map.next_entry::<String, Spanned<ConditionWire>>()? {
                    conditions.push(entry);
                }
                Ok(Conditions(conditions))
            }
        }
        deserializer.deserialize_map(ConditionsVisitor)
    }
}

/// What an attribute must be: a value, a list of values, or named tests.
pub(super) enum ConditionWire {
    Values(Vec<Value>),
    Tests(Box<Tests>),
}

/// A value that a condition names.
pub(super) enum Value {
    /// A pattern, a network, or exact text, as it reads.
    Read(String),
    /// Exact text, however it reads.
    Exact(String),
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tests {
    #[serde(rename = "in")]
    within: Option<Values>,
    not_in: Option<Values>,
    not: Option<Values>,
    /// Compared as they are: neither patterns nor networks.
    equals: Option<Values>,
    present: Option<bool>,
    all: Option<Vec<ConditionWire>>,
}

impl ConditionWire {
    /// The equivalent conditions; all must hold.
    pub(super) fn compile(self) -> Result<Vec<Condition>, String> {
        let tests = match self {
            Self::Values(values) => return Ok(vec![Condition::In(matchers(&values)?)]),
            Self::Tests(tests) => *tests,
        };
        let mut conditions = Vec::new();
        if let Some(Values(values)) = tests.within {
            conditions.push(Condition::In(matchers(&values)?));
        }
        for Values(values) in [tests.not_in, tests.not].into_iter().flatten() {
            conditions.push(Condition::NotIn(matchers(&values)?));
        }
        if let Some(Values(values)) = tests.equals {
            conditions.push(Condition::In(values.into_iter().map(|value| Matcher::Exact(value.into_text())).collect()));
        }
        if let Some(expected) = tests.present {
            conditions.push(Condition::Present(expected));
        }
        for condition in tests.all.into_iter().flatten() {
            conditions.extend(condition.compile()?);
        }
        if conditions.is_empty() {
            return Err("a condition is empty: use in, not_in, not, equals, present or all".to_owned());
        }
        Ok(conditions)
    }
}

fn matchers(values: &[Value]) -> Result<Vec<Matcher>, String> {
    if values.is_empty() {
        return Err("a condition has an empty list: nothing could ever match it".to_owned());
    }
    let matcher = |value: &Value| match value {
        Value::Read(text) => Matcher::parse(text).map_err(|error| error.to_string()),
        Value::Exact(text) => Ok(Matcher::Exact(text.clone())),
    };
    values.iter().map(matcher).collect()
}

impl Value {
    fn into_text(self) -> String {
        match self {
            Self::Read(text) | Self::Exact(text) => text,
        }
    }
}

impl<'de> Deserialize<'de> for ConditionWire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValuesVisitor { with_tests: true })
    }
}

/// One value or a list of them.
struct Values(Vec<Value>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ValuesVisitor { with_tests: false })? {
            ConditionWire::Values(values) => Ok(Self(values)),
            ConditionWire::Tests(_) => Err(de::Error::custom("expected a value or a list of values")),
        }
    }
}

struct ValuesVisitor {
    with_tests: bool,
}

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = ConditionWire;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value, a list of values")?;
        if self.with_tests { out.write_str(", or tests (in, not_in, not, equals, present, all)") } else { Ok(()) }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ConditionWire, E> {
        Ok(ConditionWire::Values(vec![Value::Read(text.to_owned())]))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<ConditionWire, E> {
        Ok(ConditionWire::Values(vec![Value::Read(value.to_string())]))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<ConditionWire, E> {
        Ok(ConditionWire::Values(vec![Value::Read(value.to_string())]))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<ConditionWire, E> {
        Ok(ConditionWire::Values(vec![Value::Read(value.to_string())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ConditionWire, A::Error> {
        let mut values = Vec::new();
        while let Some(Scalar(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(ConditionWire::Values(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ConditionWire, A::Error> {
        if !self.with_tests {
            return Err(de::Error::custom("expected a value or a list of values, not a map"));
        }
        let tests = Tests::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(ConditionWire::Tests(Box::new(tests)))
    }
}

/// A value in a list: text, a number or truth value read as text, or
/// `{equals: text}`.
struct Scalar(Value);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ConditionWire::deserialize(deserializer)? {
            ConditionWire::Values(mut values) if values.len() == 1 => Ok(Self(values.remove(0))),
            ConditionWire::Tests(tests) => match *tests {
                Tests {
                    equals: Some(Values(mut values)),
                    within: None,
                    not_in: None,
                    not: None,
                    present: None,
                    all: None,
                } if values.len() == 1 => Ok(Self(Value::Exact(values.remove(0).into_text()))),
                _ => Err(de::Error::custom("expected a value in the list, or {equals: a single value}")),
            },
            ConditionWire::Values(_) => Err(de::Error::custom("expected a single value in the list")),
        }
    }
}
