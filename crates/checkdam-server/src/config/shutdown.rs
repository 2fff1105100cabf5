//! The settings of going away.

use std::time::Duration;

use super::Settings;

/// For how long clients are asked to leave by themselves.
const NOTICE: Duration = Duration::from_secs(1);
const DRAIN: Duration = Duration::from_secs(10);

/// How long going away may take: the notice, and the drain after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShutdownOptions {
    /// How long new connections are taken when readiness is gone. Default 1 s.
    pub(crate) notice: Duration,
    /// How long requests under way may take afterwards. Default 10 s.
    pub(crate) drain: Duration,
}

impl ShutdownOptions {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Self {
        Self {
            notice: given.leave_notice.or(file.leave_notice).map_or(NOTICE, Into::into),
            drain: given.drain_timeout.or(file.drain_timeout).map_or(DRAIN, Into::into),
        }
    }

    /// Whether the notice is over as soon as nobody is connected. Whoever asks
    /// for a longer one has clients that hear late that we are leaving: that
    /// none is here says nothing of those.
    pub(crate) fn ends_when_idle(&self) -> bool {
        self.notice <= NOTICE
    }
}
