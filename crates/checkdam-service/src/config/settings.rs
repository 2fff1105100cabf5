//! All settings as given, before defaults: each has the same name as a flag, as an
//! environment variable and in `checkdam.toml`.

use std::path::PathBuf;

use checkdam::Algorithm;

use super::client_identity::{HeaderAttribute, HeaderNameSetting, Network};
use super::duration::DurationText;
use super::enums::{LogFormat, LogLevel, PathCase, PathPart, PathSlashes, ResponseHeaders};
use super::layers::layered;
use crate::access::PrivilegedRequests;

// Headings of the help and of the reference.
const LISTENERS: &str = "Listeners";
const TLS: &str = "TLS";
const ENVOY: &str = "Envoy rate limit service";
const RULES: &str = "Rules and database";
const STORE: &str = "Store";
const CLIENTS: &str = "Client identity and response headers";
const LOAD: &str = "Limits and load";
const AUDIT: &str = "Audit";
const TELEMETRY: &str = "Telemetry";
const SHUTDOWN: &str = "Shutdown";
const LOGGING: &str = "Logging";

layered! {
/// The settings as they were given.
#[derive(Debug, Clone, Default, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Address of the HTTP API, host:port; port 0 picks a free port [default: 127.0.0.1:8080]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_HTTP_LISTEN", value_name = "ADDRESS")]
    pub(super) http_listen: Option<String>,

    /// Address of Envoy's rate limit service (gRPC), host:port, or off [default: 127.0.0.1:8081]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_GRPC_LISTEN", value_name = "ADDRESS")]
    pub(super) grpc_listen: Option<String>,

    /// Address of the admin API and dashboard, host:port, or off; needs admin_token unless it is a loopback address
    /// [default: 127.0.0.1:8082]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub(super) admin_listen: Option<String>,

    /// Host for the HTTP and gRPC listeners if their addresses are not set; HOST and GRPC_HOST of
    /// envoyproxy/ratelimit take precedence [default: 127.0.0.1]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_LISTEN_HOST", value_name = "HOST")]
    pub(super) listen_host: Option<String>,

    /// Host header values, besides localhost, that an HTTP listener on a loopback address accepts, or * for any; all
    /// others are rejected, also for /metrics, against DNS rebinding [default: none]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_ALLOWED_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    pub(super) allowed_hosts: Option<Vec<String>>,

    /// Token that admin API clients must send as "Authorization: Bearer TOKEN" [default: none; required unless
    /// admin_listen is a loopback address]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_ADMIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) admin_token: Option<String>,

    /// File containing the admin token; it is read again when it changes
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_ADMIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "admin_token")]
    pub(super) admin_token_file: Option<PathBuf>,

    /// API tokens, comma-separated; callers of the HTTP and gRPC listeners must send one of them as
    /// "Authorization: Bearer TOKEN"; health, /openapi.json and /docs need no token [default: none]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_API_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) api_token: Option<String>,

    /// File containing the API tokens, one per line; it is read again when it changes
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_API_TOKEN_FILE", value_name = "FILE", conflicts_with = "api_token")]
    pub(super) api_token_file: Option<PathBuf>,

    /// Whether the HTTP and gRPC listeners accept resets, refunds (also is_negative_hits) and limits sent in a
    /// request (descriptors[].limit) [default: auto]
    #[arg(long, help_heading = LISTENERS, env = "CHECKDAM_PRIVILEGED_REQUESTS", value_name = "CHOICE", value_enum)]
    pub(super) privileged_requests: Option<PrivilegedRequests>,

    /// Certificate (PEM, with its chain) for TLS on every listener; reloaded when the file changes [default: no TLS]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// Private key (PEM) of tls_cert [default: in the file of tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,

    /// CA certificates (PEM): clients of every listener must present a certificate signed by one of them (mutual TLS)
    /// [default: none]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// Certificate of the HTTP API, or off for no TLS [default: tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_HTTP_TLS_CERT", value_name = "FILE")]
    pub(super) http_tls_cert: Option<PathBuf>,

    /// Private key of http_tls_cert [default: in the file of http_tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_HTTP_TLS_KEY", value_name = "FILE")]
    pub(super) http_tls_key: Option<PathBuf>,

    /// CA certificates for clients of the HTTP API, or off [default: tls_client_ca]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_HTTP_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) http_tls_client_ca: Option<PathBuf>,

    /// Certificate of the gRPC listener, or off for no TLS [default: tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_GRPC_TLS_CERT", value_name = "FILE")]
    pub(super) grpc_tls_cert: Option<PathBuf>,

    /// Private key of grpc_tls_cert [default: in the file of grpc_tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_GRPC_TLS_KEY", value_name = "FILE")]
    pub(super) grpc_tls_key: Option<PathBuf>,

    /// CA certificates for clients of the gRPC listener, or off [default: tls_client_ca]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_GRPC_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) grpc_tls_client_ca: Option<PathBuf>,

    /// Certificate of the admin listener, or off for no TLS [default: tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_ADMIN_TLS_CERT", value_name = "FILE")]
    pub(super) admin_tls_cert: Option<PathBuf>,

    /// Private key of admin_tls_cert [default: in the file of admin_tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_ADMIN_TLS_KEY", value_name = "FILE")]
    pub(super) admin_tls_key: Option<PathBuf>,

    /// CA certificates for clients of the admin listener, or off; if no admin token is set, clients need only a
    /// certificate [default: tls_client_ca]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_ADMIN_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) admin_tls_client_ca: Option<PathBuf>,

    /// Certificate of the proxy, or off for no TLS [default: tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_PROXY_TLS_CERT", value_name = "FILE")]
    pub(super) proxy_tls_cert: Option<PathBuf>,

    /// Private key of proxy_tls_cert [default: in the file of proxy_tls_cert]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_PROXY_TLS_KEY", value_name = "FILE")]
    pub(super) proxy_tls_key: Option<PathBuf>,

    /// CA certificates for clients of the proxy, or off [default: tls_client_ca]
    #[arg(long, help_heading = TLS, env = "CHECKDAM_PROXY_TLS_CLIENT_CA", value_name = "FILE")]
    pub(super) proxy_tls_client_ca: Option<PathBuf>,

    /// Shadow mode for Envoy: allow every request, and only report the limits that it exceeds [default: false]
    #[arg(long, help_heading = ENVOY, env = "CHECKDAM_GRPC_SHADOW", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_shadow: Option<bool>,

    /// Deny a request from Envoy only if all of its descriptors are over their limits, as if every descriptor of
    /// the rule file had quota_mode: true [default: false]
    #[arg(long, help_heading = ENVOY, env = "CHECKDAM_GRPC_QUOTA", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_quota: Option<bool>,

    /// Headers that Envoy adds to responses, if it adds none itself: on (RateLimit-Limit, RateLimit-Remaining,
    /// RateLimit-Reset), off, or three comma-separated names for limit, remaining and reset [default: off]
    #[arg(long, help_heading = ENVOY, env = "CHECKDAM_GRPC_HEADERS", value_name = "NAMES")]
    pub(super) grpc_headers: Option<String>,

    /// Send the request's descriptors and the limits' metadata to Envoy's other filters as dynamic metadata [default:
    /// false]
    #[arg(long, help_heading = ENVOY, env = "CHECKDAM_GRPC_METADATA", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_metadata: Option<bool>,

    /// Rule file (YAML, checkdam's or envoyproxy/ratelimit's format) or folder of rule files, watched for changes;
    /// used instead of the rules in the database [default: the database]
    #[arg(long, help_heading = RULES, env = "CHECKDAM_RULES", value_name = "PATH")]
    pub(super) rules: Option<PathBuf>,

    /// Default algorithm for descriptor limits; token_bucket applies exact token buckets to a whole
    /// envoyproxy/ratelimit file [default: fixed_window]
    #[arg(long, help_heading = RULES, env = "CHECKDAM_DEFAULT_ALGORITHM", value_name = "ALGORITHM", value_parser = super::command_flags::algorithm)]
    #[serde(deserialize_with = "super::command_flags::read_algorithm")]
    pub(super) default_algorithm: Option<Algorithm>,

    /// Allow several files to define descriptors of the same domain [default: false]
    #[arg(long, help_heading = RULES, env = "CHECKDAM_MERGE_DOMAINS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) merge_domains: Option<bool>,

    /// Database for rules and violations: sqlite://path or postgres://…; DATABASE_URL is read too [default:
    /// checkdam.db in the data folder]
    #[arg(long, help_heading = RULES, env = "CHECKDAM_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(super) database: Option<String>,

    /// File containing the database URL, for a URL with a password
    #[arg(long, help_heading = RULES, env = "CHECKDAM_DATABASE_FILE", value_name = "FILE", conflicts_with = "database")]
    pub(super) database_file: Option<PathBuf>,

    /// Folder for this node's data [default: ./checkdam-data]
    #[arg(long, help_heading = RULES, env = "CHECKDAM_DATA_DIR", value_name = "FOLDER")]
    pub(super) data_dir: Option<PathBuf>,

    /// Store for the buckets: memory, redis://…, rediss://…, redis-cluster://host:port,host:port or
    /// redis-sentinel://host:port,host:port/master-name; REDIS_URL is read too [default: memory]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE", value_name = "STORE", hide_env_values = true)]
    pub(super) store: Option<String>,

    /// File containing the store URL, for a URL with a password
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE_FILE", value_name = "FILE", conflicts_with = "store")]
    pub(super) store_file: Option<PathBuf>,

    /// CA certificate (PEM) that verifies a rediss:// server [default: the system's]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE_CA", value_name = "FILE")]
    pub(super) store_ca: Option<PathBuf>,

    /// Client certificate (PEM) for a rediss:// server [default: none]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE_CLIENT_CERT", value_name = "FILE")]
    pub(super) store_client_cert: Option<PathBuf>,

    /// Private key (PEM) of store_client_cert [default: in the file of store_client_cert]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE_CLIENT_KEY", value_name = "FILE")]
    pub(super) store_client_key: Option<PathBuf>,

    /// Maximum time that a decision waits for Redis, such as 15ms; if unset, it adapts to the round-trip time [default:
    /// 15ms, or three round trips if that is more, up to 18ms]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_STORE_DEADLINE", value_name = "TIME")]
    pub(super) store_deadline: Option<DurationText>,

    /// Number of nodes that share the limits; each allows its share while Redis is unavailable [default: 1]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_NODES", value_name = "COUNT")]
    pub(super) nodes: Option<u64>,

    /// Secret key of the hashes that replace subjects in Redis keys; must be the same on every node [default: none]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_KEY_SECRET", value_name = "TEXT", hide_env_values = true)]
    pub(super) key_secret: Option<String>,

    /// File containing the key secret
    #[arg(long, help_heading = STORE, env = "CHECKDAM_KEY_SECRET_FILE", value_name = "FILE", conflicts_with = "key_secret")]
    pub(super) key_secret_file: Option<PathBuf>,

    /// Prefix of every Redis key, after cd:, so that deployments can share a server; must be the same on every node
    /// [default: none]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_KEY_PREFIX", value_name = "TEXT")]
    pub(super) key_prefix: Option<String>,

    /// Write subjects in clear text, instead of hashes, in Redis keys [default: false]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_READABLE_KEYS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) readable_keys: Option<bool>,

    /// Publish each node's top subjects to the other nodes (Redis channel cd:nodes) in clear text, for one list over
    /// all nodes; with a key secret they are always published, encrypted [default: false]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_SHARE_SUBJECTS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) share_subjects: Option<bool>,

    /// Maximum number of buckets held in memory [default: 1000000]
    #[arg(long, help_heading = STORE, env = "CHECKDAM_MAX_BUCKETS", value_name = "COUNT")]
    pub(super) max_buckets: Option<u64>,

    /// Networks or addresses of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,fd00::/8 [default: none]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_TRUSTED_PROXIES", value_name = "NETWORKS", value_delimiter = ',')]
    pub(super) trusted_proxies: Option<Vec<Network>>,

    /// Headers of proxied requests that become attributes, such as X-API-Key=api_key; map a header only if a client
    /// gains nothing by forging it [default: none]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_HEADER_ATTRIBUTES", value_name = "HEADER=NAME", value_delimiter = ',')]
    pub(super) header_attributes: Option<Vec<HeaderAttribute>>,

    /// Header in which trusted proxies send the cost of a request [default: none, every request costs 1]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_COST_HEADER", value_name = "HEADER")]
    pub(super) cost_header: Option<HeaderNameSetting>,

    /// How to treat encoded slashes and backslashes (%2F, %5C, \) in paths of proxied requests; applications interpret
    /// them differently [default: refuse]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_PATH_SLASHES", value_name = "CHOICE", value_enum)]
    pub(super) path_slashes: Option<PathSlashes>,

    /// How to treat path parameters of proxied requests, such as ;session=1 in /cart;session=1 [default: strip]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_PATH_PARAMETERS", value_name = "CHOICE", value_enum)]
    pub(super) path_parameters: Option<PathPart>,

    /// How to treat a trailing slash in paths of proxied requests; use strip if the application ignores it, as Express
    /// and Rails do, and write rules without it [default: keep]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_PATH_TRAILING_SLASH", value_name = "CHOICE", value_enum)]
    pub(super) path_trailing_slash: Option<PathPart>,

    /// How to treat letter case in paths of proxied requests; use lower if the application ignores case, as Express and
    /// ASP.NET do, and write rules in lower case [default: keep]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_PATH_CASE", value_name = "CHOICE", value_enum)]
    pub(super) path_case: Option<PathCase>,

    /// Rate limit headers in responses: X-RateLimit-*, the IETF's RateLimit, or both [default: both]
    #[arg(long, help_heading = CLIENTS, env = "CHECKDAM_HEADERS", value_name = "DIALECT", value_enum)]
    pub(super) headers: Option<ResponseHeaders>,

    /// Maximum connections per listener; near the maximum, the longest-idle connections of the address with the most
    /// connections are closed [default: 10000]
    #[arg(long, help_heading = LOAD, env = "CHECKDAM_CONNECTIONS_MAX", value_name = "COUNT")]
    pub(super) connections_max: Option<usize>,

    /// Maximum connections per listener from one IPv4 address or IPv6 /64; loopback and trusted_proxies, which carry
    /// many clients, are limited only by connections_max [default: half of connections_max]
    #[arg(long, help_heading = LOAD, env = "CHECKDAM_CONNECTIONS_PER_PEER", value_name = "COUNT")]
    pub(super) connections_per_peer: Option<usize>,

    /// Shed load (503) once scheduling delay exceeds this, such as 100ms; 0s disables it [default: 100ms]
    #[arg(long, help_heading = LOAD, env = "CHECKDAM_SHED_AFTER", value_name = "TIME")]
    pub(super) shed_after: Option<DurationText>,

    /// Maximum number of requests being decided at once; further requests are shed (503) [default: 10000]
    #[arg(long, help_heading = LOAD, env = "CHECKDAM_IN_FLIGHT_MAX", value_name = "COUNT")]
    pub(super) in_flight_max: Option<usize>,

    /// Violations recorded per rule per second; the rest are only counted; 0 records none [default: 100]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_RATE", value_name = "COUNT")]
    pub(super) audit_rate: Option<u32>,

    /// How long violations are kept, such as 30d [default: 30d]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_KEEP", value_name = "TIME")]
    pub(super) audit_keep: Option<DurationText>,

    /// Maximum number of violations kept [default: 1000000]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_ROWS", value_name = "COUNT")]
    pub(super) audit_rows: Option<u64>,

    /// Maximum number of violations kept per rule, so that a flood on one rule does not evict those of others [default:
    /// 100000]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_RULE_ROWS", value_name = "COUNT")]
    pub(super) audit_rule_rows: Option<u64>,

    /// Approximate maximum size of the kept violations and their indexes, in bytes [default: 268435456]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_BYTES", value_name = "COUNT")]
    pub(super) audit_bytes: Option<u64>,

    /// Maximum number of violations waiting to be written [default: 10000]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_AUDIT_QUEUE", value_name = "COUNT")]
    pub(super) audit_queue: Option<usize>,

    /// Maximum number of edits kept in the change log; 0 keeps none [default: 10000]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_CHANGE_ROWS", value_name = "COUNT")]
    pub(super) change_rows: Option<u32>,

    /// Attributes whose values violations and logs contain only as hashes, keyed with the key secret if there is one;
    /// an empty value disables this [default: api_key, api-key, apikey, x-api-key, key, token, access_token,
    /// refresh_token, bearer, authorization, auth, password, secret, session, session_id, cookie]
    #[arg(long, help_heading = AUDIT, env = "CHECKDAM_SECRET_ATTRIBUTES", value_name = "NAMES", value_delimiter = ',')]
    pub(super) secret_attributes: Option<Vec<String>>,

    /// Number of rules with metrics of their own, at most 10000; the others are counted together as "other"; each rule
    /// with traffic uses 6 kB of memory [default: 1000]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_METRICS_RULES", value_name = "COUNT")]
    pub(super) metrics_rules: Option<usize>,

    /// Attach trace IDs to latency metrics as exemplars, for OpenMetrics scrapers [default: false]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_METRICS_EXEMPLARS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) metrics_exemplars: Option<bool>,

    /// OTLP endpoint (gRPC) for spans, such as http://127.0.0.1:4317 or https://collector:4317; needs a build with --features otlp;
    /// OTEL_EXPORTER_OTLP_ENDPOINT is read too [default: none, no spans are exported]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_OTLP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    pub(super) otlp_endpoint: Option<String>,

    /// CA certificate (PEM) that verifies an https:// OTLP endpoint [default: the system's]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_OTLP_CA", value_name = "FILE")]
    pub(super) otlp_ca: Option<PathBuf>,

    /// Fraction of requests to trace, 0 to 1, where the caller sent no sampling decision [default: 0.01]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_TRACE_SHARE", value_name = "SHARE")]
    pub(super) trace_share: Option<f64>,

    /// Number of recent requests kept in memory for previews of rule edits; 0 keeps none [default: 100000]
    #[arg(long, help_heading = TELEMETRY, env = "CHECKDAM_RECENT_REQUESTS", value_name = "COUNT")]
    pub(super) recent_requests: Option<usize>,

    /// On shutdown, how long to keep accepting connections after the node stops being ready; choose a time longer
    /// than load balancers need to notice, such as 5s in Kubernetes; drain_timeout starts afterwards [default: 1s]
    #[arg(long, help_heading = SHUTDOWN, env = "CHECKDAM_LEAVE_NOTICE", value_name = "TIME")]
    pub(super) leave_notice: Option<DurationText>,

    /// On shutdown, how long requests in flight may take to finish, such as 500ms, 10s or 1m [default: 10s]
    #[arg(long, help_heading = SHUTDOWN, env = "CHECKDAM_DRAIN_TIMEOUT", value_name = "TIME")]
    pub(super) drain_timeout: Option<DurationText>,

    /// Log level; LOG_LEVEL is read too [default: info]
    #[arg(long, help_heading = LOGGING, env = "CHECKDAM_LOG_LEVEL", value_name = "LEVEL", value_enum, ignore_case = true)]
    pub(super) log_level: Option<LogLevel>,

    /// Log format; LOG_FORMAT is read too [default: text]
    #[arg(long, help_heading = LOGGING, env = "CHECKDAM_LOG_FORMAT", value_name = "FORMAT", value_enum, ignore_case = true)]
    pub(super) log_format: Option<LogFormat>,

    /// Denials logged per rule per second, with their subjects; 0 logs none [default: 0]
    #[arg(long, help_heading = LOGGING, env = "CHECKDAM_LOG_DENIALS", value_name = "COUNT")]
    pub(super) log_denials: Option<u32>,

    /// The `[[admin_tokens]]` tables of the file.
    #[arg(skip)]
    pub(super) admin_tokens: Option<Vec<super::access::AdminTokenSettings>>,

    /// The table `[proxy]` of the file.
    #[arg(skip)]
    pub(super) proxy: Option<super::ProxySettings>,

    /// The `[[route]]` tables of the file.
    #[arg(skip)]
    pub(super) route: Option<Vec<super::proxy::RouteSettings>>,
}
}
