//! Errors of invalid rate limit requests: nothing was decided.

use checkdam::RequestError;
use tonic::Code;

use super::request::DESCRIPTORS_MAX;

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DecisionError {
    #[error("the domain is empty: give the one that the limits are written for")]
    NoDomain,
    #[error("there are no descriptors: give at least one")]
    NoDescriptors,
    #[error("there are {count} descriptors: at most {DESCRIPTORS_MAX} fit")]
    TooManyDescriptors { count: usize },
    #[error("{reason}")]
    Entries { index: usize, reason: RequestError },
    #[error("the unit {unit} is unknown: use 1 to 6 for second, minute, hour, day, month and year, or 7 for week")]
    Unit { index: usize, unit: i32 },
    #[error("there are no rules yet")]
    NoRules,
}

impl DecisionError {
    /// The invalid field of the request; none if the cause is elsewhere.
    pub(crate) fn field(&self) -> Option<String> {
        match self {
            Self::NoDomain => Some("domain".to_owned()),
            Self::NoDescriptors | Self::TooManyDescriptors { .. } => Some("descriptors".to_owned()),
            Self::Entries { index, .. } => Some(format!("descriptors[{index}].entries")),
            Self::Unit { index, .. } => Some(format!("descriptors[{index}].limit.unit")),
            Self::NoRules => None,
        }
    }
}

impl From<DecisionError> for tonic::Status {
    fn from(refusal: DecisionError) -> Self {
        match refusal.field() {
            Some(field) => Self::new(Code::InvalidArgument, format!("{field}: {refusal}")),
            None => Self::new(Code::Unavailable, refusal.to_string()),
        }
    }
}
