//! Settings of load shedding, connection limits and graceful shutdown.

use std::time::Duration;

use checkdam_net::{ConnectionOptions, OverloadOptions, ShutdownOptions};

use super::{ConfigError, Settings, in_range, positive_count};
use crate::client_identity::ClientIdentity;

/// The most connections of a listener.
const CONNECTIONS_MAX: usize = 10_000;

/// How many connections a listener takes.
pub(super) fn connections(settings: &Settings, identity: &ClientIdentity) -> Result<ConnectionOptions, ConfigError> {
    let max = positive_count("connections_max", settings.connections_max.unwrap_or(CONNECTIONS_MAX))?;
    let per_peer = settings.connections_per_peer.unwrap_or(max.div_ceil(2));
    let per_peer = positive_count("connections_per_peer", per_peer)?;
    Ok(ConnectionOptions { max, per_peer, trusted: identity.trusted.clone() })
}

/// When requests are shed.
pub(super) fn overload(settings: &Settings) -> Result<OverloadOptions, ConfigError> {
    let late_max = settings.shed_after.map_or(Duration::from_millis(100), Into::into);
    let in_flight_max = settings.in_flight_max.unwrap_or(10_000);
    let in_flight_max = in_range("in_flight_max", in_flight_max, 1..=usize::MAX, "at least 1")?;
    Ok(OverloadOptions { late_max: Some(late_max).filter(|late| !late.is_zero()), in_flight_max })
}

/// How long a graceful shutdown may take.
pub(super) fn shutdown(settings: &Settings) -> ShutdownOptions {
    let default = ShutdownOptions::DEFAULT;
    ShutdownOptions {
        notice: settings.leave_notice.map_or(default.notice, Into::into),
        drain: settings.drain_timeout.map_or(default.drain, Into::into),
    }
}
