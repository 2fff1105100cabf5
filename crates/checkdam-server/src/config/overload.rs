//! The settings of how much is taken on.

use std::time::Duration;

use super::{ConfigError, Settings};

/// When requests are turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverloadOptions {
    /// How late work may begin; none if lateness turns nobody away. Default 100 ms.
    pub(crate) late_max: Option<Duration>,
    /// The most requests that are decided at a time. Default 10,000.
    pub(crate) in_flight_max: usize,
}

impl OverloadOptions {
    pub(super) fn of(given: &Settings, file: &Settings) -> Result<Self, ConfigError> {
        let late_max = given.shed_after.or(file.shed_after).map_or(Duration::from_millis(100), Into::into);
        let in_flight_max = given.in_flight_max.or(file.in_flight_max).unwrap_or(10_000);
        if in_flight_max == 0 {
            return Err(ConfigError::OutOfRange { name: "in_flight_max", value: 0, range: "at least 1" });
        }
        Ok(Self { late_max: Some(late_max).filter(|late| !late.is_zero()), in_flight_max })
    }
}
