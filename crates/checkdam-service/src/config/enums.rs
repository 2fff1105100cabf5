//! Settings with a fixed set of values.

use checkdam::headers::Dialect;
use checkdam::normalize::Slashes;
use clap::ValueEnum;

use super::ConfigError;

/// Which headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseHeaders {
    /// X-RateLimit-* and RateLimit
    Both,
    /// X-RateLimit-Limit, -Remaining and -Reset
    X,
    /// RateLimit and RateLimit-Policy
    Ietf,
    /// Only Retry-After
    None,
}

/// What becomes of encoded slashes and backslashes in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathSlashes {
    /// Respond with 400
    Refuse,
    /// Keep them unchanged; they do not separate path segments
    Keep,
    /// Decode them to /
    Decode,
}

/// What becomes of a part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PathPart {
    /// Remove it before rules are matched
    Strip,
    /// Match rules against it unchanged
    Keep,
}

/// What becomes of upper case in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PathCase {
    /// Match rules against it unchanged
    Keep,
    /// Match rules against the lower-case path
    Lower,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing
    Off,
    /// Failures that need an operator
    #[value(aliases = ["fatal", "panic"])]
    #[serde(alias = "fatal", alias = "panic")]
    Error,
    /// Conditions that may need an operator
    #[value(alias = "warning")]
    #[serde(alias = "warning")]
    Warn,
    /// State changes
    Info,
    /// Every decision
    Debug,
    /// Everything
    Trace,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable lines
    Text,
    /// One JSON object per line
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

/// A choice from one of the variables that platforms set for every program, as
/// `checkdam.toml` has it.
pub(super) fn choice<T: ValueEnum>(name: &'static str) -> Result<Option<toml::Value>, ConfigError> {
    let Some(value) = super::variable(name) else { return Ok(None) };
    let choices: Vec<_> = T::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
    match choices.iter().find(|choice| choice.matches(&value, true)) {
        Some(choice) => Ok(Some(choice.get_name().into())),
        None => {
            let choices = choices.iter().map(|choice| choice.get_name()).collect::<Vec<_>>().join(", ");
            Err(ConfigError::NotAChoice { name, value, choices })
        }
    }
}
