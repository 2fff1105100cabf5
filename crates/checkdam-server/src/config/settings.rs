//! The settings before defaults: the same names as flags, as variables and in the
//! file.

use std::path::PathBuf;

use checkdam::Algorithm;

use super::client_identity::{HeaderAttribute, HeaderNameSetting, Network};
use super::duration::DurationText;
use super::enums::{LogFormat, LogLevel, PathCase, PathPart, PathSlashes, ResponseHeaders};

/// The settings as they were given.
#[derive(Debug, Clone, Default, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Where the HTTP door listens, host:port; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, env = "CHECKDAM_HTTP_LISTEN", value_name = "ADDRESS")]
    pub(super) http_listen: Option<String>,

    /// Host names besides localhost that the HTTP listener answers to while it is on loopback, or * for every name:
    /// a web page can make its own name lead to loopback (DNS rebinding) [default: none]
    #[arg(long, env = "CHECKDAM_ALLOWED_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    pub(super) allowed_hosts: Option<Vec<String>>,

    /// Where Envoy's rate limit service listens (gRPC), host:port, or off [default: 127.0.0.1:8081]
    #[arg(long, env = "CHECKDAM_GRPC_LISTEN", value_name = "ADDRESS")]
    pub(super) grpc_listen: Option<String>,

    /// The host of these two where their addresses are not given; HOST and GRPC_HOST of envoyproxy/ratelimit count
    /// before it [default: 127.0.0.1]
    #[arg(long, env = "CHECKDAM_LISTEN_HOST", value_name = "HOST")]
    pub(super) listen_host: Option<String>,

    /// Let every request of Envoy's pass, and only tell where it stands [default: false]
    #[arg(long, env = "CHECKDAM_GRPC_SHADOW", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_shadow: Option<bool>,

    /// Deny a request of Envoy's only if all of its descriptors are over their limits, as if all were in quota_mode
    /// [default: false]
    #[arg(long, env = "CHECKDAM_GRPC_QUOTA", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_quota: Option<bool>,

    /// Headers that Envoy shall add to answers, if it makes none itself: three names for limit, remaining and reset
    /// joined by commas, on for RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset, or off [default: off]
    #[arg(long, env = "CHECKDAM_GRPC_HEADERS", value_name = "NAMES")]
    pub(super) grpc_headers: Option<String>,

    /// Tell Envoy's other filters what was asked and the limits' metadata, as dynamic metadata [default: false]
    #[arg(long, env = "CHECKDAM_GRPC_METADATA", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) grpc_metadata: Option<bool>,

    /// The rule file (YAML, ours or envoyproxy/ratelimit's) or a folder of them, watched for changes; with it the
    /// rules in the database stay unused [default: the database]
    #[arg(long, env = "CHECKDAM_RULES", value_name = "PATH")]
    pub(super) rules: Option<PathBuf>,

    /// How limits of descriptors count that do not say so: token_bucket makes a whole file exact
    /// [default: fixed_window]
    #[arg(long, env = "CHECKDAM_DEFAULT_ALGORITHM", value_name = "ALGORITHM", value_parser = super::rule_files::algorithm)]
    #[serde(deserialize_with = "super::rule_files::read_algorithm")]
    pub(super) default_algorithm: Option<Algorithm>,

    /// Whether several files may have descriptors of the same domain [default: false]
    #[arg(long, env = "CHECKDAM_MERGE_DOMAINS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) merge_domains: Option<bool>,

    /// Where the admin API listens, host:port, or off; beyond loopback it needs a token [default: 127.0.0.1:8082]
    #[arg(long, env = "CHECKDAM_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub(super) admin_listen: Option<String>,

    /// What callers of the admin API must send as "Authorization: Bearer TOKEN" [default: none on loopback]
    #[arg(long, env = "CHECKDAM_ADMIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(super) admin_token: Option<String>,

    /// A file that holds that token
    #[arg(long, env = "CHECKDAM_ADMIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "admin_token")]
    pub(super) admin_token_file: Option<PathBuf>,

    /// Where rules and violations are kept: sqlite://path or postgres://…; DATABASE_URL is read too
    /// [default: checkdam.db in the data folder]
    #[arg(long, env = "CHECKDAM_DATABASE", value_name = "URL", hide_env_values = true)]
    pub(super) database: Option<String>,

    /// A file that holds that URL, for one with a password
    #[arg(long, env = "CHECKDAM_DATABASE_FILE", value_name = "FILE", conflicts_with = "database")]
    pub(super) database_file: Option<PathBuf>,

    /// The folder for what this node keeps [default: ./checkdam-data]
    #[arg(long, env = "CHECKDAM_DATA_DIR", value_name = "FOLDER")]
    pub(super) data_dir: Option<PathBuf>,

    /// The most violations that are written a second and rule, the others are counted; 0 writes none [default: 100]
    #[arg(long, env = "CHECKDAM_AUDIT_RATE", value_name = "COUNT")]
    pub(super) audit_rate: Option<u32>,

    /// How long violations are kept, such as 30d [default: 30d]
    #[arg(long, env = "CHECKDAM_AUDIT_KEEP", value_name = "TIME")]
    pub(super) audit_keep: Option<DurationText>,

    /// The most violations that are kept, a count [default: 1000000]
    #[arg(long, env = "CHECKDAM_AUDIT_ROWS", value_name = "COUNT")]
    pub(super) audit_rows: Option<u64>,

    /// The most violations that are kept of one rule, so that a flood at one leaves the others' [default: 100000]
    #[arg(long, env = "CHECKDAM_AUDIT_RULE_ROWS", value_name = "COUNT")]
    pub(super) audit_rule_rows: Option<u64>,

    /// The most bytes that violations may take, with their indexes, about [default: 268435456]
    #[arg(long, env = "CHECKDAM_AUDIT_BYTES", value_name = "COUNT")]
    pub(super) audit_bytes: Option<u64>,

    /// Attributes that violations and the log hold as hashes, keyed with the key secret, if there is one; an empty name
    /// for none [default: api_key, token, authorization, password, session and their like]
    #[arg(long, env = "CHECKDAM_SECRET_ATTRIBUTES", value_name = "NAMES", value_delimiter = ',')]
    pub(super) secret_attributes: Option<Vec<String>>,

    /// The most violations that wait to be written, a count [default: 10000]
    #[arg(long, env = "CHECKDAM_AUDIT_QUEUE", value_name = "COUNT")]
    pub(super) audit_queue: Option<usize>,

    /// Which headers tell clients where they stand: X-RateLimit-*, the IETF's RateLimit, or both [default: both]
    #[arg(long, env = "CHECKDAM_HEADERS", value_name = "DIALECT", value_enum)]
    pub(super) headers: Option<ResponseHeaders>,

    /// Networks whose X-Forwarded-For is believed, such as 10.0.0.0/8,fd00::/8 or an address [default: none]
    #[arg(long, env = "CHECKDAM_TRUSTED_PROXIES", value_name = "NETWORKS", value_delimiter = ',')]
    pub(super) trusted_proxies: Option<Vec<Network>>,

    /// Headers of proxied requests that become attributes, such as X-API-Key=api_key; map only what a client cannot
    /// forge to its gain [default: none]
    #[arg(long, env = "CHECKDAM_HEADER_ATTRIBUTES", value_name = "HEADER=NAME", value_delimiter = ',')]
    pub(super) header_attributes: Option<Vec<HeaderAttribute>>,

    /// A header in which trusted proxies say what a request costs [default: none, every request costs 1]
    #[arg(long, env = "CHECKDAM_COST_HEADER", value_name = "HEADER")]
    pub(super) cost_header: Option<HeaderNameSetting>,

    /// Encoded slashes and backslashes (%2F, %5C, \) in the paths of proxied requests, which applications read in two
    /// ways [default: refuse]
    #[arg(long, env = "CHECKDAM_PATH_SLASHES", value_name = "CHOICE", value_enum)]
    pub(super) path_slashes: Option<PathSlashes>,

    /// Parameters in their paths, as in /cart;session=1 [default: strip]
    #[arg(long, env = "CHECKDAM_PATH_PARAMETERS", value_name = "CHOICE", value_enum)]
    pub(super) path_parameters: Option<PathPart>,

    /// A slash at their end; strip it before applications that ignore it, such as Express and Rails, and write rules
    /// without it [default: keep]
    #[arg(long, env = "CHECKDAM_PATH_TRAILING_SLASH", value_name = "CHOICE", value_enum)]
    pub(super) path_trailing_slash: Option<PathPart>,

    /// Their letter case; lower before applications that ignore it, such as Express and ASP.NET, and write rules in
    /// lower case [default: keep]
    #[arg(long, env = "CHECKDAM_PATH_CASE", value_name = "CHOICE", value_enum)]
    pub(super) path_case: Option<PathCase>,

    /// Where the buckets live: memory, redis://…, rediss://…, redis-cluster://host:port,host:port or
    /// redis-sentinel://host:port,host:port/master-name; REDIS_URL is read too [default: memory]
    #[arg(long, env = "CHECKDAM_STORE", value_name = "STORE", hide_env_values = true)]
    pub(super) store: Option<String>,

    /// A file that holds that, for one with a password
    #[arg(long, env = "CHECKDAM_STORE_FILE", value_name = "FILE", conflicts_with = "store")]
    pub(super) store_file: Option<PathBuf>,

    /// A CA in PEM to verify a rediss:// server with [default: the system's]
    #[arg(long, env = "CHECKDAM_STORE_CA", value_name = "FILE")]
    pub(super) store_ca: Option<PathBuf>,

    /// How long a decision may wait for Redis, such as 15ms; what is set is kept [default: 15ms, or three round trips
    /// if that is more, up to 18ms]
    #[arg(long, env = "CHECKDAM_STORE_DEADLINE", value_name = "TIME")]
    pub(super) store_deadline: Option<DurationText>,

    /// How many nodes share the limits: what each allows by itself when Redis does not answer [default: 1]
    #[arg(long, env = "CHECKDAM_NODES", value_name = "COUNT")]
    pub(super) nodes: Option<u64>,

    /// A secret, the same on every node, without which keys in Redis cannot be traced to subjects [default: none]
    #[arg(long, env = "CHECKDAM_KEY_SECRET", value_name = "TEXT", hide_env_values = true)]
    pub(super) key_secret: Option<String>,

    /// A file that holds that secret
    #[arg(long, env = "CHECKDAM_KEY_SECRET_FILE", value_name = "FILE", conflicts_with = "key_secret")]
    pub(super) key_secret_file: Option<PathBuf>,

    /// What every key in Redis begins with after cd:, so that deployments can share a server and count apart; the same
    /// on every node [default: nothing]
    #[arg(long, env = "CHECKDAM_KEY_PREFIX", value_name = "TEXT")]
    pub(super) key_prefix: Option<String>,

    /// Keys in Redis that people can read [default: false]
    #[arg(long, env = "CHECKDAM_READABLE_KEYS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) readable_keys: Option<bool>,

    /// Whether nodes tell each other whom they see most, for a list of all nodes together: in clear, for whoever may
    /// subscribe to cd:nodes; sealed, and always, where there is a key secret [default: false]
    #[arg(long, env = "CHECKDAM_SHARE_SUBJECTS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) share_subjects: Option<bool>,

    /// The most buckets held in memory, a count [default: 1000000]
    #[arg(long, env = "CHECKDAM_MAX_BUCKETS", value_name = "COUNT")]
    pub(super) max_buckets: Option<u64>,

    /// How long new connections are still taken on shutdown, when readiness is gone already: longer than whoever
    /// sends clients here takes to notice, such as 5s in Kubernetes; drain_timeout comes after it [default: 1s]
    #[arg(long, env = "CHECKDAM_LEAVE_NOTICE", value_name = "TIME")]
    pub(super) leave_notice: Option<DurationText>,

    /// How long requests under way may take to finish on shutdown, such as 500ms, 10s or 1m [default: 10s]
    #[arg(long, env = "CHECKDAM_DRAIN_TIMEOUT", value_name = "TIME")]
    pub(super) drain_timeout: Option<DurationText>,

    /// How many rules have metrics of their own; all others are counted together as "other"; at most
    /// 10000, each with traffic takes 6 kB [default: 1000]
    #[arg(long, env = "CHECKDAM_METRICS_RULES", value_name = "COUNT")]
    pub(super) metrics_rules: Option<usize>,

    /// Whether latencies carry the trace of a request as an exemplar, for scrapers that read OpenMetrics [default: false]
    #[arg(long, env = "CHECKDAM_METRICS_EXEMPLARS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) metrics_exemplars: Option<bool>,

    /// Where spans are sent by OTLP over gRPC, such as http://127.0.0.1:4317; needs a build with --features otlp;
    /// OTEL_EXPORTER_OTLP_ENDPOINT is read too [default: nowhere]
    #[arg(long, env = "CHECKDAM_OTLP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    pub(super) otlp_endpoint: Option<String>,

    /// The share of requests that are traced where the caller has not decided it, 0 to 1 [default: 0.01]
    #[arg(long, env = "CHECKDAM_TRACE_SHARE", value_name = "SHARE")]
    pub(super) trace_share: Option<f64>,

    /// The most denials that are logged a second and rule, with whom they concern; 0 logs none [default: 0]
    #[arg(long, env = "CHECKDAM_LOG_DENIALS", value_name = "COUNT")]
    pub(super) log_denials: Option<u32>,

    /// How many of the last requests are kept in memory to preview an edit of a rule on; 0 keeps none
    /// [default: 100000]
    #[arg(long, env = "CHECKDAM_RECENT_REQUESTS", value_name = "COUNT")]
    pub(super) recent_requests: Option<usize>,

    /// The most connections of each listener; when hardly one more may come, the longest idle of the address that has
    /// most are closed [default: 10000]
    #[arg(long, env = "CHECKDAM_CONNECTIONS_MAX", value_name = "COUNT")]
    pub(super) connections_max: Option<usize>,

    /// The most connections of one address, or one /64 of IPv6, on a listener; loopback and trusted_proxies have
    /// connections_max, since many clients are behind them [default: half of connections_max]
    #[arg(long, env = "CHECKDAM_CONNECTIONS_PER_PEER", value_name = "COUNT")]
    pub(super) connections_per_peer: Option<usize>,

    /// Shed requests (503) that wait longer than this for their turn, such as 100ms; 0s sheds none for that
    /// [default: 100ms]
    #[arg(long, env = "CHECKDAM_SHED_AFTER", value_name = "TIME")]
    pub(super) shed_after: Option<DurationText>,

    /// The most requests that are decided at a time; more are turned away with 503 [default: 10000]
    #[arg(long, env = "CHECKDAM_IN_FLIGHT_MAX", value_name = "COUNT")]
    pub(super) in_flight_max: Option<usize>,

    /// How much is logged; LOG_LEVEL is read too [default: info]
    #[arg(long, env = "CHECKDAM_LOG_LEVEL", value_name = "LEVEL", value_enum, ignore_case = true)]
    pub(super) log_level: Option<LogLevel>,

    /// How log lines look; LOG_FORMAT is read too [default: text]
    #[arg(long, env = "CHECKDAM_LOG_FORMAT", value_name = "FORMAT", value_enum, ignore_case = true)]
    pub(super) log_format: Option<LogFormat>,

    /// What `checkdam proxy` takes besides, in the file.
    #[arg(skip)]
    pub(super) proxy: Option<super::ProxySettings>,

    /// Where `checkdam proxy` sends requests, in the file.
    #[arg(skip)]
    pub(super) route: Vec<super::proxy::RouteSettings>,
}
