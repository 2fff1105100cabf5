//! Settings of `checkdam proxy`: flags and variables, the table `[proxy]` of the
//! file, and its `[[route]]`s.

use std::path::{Path, PathBuf};
use std::time::Duration;

use checkdam::{Pattern, VALUE_MAX};
use checkdam_net::ClientTlsFiles;

use super::layers::{Layered, from_file, layered};
use super::upstream::{Costs, UpstreamUrl};
use super::{ConfigError, DurationText, positive_count, read_bytes};

layered! {
/// The proxy's settings as they were given.
#[derive(Debug, Clone, Default, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Proxy")]
pub struct ProxySettings {
    /// Address of the proxy, host:port; port 0 picks a free port [default: 127.0.0.1:8000]
    #[arg(long, env = "CHECKDAM_PROXY_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,

    /// Upstream URLs, such as http://127.0.0.1:3000; several are used round-robin [default: none, each route names its
    /// own]
    #[arg(long, env = "CHECKDAM_PROXY_UPSTREAM", value_name = "URL", value_delimiter = ',')]
    upstream: Option<Vec<UpstreamUrl>>,

    /// Use HTTP/2 to upstreams, which gRPC requires; without TLS, with prior knowledge (h2c) [default: false]
    #[arg(long, env = "CHECKDAM_PROXY_UPSTREAM_HTTP2", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    upstream_http2: Option<bool>,

    /// CA certificate (PEM) that verifies https:// upstreams [default: the system's]
    #[arg(long, env = "CHECKDAM_PROXY_UPSTREAM_CA", value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// Maximum connections per upstream, including WebSockets; further requests get 503; does not apply to HTTP/2
    /// upstreams [default: 4096]
    #[arg(long, env = "CHECKDAM_PROXY_UPSTREAM_CONNECTIONS", value_name = "COUNT")]
    upstream_connections: Option<usize>,

    /// How long an unreachable upstream is skipped [default: 5s]
    #[arg(long, env = "CHECKDAM_PROXY_UPSTREAM_PAUSE", value_name = "TIME")]
    upstream_pause: Option<DurationText>,

    /// Path of upstream health checks, such as /healthz [default: none]
    #[arg(long, env = "CHECKDAM_PROXY_HEALTH_PATH", value_name = "PATH")]
    health_path: Option<String>,

    /// Time between health checks [default: 5s]
    #[arg(long, env = "CHECKDAM_PROXY_HEALTH_INTERVAL", value_name = "TIME")]
    health_interval: Option<DurationText>,

    /// Timeout for connecting to an upstream [default: 5s]
    #[arg(long, env = "CHECKDAM_PROXY_CONNECT_TIMEOUT", value_name = "TIME")]
    connect_timeout: Option<DurationText>,

    /// Timeout for the head of an upstream's response [default: 60s]
    #[arg(long, env = "CHECKDAM_PROXY_RESPONSE_TIMEOUT", value_name = "TIME")]
    response_timeout: Option<DurationText>,

    /// Idle timeout of responses and WebSockets [default: 5m]
    #[arg(long, env = "CHECKDAM_PROXY_IDLE_TIMEOUT", value_name = "TIME")]
    idle_timeout: Option<DurationText>,

    /// Idle timeout of a request body: close the connection if the client sends nothing for this long [default: 30s]
    #[arg(long, env = "CHECKDAM_PROXY_BODY_TIMEOUT", value_name = "TIME")]
    body_timeout: Option<DurationText>,

    /// Minimum average rate of a request body in bytes per second, enforced once body_timeout has passed; 0 disables
    /// it; does not apply to HTTP/2 upstreams, where bodies may be streams [default: 500]
    #[arg(long, env = "CHECKDAM_PROXY_BODY_RATE_MIN", value_name = "COUNT")]
    body_rate_min: Option<u64>,

    /// Maximum concurrent request bodies per IPv4 address or IPv6 /64; further requests get 429; loopback, and
    /// trusted_proxies that send no client address, are exempt; does not apply to HTTP/2 upstreams [default: 64]
    #[arg(long, env = "CHECKDAM_PROXY_UPLOADS_PER_CLIENT", value_name = "COUNT")]
    uploads_per_client: Option<usize>,

    /// Maximum time that a leaky bucket delays a request; requests that would wait longer are denied [default: 10s]
    #[arg(long, env = "CHECKDAM_PROXY_DELAY_MAX", value_name = "TIME")]
    delay_max: Option<DurationText>,

    /// Cost of a request, by method, such as POST=5,PUT=5, or one cost for all [default: 1]
    #[arg(long, env = "CHECKDAM_PROXY_COST", value_name = "COST")]
    cost: Option<Costs>,

    /// Also charge each response when it ends: 1 token per this many bytes of body, less the cost already charged for
    /// the request [default: none]
    #[arg(long, env = "CHECKDAM_PROXY_RESPONSE_BYTES", value_name = "BYTES")]
    response_bytes: Option<u64>,
}
}

/// A `[[route]]` of the file. The first that fits a request counts.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RouteSettings {
    /// Which paths, as rules write them: `/api/*`, `/users/{id}`. Default all.
    path: Option<String>,
    /// Which host. Default all.
    host: Option<String>,
    /// Where the requests go. Default those of `[proxy]`.
    upstream: Option<Vec<UpstreamUrl>>,
    /// The domain whose rules apply. Default none.
    domain: Option<String>,
    /// What they cost. Default that of `[proxy]`.
    cost: Option<Costs>,
    /// As `response_bytes` of `[proxy]`, which is the default.
    response_bytes: Option<u64>,
}

/// What `checkdam proxy` runs with.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// Where it listens. Default `127.0.0.1:8000`.
    pub listen: String,
    /// Where requests go; the first that fits counts.
    pub routes: Vec<RouteOptions>,
    /// Whether upstreams are spoken to in HTTP/2. Default no.
    pub is_upstream_http2: bool,
    /// The CA certificate that verifies https upstreams. Default the system's.
    pub upstream_tls: ClientTlsFiles,
    /// How long connecting may take. Default 5 s.
    pub connect_timeout: Duration,
    /// Timeout of the head of an upstream's response. Default 60 s.
    pub response_timeout: Duration,
    /// Idle timeout of a response or a tunnel. Default 5 min.
    pub idle_timeout: Duration,
    /// How long a client may send nothing of a body. Default 30 s.
    pub body_timeout: Duration,
    /// The fewest bytes a second of a body, 0 if there is no minimum. Default 500.
    pub body_rate_min: u64,
    /// The most bodies that one client may be sending. Default 64.
    pub uploads_per_client: usize,
    /// The most connections to each upstream. Default 4,096.
    pub upstream_connections: usize,
    /// The longest that a request is held back. Default 10 s.
    pub delay_max: Duration,
    /// How long an upstream is passed over. Default 5 s.
    pub upstream_pause: Duration,
    /// The path of upstream health checks. Default none.
    pub health_path: Option<String>,
    /// The interval of health checks. Default 5 s.
    pub health_interval: Duration,
}

/// Where some requests go, and what they cost.
#[derive(Debug, Clone)]
pub struct RouteOptions {
    /// Which paths; all if absent.
    pub path: Option<Pattern>,
    /// Which host, in lower case; all if absent.
    pub host: Option<String>,
    /// Where they go; never empty.
    pub upstreams: Vec<UpstreamUrl>,
    /// The domain whose rules apply; empty for none.
    pub domain: String,
    /// What they cost.
    pub costs: Costs,
    /// How many bytes of a response cost one token, if any do.
    pub response_bytes: Option<u64>,
}

impl ProxyOptions {
    /// Joins what was given on the command line and in the environment with
    /// the file and the defaults.
    pub fn load(given: ProxySettings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let in_file = from_file(file)?;
        let settings = given.or(in_file.proxy.unwrap_or_default());
        let time = |given: Option<DurationText>, default_s| given.map_or(Duration::from_secs(default_s), Into::into);
        let wait = |name, given, default_s| match time(given, default_s) {
            Duration::ZERO => Err(ConfigError::OutOfRange { name, value: 0, range: "1ms or more" }),
            wait => Ok(wait),
        };
        let everything = RouteOptions {
            path: None,
            host: None,
            upstreams: settings.upstream.unwrap_or_default(),
            domain: String::new(),
            costs: settings.cost.unwrap_or_default(),
            response_bytes: positive_bytes(settings.response_bytes)?,
        };
        let routes = in_file.route.into_iter().flatten().map(|route| route.with_defaults(&everything));
        let mut routes = routes.collect::<Result<Vec<_>, _>>()?;
        if !everything.upstreams.is_empty() {
            routes.push(everything);
        }
        if routes.is_empty() {
            return Err(ConfigError::NoUpstream);
        }
        // The file must be readable, also for `config check`.
        settings.upstream_ca.as_deref().map(read_bytes).transpose()?;
        Ok(Self {
            listen: settings.listen.unwrap_or_else(|| "127.0.0.1:8000".to_owned()),
            routes,
            is_upstream_http2: settings.upstream_http2.unwrap_or(false),
            upstream_tls: ClientTlsFiles { ca: settings.upstream_ca, ..ClientTlsFiles::default() },
            connect_timeout: wait("connect_timeout", settings.connect_timeout, 5)?,
            response_timeout: wait("response_timeout", settings.response_timeout, 60)?,
            idle_timeout: wait("idle_timeout", settings.idle_timeout, 300)?,
            body_timeout: wait("body_timeout", settings.body_timeout, 30)?,
            body_rate_min: settings.body_rate_min.unwrap_or(500),
            uploads_per_client: positive_count("uploads_per_client", settings.uploads_per_client.unwrap_or(64))?,
            upstream_connections: positive_count(
                "upstream_connections",
                settings.upstream_connections.unwrap_or(4_096),
            )?,
            delay_max: time(settings.delay_max, 10),
            upstream_pause: time(settings.upstream_pause, 5),
            health_path: settings.health_path.map(health_path).transpose()?,
            health_interval: wait("health_interval", settings.health_interval, 5)?,
        })
    }
}

impl RouteSettings {
    /// The route, with what it does not say taken from `[proxy]`.
    fn with_defaults(self, everything: &RouteOptions) -> Result<RouteOptions, ConfigError> {
        let shown = self.path.as_deref().or(self.host.as_deref()).unwrap_or("*").to_owned();
        let invalid = |reason: String| ConfigError::BadRoute { route: shown.clone(), reason };
        let path = self.path.as_deref().map(Pattern::new).transpose().map_err(|error| invalid(error.to_string()))?;
        let upstreams = self.upstream.unwrap_or_else(|| everything.upstreams.clone());
        if upstreams.is_empty() {
            return Err(invalid("it has no upstream, and there is no other".to_owned()));
        }
        let domain = self.domain.unwrap_or_default();
        if domain.len() > VALUE_MAX {
            return Err(invalid(format!("its domain is longer than {VALUE_MAX} bytes")));
        }
        Ok(RouteOptions {
            path,
            host: self
                .host
                .map(|host| checkdam::normalize::host(&host).ok_or_else(|| invalid(format!("{host:?} is no host"))))
                .transpose()?,
            upstreams,
            domain,
            costs: self.cost.unwrap_or_else(|| everything.costs.clone()),
            response_bytes: positive_bytes(self.response_bytes)?.or(everything.response_bytes),
        })
    }
}

fn positive_bytes(given: Option<u64>) -> Result<Option<u64>, ConfigError> {
    match given {
        Some(0) => Err(ConfigError::OutOfRange { name: "response_bytes", value: 0, range: "1 or more" }),
        given => Ok(given),
    }
}

fn health_path(path: String) -> Result<String, ConfigError> {
    let is_path = path.starts_with('/') && path.parse::<axum::http::uri::PathAndQuery>().is_ok();
    if is_path { Ok(path) } else { Err(ConfigError::BadHealthPath { path }) }
}
