//! Shared parts of `RuleSpec`, `OverrideSpec` and `BanSpec`: limits, named choices, and the
//! error that names the invalid field.

use std::fmt;

use crate::quota::{Algorithm, Align, CalendarOptions, Quota, QuotaError, QuotaSpec, parse_period};

/// Why what is written is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", prefix(.what))]
#[non_exhaustive]
pub struct SpecError {
    /// What is not valid, such as `rule "user-free"`; empty if it has no name.
    pub what: String,
    /// The keys and positions that lead to the value; empty for the whole item.
    pub path: Vec<PathStep>,
    /// What is wrong and what to do.
    pub reason: String,
}

/// One step from an outer value to an inner one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this key in a map.
    Key(String),
    /// The item at this position in a list, from 0.
    Index(usize),
}

fn prefix(what: &str) -> String {
    if what.is_empty() { String::new() } else { format!("{what}: ") }
}

impl SpecError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { what: String::new(), path: Vec::new(), reason: reason.into() }
    }

    /// The value of one field is wrong.
    pub(crate) fn at(field: &str, reason: impl Into<String>) -> Self {
        Self { path: vec![PathStep::Key(field.to_owned())], ..Self::new(reason) }
    }

    /// The item of the field's list at this position is wrong.
    pub(crate) fn item(mut self, index: usize) -> Self {
        self.path.push(PathStep::Index(index));
        self
    }

    /// The value of this key in the field's map is wrong.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.path.push(PathStep::Key(key.to_owned()));
        self
    }

    /// The same, with what it is about.
    pub(crate) fn about(self, what: String) -> Self {
        Self { what, ..self }
    }
}

/// One of a few names; the default if none is given.
pub(crate) fn choice<T: Copy + Default>(
    field: &str,
    given: Option<&str>,
    choices: &[(&str, T)],
) -> Result<T, SpecError> {
    given.map_or_else(|| Ok(T::default()), |given| named(given, choices).map_err(|reason| SpecError::at(field, reason)))
}

pub(crate) fn named<T: Copy>(given: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == given);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let mut names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        names.dedup();
        format!("{given:?} is not one of {}", names.join(", "))
    })
}

/// The name of a choice, unless it is the default.
pub(super) fn unless_default<T: Copy + Default + PartialEq>(choice: T, choices: &[(&str, T)]) -> Option<String> {
    let (name, _) = choices.iter().find(|(_, known)| *known == choice)?;
    Some((*name).to_owned()).filter(|_| choice != T::default())
}

/// The algorithm of that name; `strict` is for sliding windows.
pub(super) fn algorithm(name: Option<&str>, strict: Option<bool>) -> Result<Algorithm, SpecError> {
    let mut algorithm = choice("algorithm", name, &Algorithm::ALL.map(|known| (known.name(), known)))?;
    match (&mut algorithm, strict) {
        (_, None) => {}
        (Algorithm::SlidingWindow { strict }, Some(given)) => *strict = given,
        (other, Some(_)) => {
            let reason = format!("strict does not apply to {}: it is for sliding_window", other.name());
            return Err(SpecError::at("strict", reason));
        }
    }
    Ok(algorithm)
}

/// The calendar options of a rule.
pub(super) fn calendar(
    zone: Option<&str>,
    anchor: Option<u64>,
    week_starts: Option<&str>,
) -> Result<CalendarOptions, SpecError> {
    CalendarOptions::parse(zone, anchor, week_starts).map_err(|(field, error)| SpecError::at(field, error.to_string()))
}

/// Fails if a rule has a calendar option that none of its limits could use.
pub(super) fn check_calendar_is_used(options: CalendarOptions, quotas: &[Quota]) -> Result<(), SpecError> {
    for (field, value, only) in options.written() {
        let can_use = |quota: &Quota| match only {
            Some(only) => quota.spec().align == only,
            None => quota.spec().align != Align::Epoch,
        };
        if !quotas.iter().any(can_use) {
            let wanted = only.and_then(Align::calendar_name).unwrap_or("month");
            let reason = format!(
                "{field} {value} applies to no limit of the rule: write a limit such as \"1000 per calendar {wanted}\", \
                 or leave {field} out; a limit of an override can have its own"
            );
            return Err(SpecError::at(field, reason));
        }
    }
    Ok(())
}

/// Text, unless it is empty.
pub(crate) fn filled(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// A limit as it is written: text such as `10/s burst 50`, or its parts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged, expecting = "a limit is text such as \"10/s burst 50\", or {limit: 10, per: s, burst: 50}")]
#[non_exhaustive]
pub enum LimitSpec {
    /// Text such as `10/s burst 50`.
    Text(String),
    /// Its parts.
    Parts(LimitParts),
}

/// The parts of a limit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitParts {
    /// How many in a period.
    pub limit: u64,
    /// The period, such as `30s` or `calendar month`.
    pub per: String,
    /// How many at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// How many to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<u64>,
    /// The algorithm, if it is not the rule's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// For `sliding_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// For a calendar period, the time zone, if it is not the rule's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// For a calendar month, the day on which it begins, if it is not the rule's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<u64>,
    /// For a calendar week, the day on which it begins, if it is not the rule's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week_starts: Option<String>,
}

impl LimitSpec {
    /// The quotas of a field `limits`, which must not be empty.
    pub(crate) fn all(limits: &[Self]) -> Result<Vec<QuotaSpec>, SpecError> {
        if limits.is_empty() {
            let reason = "limits is empty: give at least one, such as \"10/s burst 50\"";
            return Err(SpecError::at("limits", reason));
        }
        let spec =
            |(index, limit): (usize, &Self)| limit.spec().map_err(|reason| SpecError::at("limits", reason).item(index));
        limits.iter().enumerate().map(spec).collect()
    }

    fn spec(&self) -> Result<QuotaSpec, String> {
        let parts = match self {
            Self::Text(text) => return text.parse().map_err(|error: QuotaError| error.to_string()),
            Self::Parts(parts) => parts,
        };
        let LimitParts { limit, per, burst, initial, algorithm: name, strict, zone, anchor, week_starts } = parts;
        let algorithm = match (name, strict) {
            (None, None) => None,
            (None, Some(_)) => return Err("strict needs algorithm: sliding_window beside it".to_owned()),
            (name, strict) => Some(algorithm(name.as_deref(), *strict).map_err(|error| error.reason)?),
        };
        let calendar = CalendarOptions::parse(zone.as_deref(), *anchor, week_starts.as_deref())
            .map_err(|(_, error)| error.to_string())?;
        let (align, period_us) = match per.strip_prefix("calendar ").and_then(Align::by_calendar_name) {
            Some(found) => found,
            None => {
                let error = || QuotaError::Syntax {
                    text: per.chars().take(80).collect(),
                    reason: "per is not a period: write s, 30s, m, h, d, w, month, y or \"calendar month\"".to_owned(),
                };
                (Align::Epoch, parse_period(per).ok_or_else(|| error().to_string())?)
            }
        };
        Ok(QuotaSpec { amount: *limit, period_us, burst: *burst, initial: *initial, align, algorithm, calendar })
    }
}

impl fmt::Display for LimitSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Parts(LimitParts { limit, per, .. }) => write!(out, "{limit} per {per}"),
        }
    }
}
