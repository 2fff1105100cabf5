//! Configuration: flags, then `CHECKDAM_…` variables, then `checkdam.toml`, then the
//! default. Unknown keys are errors.
//!
//! clap reads both flags and environment variables, so both share a parser, a help text and
//! an error message. Crates that merge layers (`figment`, `config`) bypass clap, so `config
//! check` could not report that a value came from a flag.

mod access;
mod client_identity;
mod doctor_store_flags;
mod duration;
mod effective;
mod enums;
mod envoy_ratelimit_env;
mod grpc;
mod overload;
mod proxy;
mod read_limited;
mod reference;
mod rule_file_parsing;
mod secret_files;
mod settings;
mod shutdown;
mod storage;
mod telemetry;
mod tls;
mod upstream;

use std::net::IpAddr;
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
pub use self::doctor_store_flags::StoreSettings;
pub use self::duration::DurationText;
pub use self::effective::EffectiveSetting;
pub use self::enums::LogFormat;
pub(crate) use self::enums::LogLevel;
use self::enums::{ResponseHeaders, or_variable};
use self::envoy_ratelimit_env::{EnvoyEnvironment, OtherSettings};
pub use self::envoy_ratelimit_env::{EnvoyVariableReport, VariableEffect};
pub(crate) use self::grpc::{HeaderNames, RateLimitOptions};
pub use self::proxy::{ProxyOptions, ProxySettings, RouteOptions};
pub use self::read_limited::read_text;
pub use self::reference::reference;
pub use self::rule_file_parsing::RuleFileArguments;
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
        let from_file = from_file(file)?;
        let given = given.with_secrets()?;
        let host = listen_host(&given, &from_file);
        let around = OtherSettings { has_rules: has_rule_source(&given, &from_file), host: &host };
        let (given, foreign) = EnvoyEnvironment(variable).merge_under(given, around)?;
        let max_buckets = given.max_buckets.or(from_file.max_buckets).unwrap_or(1_000_000);
        if max_buckets == 0 || max_buckets > BUCKETS_MAX {
            return Err(ConfigError::BucketsOutOfRange { value: max_buckets, max: BUCKETS_MAX });
        }
        let redis = redis_options(&given, &from_file, usize::try_from(max_buckets).unwrap_or(usize::MAX))?;
        let admin = AdminListener::from_settings(&given, &from_file)?;
        let api_tokens = access::api_tokens(&given, &from_file)?;
        access::require_distinct(api_tokens.as_ref(), admin.as_ref())?;
        let database = storage::database(&given, &from_file)?;
        let audit = AuditOptions::from_settings(&given, &from_file)?;
        let secret_attributes = storage::secret_attributes(&given, &from_file);
        let identity = client_identity::options(&given, &from_file)?;
        let telemetry = TelemetryOptions::from_settings(&given, &from_file)?;
        let trace = TraceOptions::from_settings(&given, &from_file)?;
        let overload = overload::overload(&given, &from_file)?;
        let connections = overload::connections(&given, &from_file, &identity)?;
        let http_listen = given.http_listen.as_ref().or(from_file.http_listen.as_ref());
        let http_listen = http_listen.cloned().unwrap_or_else(|| address(&host, "8080"));
        if http_listen == "off" {
            return Err(ConfigError::NothingToServe);
        }
        Ok(Self {
            http_listen,
            allowed_hosts: allowed_hosts(given.allowed_hosts.as_ref().or(from_file.allowed_hosts.as_ref()))?,
            grpc_listen: grpc::listen_address(&given, &from_file, &host),
            api_tokens,
            privileged_requests: given.privileged_requests.or(from_file.privileged_requests).unwrap_or_default(),
            rate_limits: grpc::rate_limits(&given, &from_file)?,
            foreign,
            redis,
            admin,
            tls: TlsOptions::from_settings(&given, &from_file)?,
            database,
            audit,
            secret_attributes,
            identity,
            telemetry,
            trace,
            overload,
            connections,
            shutdown: shutdown::options(&given, &from_file),
            listen_host: host,
            rules: given.rules.or(from_file.rules),
            files: rule_file_parsing::options(
                given.default_algorithm.or(from_file.default_algorithm),
                given.merge_domains.or(from_file.merge_domains),
            ),
            dialect: given.headers.or(from_file.headers).unwrap_or(ResponseHeaders::Both).into(),
            max_buckets: usize::try_from(max_buckets).unwrap_or(usize::MAX),
            share_subjects: given.share_subjects.or(from_file.share_subjects).unwrap_or(false),
            log_level: or_variable(given.log_level, "LOG_LEVEL")?.or(from_file.log_level).unwrap_or(LogLevel::Info),
            log_format: or_variable(given.log_format, "LOG_FORMAT")?
                .or(from_file.log_format)
                .unwrap_or(LogFormat::Text),
        })
    }
}

impl Config {
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
fn redis_options(given: &Settings, file: &Settings, max_buckets: usize) -> Result<Option<RedisOptions>, ConfigError> {
    let nodes = given.nodes.or(file.nodes).unwrap_or(1);
    if nodes == 0 {
        return Err(ConfigError::NoNodes);
    }
    let redis_url = match variable("REDIS_URL").filter(|url| is_redis_url(url)) {
        Some(_) => EnvoyEnvironment(variable).redis_store_url()?,
        None => None,
    };
    let store = given.store.as_ref().or(file.store.as_ref()).or(redis_url.as_ref());
    let Some(url) = store.filter(|store| *store != "memory") else {
        return Ok(None);
    };
    let mut options = RedisOptions { nodes, max_buckets, ..RedisOptions::new(url) };
    if let Some(path) = given.store_ca.as_ref().or(file.store_ca.as_ref()) {
        let shown = path.display().to_string();
        let pem = read_limited::read_bytes(path).map_err(|reason| ConfigError::Unreadable { path: shown, reason })?;
        options.root_certificate = Some(pem);
    }
    options.client_certificate = store_client_certificate(given, file)?;
    if let Some(deadline) = given.store_deadline.or(file.store_deadline) {
        options.deadline = Some(deadline.into());
    }
    if options.deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Err(ConfigError::NoDeadline);
    }
    options.key_secret = given.key_secret.clone().or_else(|| file.key_secret.clone()).unwrap_or_default();
    options.key_prefix = key_prefix(given.key_prefix.as_deref().or(file.key_prefix.as_deref()).unwrap_or_default())?;
    if (1..KEY_SECRET_MIN).contains(&options.key_secret.len()) {
        return Err(ConfigError::WeakKeySecret { length: options.key_secret.len() });
    }
    options.readable_keys = given.readable_keys.or(file.readable_keys).unwrap_or(false);
    Ok(Some(options))
}

/// The certificate by which Redis knows this client, with its key.
fn store_client_certificate(given: &Settings, file: &Settings) -> Result<Option<ClientCertificate>, ConfigError> {
    let certificate = given.store_client_cert.as_ref().or(file.store_client_cert.as_ref());
    let key = given.store_client_key.as_ref().or(file.store_client_key.as_ref());
    let Some(certificate) = certificate else {
        let (name, needed) = ("store_client_key", "store_client_cert");
        return if key.is_some() { Err(ConfigError::NoTlsCertificate { name, needed }) } else { Ok(None) };
    };
    let read = |path: &PathBuf| {
        let shown = path.display().to_string();
        read_limited::read_bytes(path).map_err(|reason| ConfigError::Unreadable { path: shown, reason })
    };
    Ok(Some(ClientCertificate { chain: read(certificate)?, key: read(key.unwrap_or(certificate))? }))
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
fn listen_host(given: &Settings, file: &Settings) -> String {
    given.listen_host.as_ref().or(file.listen_host.as_ref()).map_or("127.0.0.1", String::as_str).to_owned()
}

/// Host and port, as a listener takes them.
fn address(host: &str, port: &str) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The server that the variables describe, as a client on this machine reaches it.
pub fn local_server() -> Option<String> {
    let own = variable("CHECKDAM_HTTP_LISTEN").filter(|listen| !listen.is_empty());
    let listen = own.or_else(|| EnvoyEnvironment(variable).http_listen())?;
    let (host, port) = listen.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let host = if ["0.0.0.0", "[::]"].contains(&host) { "127.0.0.1" } else { host };
    let has_tls = ["CHECKDAM_HTTP_TLS_CERT", "CHECKDAM_TLS_CERT"].into_iter().find_map(variable);
    let scheme = if has_tls.is_some_and(|path| !path.is_empty() && path != "off") { "https" } else { "http" };
    Some(format!("{scheme}://{host}:{port}"))
}

/// Whether something says where the rules are, be it a file or a database.
fn has_rule_source(given: &Settings, file: &Settings) -> bool {
    [given, file].iter().any(|said| said.rules.is_some() || said.database.is_some())
        || variable("DATABASE_URL").is_some_and(|url| !url.is_empty())
}

/// Whether `REDIS_URL` is for us: platforms set it for every program.
fn is_redis_url(url: &str) -> bool {
    url.starts_with("redis") && url.contains("://")
}

/// What the settings file says, if there is one.
fn from_file(file: Option<&Path>) -> Result<Settings, ConfigError> {
    match settings_file(file) {
        Some(path) => read(path)?.with_secrets(),
        None => Ok(Settings::default()),
    }
}

/// Which settings file is read, if there is one.
fn settings_file(given: Option<&Path>) -> Option<&Path> {
    given.or_else(|| Some(Path::new(FILE_DEFAULT)).filter(|path| path.exists()))
}

fn read(path: &Path) -> Result<Settings, ConfigError> {
    let shown = path.display().to_string();
    let text = match read_limited::read_text(path) {
        Ok(text) => text,
        Err(reason) => return Err(ConfigError::Unreadable { path: shown, reason }),
    };
    from_toml(&shown, &text)
}

/// Parses TOML. Errors have the location and the key, never the value: it may be a
/// secret.
fn from_toml<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let (line, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
        let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let key = before[line_start..].split_once('=').map(|(key, _)| key.trim());
        let key = key.filter(|key| key.bytes().all(is_of_key)).map(|key| format!("{key}: ")).unwrap_or_default();
        let reason = format!("{key}{}", without_secret(&before[line_start..], error.message().trim_end()));
        ConfigError::Invalid { path: format!("{path}:{line}:{column}"), reason }
    })
}

/// What is wrong with a value, without the value if it may be a secret. `before` is the line
/// up to the value. Messages about syntax never have a value.
fn without_secret(before: &str, message: &str) -> String {
    let key = before.split('=').next().unwrap_or_default().trim();
    let is_secret = ["token", "secret"].iter().any(|part| before.contains(part))
        || ["database", "otlp_endpoint", "store"].contains(&key);
    let has_value = ["invalid type", "invalid value", "unknown variant"].iter().any(|kind| message.starts_with(kind));
    if !is_secret || !has_value {
        return message.to_owned();
    }
    // serde writes "invalid type: integer `1`, expected a string", and texts in double quotes.
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, "another value"));
    let kind = found.split(['`', '"']).next().unwrap_or_default().trim_end();
    format!("{kind}, expected {expected}")
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

/// A variable that is not ours, if it can be read.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_settings_file_show_no_secret() {
        const SECRETS: [&str; 4] = ["1234567890123456", "hunter2", "12345.678", "4567"];
        for (text, expected) in [
            ("admin_token = hunter2-hunter2-hunter2", "file:1:15: admin_token: "),
            ("admin_token = 1234567890123456", "file:1:15: admin_token: invalid type: integer, expected a string"),
            ("key_secret = 12345.678", "key_secret: invalid type: floating point, expected a string"),
            ("api_token = hunter2=hunter2", "file:1:"),
            ("api_token = \"hunter2", "file:1:"),
            ("api_token: hunter2=hunter2", "file:1:"),
            ("admin_tokens = \"hunter2-hunter2\"", "admin_tokens: invalid type: string, expected"),
            ("[[admin_tokens]]\ntoken = 1234567890123456", "file:2:9: token: invalid type: integer"),
            ("admin_tokens = [{ name = \"a\", token = 1234567890123456 }]", "file:1:"),
            ("admin_tokens = [\n  { name = \"a\", token = 1234567890123456 },\n]", "file:2:"),
            ("database = 4567", "database: invalid type: integer"),
        ] {
            let error = from_toml::<Settings>("file", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(SECRETS.iter().all(|secret| !error.contains(secret)), "{text}: {error}");
        }
        let error = from_toml::<Settings>("file", "max_buckets = \"many\"").unwrap_err().to_string();
        assert!(error.contains("max_buckets: ") && error.contains("\"many\""), "other values are shown: {error}");
    }
}
