//! Options of listeners: how many connections and requests they take, and how long
//! a graceful shutdown may take.

use std::time::Duration;

use ipnet::IpNet;

/// How many connections a listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// The most at a time. Default 10,000.
    pub max: usize,
    /// The most of one peer, unless it is on this machine or trusted. Default half of `max`.
    pub per_peer: usize,
    /// Networks of proxies, whose connections are those of many clients.
    pub trusted: Vec<IpNet>,
}

/// When requests are shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverloadOptions {
    /// Requests that have waited longer are shed; none if waiting sheds none. Default 100 ms.
    pub late_max: Option<Duration>,
    /// The most requests that are decided at a time. Default 10,000.
    pub in_flight_max: usize,
}

/// How long a graceful shutdown may take: the notice, and the drain after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// How long new connections are accepted after readiness is gone. Default 1 s.
    pub notice: Duration,
    /// How long requests under way may take afterwards. Default 10 s.
    pub drain: Duration,
}

impl ShutdownOptions {
    /// Used where neither is set.
    pub const DEFAULT: Self = Self { notice: Duration::from_secs(1), drain: Duration::from_secs(10) };

    /// Whether the notice ends as soon as no connection is open. A longer notice than
    /// the default is set for clients that learn late of the shutdown: that none is
    /// connected says nothing of those.
    pub(crate) fn ends_when_idle(&self) -> bool {
        self.notice <= Self::DEFAULT.notice
    }
}
