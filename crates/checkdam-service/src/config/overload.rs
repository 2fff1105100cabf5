//! Settings of load shedding and connection limits.

use std::time::Duration;

use checkdam_net::{ConnectionOptions, OverloadOptions};

use super::{ConfigError, Settings};
use crate::client_identity::ClientIdentity;

/// The most connections of a listener.
const CONNECTIONS_MAX: usize = 10_000;
/// No system gives one process more descriptors.
const CONNECTIONS_LIMIT: usize = 1 << 20;

/// How many connections a listener takes.
pub(super) fn connections(
    given: &Settings,
    file: &Settings,
    identity: &ClientIdentity,
) -> Result<ConnectionOptions, ConfigError> {
    let in_range = |name, value: usize| match value {
        1..=CONNECTIONS_LIMIT => Ok(value),
        _ => Err(ConfigError::OutOfRange { name, value: value as u64, range: "1 to 1048576" }),
    };
    let max = given.connections_max.or(file.connections_max).unwrap_or(CONNECTIONS_MAX);
    let max = in_range("connections_max", max)?;
    let per_peer = given.connections_per_peer.or(file.connections_per_peer).unwrap_or(max.div_ceil(2));
    let per_peer = in_range("connections_per_peer", per_peer)?;
    Ok(ConnectionOptions { max, per_peer, trusted: identity.trusted.clone() })
}

/// When requests are shed.
pub(super) fn overload(given: &Settings, file: &Settings) -> Result<OverloadOptions, ConfigError> {
    let late_max = given.shed_after.or(file.shed_after).map_or(Duration::from_millis(100), Into::into);
    let in_flight_max = given.in_flight_max.or(file.in_flight_max).unwrap_or(10_000);
    if in_flight_max == 0 {
        return Err(ConfigError::OutOfRange { name: "in_flight_max", value: 0, range: "at least 1" });
    }
    Ok(OverloadOptions { late_max: Some(late_max).filter(|late| !late.is_zero()), in_flight_max })
}
