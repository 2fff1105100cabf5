//! The settings of how much is taken on: requests and connections.

use std::time::Duration;

use ipnet::IpNet;

use super::{ClientIdentityOptions, ConfigError, Settings};

/// The most connections of a listener.
const CONNECTIONS_MAX: usize = 10_000;
/// No system gives one process more descriptors.
const CONNECTIONS_LIMIT: usize = 1 << 20;

/// How many connections a listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    /// The most at a time. Default 10,000.
    pub(crate) max: usize,
    /// The most of one peer, unless it is on this machine or trusted. Default half of `max`.
    pub(crate) per_peer: usize,
    /// Networks of proxies, whose connections are those of many clients.
    pub(crate) trusted: Vec<IpNet>,
}

impl ConnectionOptions {
    pub(super) fn from_settings(
        given: &Settings,
        file: &Settings,
        origin: &ClientIdentityOptions,
    ) -> Result<Self, ConfigError> {
        let in_range = |name, value: usize| match value {
            1..=CONNECTIONS_LIMIT => Ok(value),
            _ => Err(ConfigError::OutOfRange { name, value: value as u64, range: "1 to 1048576" }),
        };
        let max = given.connections_max.or(file.connections_max).unwrap_or(CONNECTIONS_MAX);
        let max = in_range("connections_max", max)?;
        let per_peer = given.connections_per_peer.or(file.connections_per_peer).unwrap_or(max.div_ceil(2));
        Ok(Self { max, per_peer: in_range("connections_per_peer", per_peer)?, trusted: origin.trusted.clone() })
    }
}

/// When requests are turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverloadOptions {
    /// How late work may begin; none if lateness turns nobody away. Default 100 ms.
    pub(crate) late_max: Option<Duration>,
    /// The most requests that are decided at a time. Default 10,000.
    pub(crate) in_flight_max: usize,
}

impl OverloadOptions {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Result<Self, ConfigError> {
        let late_max = given.shed_after.or(file.shed_after).map_or(Duration::from_millis(100), Into::into);
        let in_flight_max = given.in_flight_max.or(file.in_flight_max).unwrap_or(10_000);
        if in_flight_max == 0 {
            return Err(ConfigError::OutOfRange { name: "in_flight_max", value: 0, range: "at least 1" });
        }
        Ok(Self { late_max: Some(late_max).filter(|late| !late.is_zero()), in_flight_max })
    }
}
