//! Options of listeners: how many connections and requests they take, and how long
//! a graceful shutdown may take.

use std::time::Duration;

use ipnet::IpNet;

/// Connection limits of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// The maximum number of connections. Default 10,000.
    pub max: usize,
    /// The maximum per peer, unless it is on this machine or trusted. Default half of
    /// `max`.
    pub per_peer: usize,
    /// Networks of proxies, whose connections carry many clients.
    pub trusted: Vec<IpNet>,
}

/// When requests are shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverloadOptions {
    /// Requests that have waited longer are shed; none if waiting sheds none. Default 100 ms.
    pub late_max: Option<Duration>,
    /// The maximum number of requests decided concurrently. Default 10,000.
    pub in_flight_max: usize,
}

/// How long a graceful shutdown may take: the notice, and the drain after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// How long connections are accepted after readiness has ended. Default 1 s.
    pub notice: Duration,
    /// How long requests in flight may take afterwards. Default 10 s.
    pub drain: Duration,
}

impl ShutdownOptions {
    /// Used where neither is set.
    pub const DEFAULT: Self = Self { notice: Duration::from_secs(1), drain: Duration::from_secs(10) };

    /// Whether the notice ends as soon as no connection is open. A longer notice than the
    /// default is meant for clients that learn late of the shutdown, which need not be
    /// connected.
    pub(crate) fn ends_when_idle(&self) -> bool {
        self.notice <= Self::DEFAULT.notice
    }
}

/// The protocol of a listener's clients, with or without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// HTTP/2 with gRPC. Clients keep such connections for hours, and may open them long
    /// before their first call.
    Grpc,
}
