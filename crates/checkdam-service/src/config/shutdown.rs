//! Graceful-shutdown settings.

use checkdam_net::ShutdownOptions;

use super::Settings;

/// How long a graceful shutdown may take.
pub(super) fn options(given: &Settings, file: &Settings) -> ShutdownOptions {
    let default = ShutdownOptions::DEFAULT;
    ShutdownOptions {
        notice: given.leave_notice.or(file.leave_notice).map_or(default.notice, Into::into),
        drain: given.drain_timeout.or(file.drain_timeout).map_or(default.drain, Into::into),
    }
}
