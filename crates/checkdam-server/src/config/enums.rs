//! Settings with a fixed set of values.

use checkdam::headers::Dialect;
use checkdam::normalize::Slashes;
use clap::ValueEnum;

use super::ConfigError;

/// Which headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ResponseHeaders {
    /// Both families
    Both,
    /// X-RateLimit-Limit, -Remaining and -Reset
    X,
    /// RateLimit and RateLimit-Policy
    Ietf,
    /// Neither; Retry-After stays
    None,
}

/// What becomes of encoded slashes and backslashes in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathSlashes {
    /// The request is refused with 400
    Refuse,
    /// They stay and separate nothing
    Keep,
    /// They count as /
    Decode,
}

/// What becomes of a part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathPart {
    /// Rules do not see it
    Strip,
    /// Rules see it
    Keep,
}

/// What becomes of upper case in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathCase {
    /// Rules see it
    Keep,
    /// Rules see lower case
    Lower,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// What needs a human
    #[value(aliases = ["fatal", "panic"])]
    #[serde(alias = "fatal", alias = "panic")]
    Error,
    /// What may need one
    #[value(alias = "warning")]
    #[serde(alias = "warning")]
    Warn,
    /// Changes of state
    Info,
    /// Every decision
    Debug,
    /// Everything
    Trace,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

impl From<ResponseHeaders> for Dialect {
    fn from(headers: ResponseHeaders) -> Self {
        match headers {
            ResponseHeaders::Both => Self::Both,
            ResponseHeaders::X => Self::X,
            ResponseHeaders::Ietf => Self::Ietf,
            ResponseHeaders::None => Self::None,
        }
    }
}

impl From<PathSlashes> for Slashes {
    fn from(slashes: PathSlashes) -> Self {
        match slashes {
            PathSlashes::Refuse => Self::Reject,
            PathSlashes::Keep => Self::Keep,
            PathSlashes::Decode => Self::Decode,
        }
    }
}

/// A choice from one of the variables that platforms set for every program.
pub(super) fn or_variable<T: ValueEnum>(given: Option<T>, name: &'static str) -> Result<Option<T>, ConfigError> {
    if given.is_some() {
        return Ok(given);
    }
    let value = super::variable(name).unwrap_or_default();
    if value.is_empty() {
        return Ok(None);
    }
    T::from_str(&value, true).map(Some).map_err(|_| {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let choices = names.map(|choice| choice.get_name().to_owned()).collect::<Vec<_>>().join(", ");
        ConfigError::NotAChoice { name, value, choices }
    })
}
