//! Configuration: flags, then `CHECKDAM_…` variables, then `checkdam.toml`, then the
//! default; `layers.rs` has the whole order. Unknown keys are errors.
//!
//! clap reads both flags and environment variables, so both share a parser, a help text and
//! an error message. Crates that merge layers (`figment`, `config`) bypass clap, so `config
//! check` could not report that a value came from a flag.

mod access;
mod client_identity;
mod command_flags;
mod duration;
mod effective;
mod enums;
mod envoy_ratelimit_env;
mod grpc;
mod layers;
mod overload;
mod proxy;
mod reference;
mod settings;
mod storage;
mod telemetry;
mod tls;
mod upstream;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkdam::headers::Dialect;
use checkdam::rule_file::FileOptions;
use checkdam::store::redis::{ClientCertificate, RedisOptions, StoreUrlError};
use checkdam_net::{ConnectionOptions, ListenerTls, OverloadOptions, Protocol, ShutdownOptions, TlsError};
use clap::Args;

use crate::access::{PrivilegedRequests, TokenError, TokenSet};
use crate::client_identity::ClientIdentity;
use crate::rulebook::{DatabaseUrl, DatabaseUrlError};

pub use self::access::AdminListener;
pub use self::command_flags::{RuleFileArguments, StoreSettings};
pub use self::duration::DurationText;
pub use self::effective::EffectiveSetting;
pub use self::enums::LogFormat;
pub(crate) use self::enums::LogLevel;
use self::enums::ResponseHeaders;
use self::envoy_ratelimit_env::EnvoyEnvironment;
pub use self::envoy_ratelimit_env::{EnvoyVariableReport, VariableEffect};
pub(crate) use self::grpc::{HeaderNames, RateLimitOptions};
use self::layers::Layers;
pub use self::proxy::{ProxyOptions, ProxySettings, RouteOptions};
pub use self::reference::reference;
pub use self::settings::Settings;
pub(crate) use self::storage::AuditOptions;
pub(crate) use self::telemetry::{TelemetryOptions, TraceOptions};
pub use self::tls::TlsOptions;
pub use self::upstream::{Costs, UpstreamUrl};

/// Read if it exists and `--config` names no other.
const FILE_DEFAULT: &str = "checkdam.toml";

/// What `serve` runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address of the HTTP listener. Default `127.0.0.1:8080`.
    pub http_listen: String,
    /// Hosts besides local ones that a loopback HTTP listener answers to. Default none.
    pub allowed_hosts: Vec<String>,
    /// The address of the gRPC listener, if enabled. Default `127.0.0.1:8081`.
    pub grpc_listen: Option<String>,
    /// The host of these where their addresses are not given. Default `127.0.0.1`.
    pub listen_host: String,
    /// The tokens of the HTTP API and the gRPC listener. Default none: every caller is accepted.
    pub api_tokens: Option<Arc<TokenSet>>,
    /// Which listeners accept resets, refunds and request limits. Default auto.
    pub privileged_requests: PrivilegedRequests,
    /// Options of Envoy's rate limit service.
    pub rate_limits: RateLimitOptions,
    /// Variables of envoyproxy/ratelimit that are set, and what became of each.
    pub foreign: Vec<EnvoyVariableReport>,
    /// The rule file or folder, if not the database. Default none.
    pub rules: Option<PathBuf>,
    /// How such files are read.
    pub files: FileOptions,
    /// The admin API, if it is not switched off. Default `127.0.0.1:8082`.
    pub admin: Option<AdminListener>,
    /// The TLS files of each listener. Default none.
    pub tls: TlsOptions,
    /// Where rules and violations are kept. Default `./checkdam-data/checkdam.db`.
    pub database: DatabaseUrl,
    /// What is written of violations.
    pub audit: AuditOptions,
    /// Attributes that records hold as hashes. Default those that are commonly secrets.
    pub secret_attributes: Vec<String>,
    /// Which headers are sent. Default both.
    pub dialect: Dialect,
    /// How attributes are derived from others' requests.
    pub identity: ClientIdentity,
    /// How Redis is reached; memory if absent. Default memory.
    pub redis: Option<RedisOptions>,
    /// The most buckets held in memory, a count. Default 1,000,000.
    pub max_buckets: usize,
    /// Whether nodes publish their top subjects unencrypted.
    pub share_subjects: bool,
    /// Timeouts of graceful shutdown.
    pub shutdown: ShutdownOptions,
    /// What is seen of decisions.
    pub telemetry: TelemetryOptions,
    /// Where spans are sent, if anywhere. Default nowhere.
    pub trace: Option<TraceOptions>,
    /// How many connections each listener takes.
    pub connections: ConnectionOptions,
    /// When requests are shed.
    pub overload: OverloadOptions,
    /// How much is logged. Default info.
    pub log_level: LogLevel,
    /// The log format. Default text.
    pub log_format: LogFormat,
    /// Where each setting comes from.
    layers: Layers,
}

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: std::io::Error },
    #[error("{path}: {reason}")]
    Invalid { path: String, reason: String },
    #[error("the file {path:?} should contain a secret and is empty")]
    EmptySecret { path: String },
    #[error("{name} is {value:?}: use one of {choices}")]
    NotAChoice { name: &'static str, value: String, choices: String },
    #[error("http_listen is \"off\", so there is nothing to serve: give it an address such as 127.0.0.1:8080")]
    NothingToServe,
    #[error("store_deadline is 0: use a positive time, for example 15ms")]
    NoDeadline,
    #[error("{name} is {value:?}: use an address such as 127.0.0.1:8080, with a port from 0 to 65535")]
    NotAnAddress { name: &'static str, value: String },
    #[error(transparent)]
    Store(#[from] StoreUrlError),
    #[error("nodes is 0: use the number of nodes that share the limits, at least 1")]
    NoNodes,
    #[error(
        "admin_listen is {address:?}, which others can reach, and there is no admin token: give one with \
         --admin-token or --admin-token-file, or [[admin_tokens]] in checkdam.toml, require client certificates with \
         --admin-tls-client-ca, or listen on 127.0.0.1"
    )]
    OpenAdmin { address: String },
    #[error("{name} is given without {needed}: give the certificate too, or leave {name} out")]
    NoTlsCertificate { name: &'static str, needed: &'static str },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(
        "the key secret has {length} bytes, which can be guessed from keys in Redis: use at least {KEY_SECRET_MIN}, the \
         same on every node"
    )]
    WeakKeySecret { length: usize },
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the [[admin_tokens]] entry {name:?} is not valid: {reason}")]
    BadAdminToken { name: String, reason: String },
    #[error(transparent)]
    Database(#[from] DatabaseUrlError),
    #[error("{name} is {value}: use {range}")]
    OutOfRange { name: &'static str, value: u64, range: &'static str },
    #[error("trace_share is {value}: use 0 to 1")]
    TraceShare { value: f64 },
    #[error(
        "header_attributes names {attribute:?}, which another header or the request itself gives: use another name"
    )]
    AttributeTwice { attribute: String },
    #[error("{name} is {value:?}, which is not supported: {instead}")]
    NotHere { name: &'static str, value: String, instead: &'static str },
    #[error(
        "{names}: these are variables of envoyproxy/ratelimit, but RUNTIME_ROOT is not set, and there is no {folder}: \
         set RUNTIME_ROOT to where its files are, give rules with --rules or --database, or leave the variables out"
    )]
    NoRuntimeRoot { names: String, folder: String },
    #[error("there is more than one login to Redis: keep one of REDIS_AUTH, REDIS_AUTH_FILE and the one in REDIS_URL")]
    TwoLogins,
    #[error("allowed_hosts names {value:?}: use a host name without scheme, port or path, or * for every name")]
    NotAHost { value: String },
    #[error("key_prefix is {value:?}: use at most {KEY_PREFIX_MAX} printable characters without spaces and braces")]
    KeyPrefix { value: String },
    #[error("grpc_headers is {value:?}: give three names of headers, joined by commas, or on or off")]
    HeaderNames { value: String },
    #[error("there is no upstream: give one with --upstream http://host:port, or [[route]]s in checkdam.toml")]
    NoUpstream,
    #[error("the [[route]] for {route:?} is not valid: {reason}")]
    BadRoute { route: String, reason: String },
    #[error("health_path is {path:?}: use a path such as /healthz")]
    BadHealthPath { path: String },
    #[error("max_buckets is {value}: use 1 to {max}")]
    BucketsOutOfRange { value: u64, max: u64 },
}

/// The longest prefix of keys in Redis, in bytes.
const KEY_PREFIX_MAX: usize = 64;
/// A shorter secret could be guessed from the keys that it makes.
const KEY_SECRET_MIN: usize = 16;
/// So many buckets take two gigabytes.
const BUCKETS_MAX: u64 = 100_000_000;

impl Config {
    /// Joins what was given on the command line and in the environment with
    /// the file and the defaults.
    pub fn load(given: Settings, file: Option<&Path>) -> Result<Self, ConfigError> {
        let (mut layers, foreign) = Layers::load(given, file, true)?;
        let settings = layers.merge()?;
        let host = listen_host(settings.listen_host.as_ref());
        let max_buckets = settings.max_buckets.unwrap_or(1_000_000);
        if max_buckets == 0 || max_buckets > BUCKETS_MAX {
            return Err(ConfigError::BucketsOutOfRange { value: max_buckets, max: BUCKETS_MAX });
        }
        let max_buckets = usize::try_from(max_buckets).unwrap_or(usize::MAX);
        let redis = redis_options(&settings, max_buckets)?;
        let admin = AdminListener::from_settings(&settings)?;
        let api_tokens = access::api_tokens(&settings)?;
        access::require_distinct(api_tokens.as_ref(), admin.as_ref())?;
        let database = storage::database(&settings)?;
        let audit = AuditOptions::from_settings(&settings)?;
        let identity = client_identity::options(&settings)?;
        let telemetry = TelemetryOptions::from_settings(&settings)?;
        let otlp_source = layers.below("otlp_endpoint").map(|(_, source)| source);
        let is_general = otlp_source.is_some_and(|source| layers::OTLP_ENDPOINT.contains(&source));
        let trace = TraceOptions::from_settings(&settings, is_general)?;
        let overload = overload::overload(&settings)?;
        let connections = overload::connections(&settings, &identity)?;
        let http_listen = settings.http_listen.clone().unwrap_or_else(|| address(&host, "8080"));
        if http_listen == "off" {
            return Err(ConfigError::NothingToServe);
        }
        Ok(Self {
            http_listen,
            allowed_hosts: allowed_hosts(settings.allowed_hosts.as_ref())?,
            grpc_listen: grpc::listen_address(&settings, &host),
            api_tokens,
            privileged_requests: settings.privileged_requests.unwrap_or_default(),
            rate_limits: grpc::rate_limits(&settings)?,
            foreign,
            redis,
            admin,
            tls: TlsOptions::from_settings(&settings)?,
            database,
            audit,
            secret_attributes: storage::secret_attributes(&settings),
            identity,
            telemetry,
            trace,
            overload,
            connections,
            shutdown: overload::shutdown(&settings),
            listen_host: host,
            files: command_flags::options(settings.default_algorithm, settings.merge_domains),
            dialect: settings.headers.unwrap_or(ResponseHeaders::Both).into(),
            max_buckets,
            share_subjects: settings.share_subjects.unwrap_or(false),
            log_level: settings.log_level.unwrap_or(LogLevel::Info),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
            rules: settings.rules,
            layers,
        })
    }

    /// Validates what is otherwise found only when listeners and the store are opened,
    /// without opening them.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let admin = self.admin.as_ref().map(|listener| &listener.listen);
        let listeners = [
            ("http_listen", Some(&self.http_listen)),
            ("grpc_listen", self.grpc_listen.as_ref()),
            ("admin_listen", admin),
        ];
        for (name, value) in listeners {
            if let Some(value) = value.filter(|value| !is_address(value)) {
                return Err(ConfigError::NotAnAddress { name, value: value.clone() });
            }
        }
        for (listener, files) in
            [("http", &self.tls.http), ("grpc", &self.tls.grpc), ("admin", &self.tls.admin), ("proxy", &self.tls.proxy)]
        {
            if let Some(files) = files {
                ListenerTls::load(listener, files.clone(), Protocol::Http)?;
            }
        }
        Ok(self.redis.as_ref().map_or(Ok(()), RedisOptions::validate)?)
    }

    /// The store, for people: without its password.
    pub fn store_description(&self) -> String {
        let buckets = self.max_buckets;
        match &self.redis {
            None => format!("memory, at most {buckets} buckets"),
            Some(options) => options.shown_url(),
        }
    }
}

/// Whether it is an address to listen on: a host and a port.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// What the settings say of Redis; `None` if the buckets live in memory.
fn redis_options(settings: &Settings, max_buckets: usize) -> Result<Option<RedisOptions>, ConfigError> {
    let nodes = settings.nodes.unwrap_or(1);
    if nodes == 0 {
        return Err(ConfigError::NoNodes);
    }
    let Some(url) = settings.store.as_ref().filter(|store| *store != "memory") else {
        return Ok(None);
    };
    let mut options = RedisOptions { nodes, max_buckets, ..RedisOptions::new(url) };
    options.root_certificate = settings.store_ca.as_deref().map(read_bytes).transpose()?;
    options.client_certificate = store_client_certificate(settings)?;
    options.deadline = settings.store_deadline.map_or(options.deadline, |deadline| Some(deadline.into()));
    if options.deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Err(ConfigError::NoDeadline);
    }
    options.key_secret = settings.key_secret.clone().unwrap_or_default();
    options.key_prefix = key_prefix(settings.key_prefix.as_deref().unwrap_or_default())?;
    if (1..KEY_SECRET_MIN).contains(&options.key_secret.len()) {
        return Err(ConfigError::WeakKeySecret { length: options.key_secret.len() });
    }
    options.readable_keys = settings.readable_keys.unwrap_or(false);
    Ok(Some(options))
}

/// The certificate by which Redis knows this client, with its key.
fn store_client_certificate(settings: &Settings) -> Result<Option<ClientCertificate>, ConfigError> {
    let key = settings.store_client_key.as_deref();
    let Some(certificate) = settings.store_client_cert.as_deref() else {
        let (name, needed) = ("store_client_key", "store_client_cert");
        return if key.is_some() { Err(ConfigError::NoTlsCertificate { name, needed }) } else { Ok(None) };
    };
    Ok(Some(ClientCertificate { chain: read_bytes(certificate)?, key: read_bytes(key.unwrap_or(certificate))? }))
}

/// The text of a file that a setting names.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    checkdam_net::read_file(path, checkdam_net::FILE_MAX).and_then(checkdam_net::file_text)
}

/// The contents of a file of certificates or of a key.
fn read_bytes(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let read = checkdam_net::read_regular_file(path, checkdam_net::FILE_MAX);
    read.map_err(|reason| ConfigError::Unreadable { path: path.display().to_string(), reason })
}

/// A value, unless it is out of its range, which `range` writes for people.
fn in_range<T: Copy + PartialOrd + TryInto<u64>>(
    name: &'static str,
    value: T,
    allowed: RangeInclusive<T>,
    range: &'static str,
) -> Result<T, ConfigError> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::OutOfRange { name, value: value.try_into().unwrap_or(u64::MAX), range })
}

/// A number of connections or bodies. No system gives one process more descriptors.
fn positive_count(name: &'static str, value: usize) -> Result<usize, ConfigError> {
    in_range(name, value, 1..=1 << 20, "1 to 1048576")
}

fn allowed_hosts(given: Option<&Vec<String>>) -> Result<Vec<String>, ConfigError> {
    let hosts = given.cloned().unwrap_or_default();
    let is_host = |host: &String| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        host == "*" || host.parse::<IpAddr>().is_ok() || (!host.is_empty() && host.bytes().all(is_of_name))
    };
    match hosts.iter().find(|host| !is_host(host)) {
        Some(host) => Err(ConfigError::NotAHost { value: host.clone() }),
        None => Ok(hosts),
    }
}

/// A prefix that neither moves keys to another slot nor makes them unreadable.
fn key_prefix(value: &str) -> Result<String, ConfigError> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
    if value.len() > KEY_PREFIX_MAX || !value.bytes().all(is_plain) {
        return Err(ConfigError::KeyPrefix { value: value.to_owned() });
    }
    Ok(value.to_owned())
}

/// The default host of listeners.
fn listen_host(given: Option<&String>) -> String {
    given.map_or("127.0.0.1", String::as_str).to_owned()
}

/// Host and port, as a listener takes them.
fn address(host: &str, port: &str) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The server that the variables describe, as a client on this machine reaches it.
pub fn local_server() -> Option<String> {
    let listen = variable("CHECKDAM_HTTP_LISTEN").or_else(|| EnvoyEnvironment(variable).http_listen())?;
    let (host, port) = listen.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let host = if ["0.0.0.0", "[::]"].contains(&host) { "127.0.0.1" } else { host };
    let has_tls = ["CHECKDAM_HTTP_TLS_CERT", "CHECKDAM_TLS_CERT"].into_iter().find_map(variable);
    let scheme = if has_tls.is_some_and(|path| path != "off") { "https" } else { "http" };
    Some(format!("{scheme}://{host}:{port}"))
}

/// Whether `REDIS_URL` is for us: platforms set it for every program.
fn is_redis_url(url: &str) -> bool {
    url.starts_with("redis") && url.contains("://")
}

/// Variables of commands that call a server.
const OF_COMMANDS: [&str; 6] = [
    "CHECKDAM_CONFIG",
    "CHECKDAM_SERVER",
    "CHECKDAM_ADMIN_SERVER",
    "CHECKDAM_CA_FILE",
    "CHECKDAM_CLIENT_CERT",
    "CHECKDAM_CLIENT_KEY",
];

/// Names of `CHECKDAM_…` variables that set nothing, for a warning: they cannot
/// be errors, since Kubernetes makes up such names after its services.
pub fn unknown_variables() -> Vec<String> {
    let command = ProxySettings::augment_args(Settings::augment_args(clap::Command::new("")));
    let known: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
    let names = std::env::vars_os().map(|(name, _)| name);
    names
        .filter(|name| !known.contains(&name.as_os_str()))
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("CHECKDAM_") && !OF_COMMANDS.contains(&&**name))
        .filter(|name| !name.starts_with("CHECKDAM_SERVICE_") && !name.starts_with("CHECKDAM_PORT"))
        .collect()
}

/// A variable that is set, and can be read.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
