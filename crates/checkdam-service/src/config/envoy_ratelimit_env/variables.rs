//! Maps the environment variables of envoyproxy/ratelimit: each becomes a setting, is
//! not needed, or is not supported.
//!
//! The names are those of its `src/settings/settings.go`, old ones included.

/// A variable of envoyproxy/ratelimit.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnvoyVariable {
    pub(super) name: &'static str,
    /// Whether other programs and platforms use that name too, so that it does not show
    /// that the program is configured as envoyproxy/ratelimit is.
    pub(super) is_general: bool,
    pub(super) meaning: VariableMeaning,
}

/// What a variable means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableMeaning {
    /// It becomes this setting of ours, or a part of it.
    Setting(&'static str),
    /// It changes nothing, because of this.
    Ignored(&'static str),
    /// It switches something on that there is not here: true changes nothing,
    /// because of this; false is how it is here.
    Switch(&'static str),
    /// Unsupported, and would silently be missing: this can be done instead.
    Refused(&'static str),
    /// The same, if it is true.
    RefusedSwitch(&'static str),
}

use VariableMeaning::{Ignored, Refused, RefusedSwitch, Setting, Switch};

const fn specific(name: &'static str, meaning: VariableMeaning) -> EnvoyVariable {
    EnvoyVariable { name, is_general: false, meaning }
}

const fn general(name: &'static str, meaning: VariableMeaning) -> EnvoyVariable {
    EnvoyVariable { name, is_general: true, meaning }
}

const STATSD: &str = "metrics are at /metrics of the HTTP listener, in Prometheus's form";
const PROMETHEUS: &str = "metrics are always at /metrics of the HTTP listener";
const PROMETHEUS_NAMES: &str = "metrics have names of their own: see deploy/prometheus";
const DEBUG: &str = "there is no debug listener: see the admin API, --admin-listen";
const XDS: &str = "it matters only with CONFIG_TYPE=GRPC_XDS_SOTW, which is refused";
const MEMCACHE: &str = "it matters only with BACKEND_TYPE=memcache, which is refused";
const PERSECOND: &str = "all limits are counted in the Redis of REDIS_URL";
const POOL: &str = "requests share one connection to each server";
const BATCH: &str = "requests that wait for Redis share calls by themselves";
const TIMEOUT: &str = "see --store-deadline";
const IAM: &str = "it matters only with REDIS_AWS_IAM_AUTH=true, which is refused";
const STARTUP: &str = "until Redis answers, requests are decided by on_store_failure";
const TRACING: &str = "spans are sent by --otlp-endpoint";
const REQUEST_HEADERS: &str = "no headers are added to requests, only to answers";
const OVERLOAD: &str = "see --shed-after and --in-flight-max";

/// Every one of them, in the order of their names.
pub(super) const TABLE: [EnvoyVariable; 137] = [
    specific("BACKEND_TYPE", Setting("store")),
    specific("CACHE_KEY_PREFIX", Setting("key_prefix")),
    specific("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_NODE_ID", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_NODE_METADATA", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_SERVER_URL", Ignored(XDS)),
    specific("CONFIG_GRPC_XDS_SERVER_USE_TLS", Ignored(XDS)),
    specific("CONFIG_TYPE", Setting("rules")),
    general("DEBUG_HOST", Ignored(DEBUG)),
    general("DEBUG_PORT", Ignored(DEBUG)),
    specific("DETAILED_METRICS_MODE", Switch("descriptors ask for it one by one: detailed_metric")),
    general("DISABLE_STATS", Switch(PROMETHEUS)),
    specific("EXPIRATION_JITTER_MAX_SECONDS", Ignored("keys expire when they hold nothing any more")),
    general("EXTRA_TAGS", Ignored("labels are added where metrics are scraped")),
    specific("FORCE_START_WITHOUT_INITIAL_CONFIG", Ignored(XDS)),
    specific("GRPC_CLIENT_TLS_CACERT", Setting("grpc_tls_client_ca")),
    specific(
        "GRPC_CLIENT_TLS_SAN",
        Refused("every certificate of the CA in GRPC_CLIENT_TLS_CACERT is accepted: use a CA for these clients alone"),
    ),
    general("GRPC_HOST", Setting("grpc_listen")),
    general("GRPC_MAX_CONCURRENT_STREAMS", Ignored(OVERLOAD)),
    specific("GRPC_MAX_CONNECTION_AGE", Ignored("connections live until the server shuts down")),
    specific("GRPC_MAX_CONNECTION_AGE_GRACE", Ignored("connections live until the server shuts down")),
    general("GRPC_PORT", Setting("grpc_listen")),
    specific("GRPC_SERVER_TLS_CERT", Setting("grpc_tls_cert")),
    specific("GRPC_SERVER_TLS_KEY", Setting("grpc_tls_key")),
    specific("GRPC_SERVER_USE_TLS", Setting("grpc_tls_cert")),
    specific("GRPC_UDS", Refused("gRPC listens on TCP only: use GRPC_HOST and GRPC_PORT")),
    specific(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Switch("the server is ready once rules are loaded, and not before"),
    ),
    general("HOST", Setting("http_listen")),
    specific("LIMIT_LIMIT_HEADER", Setting("grpc_headers")),
    specific("LIMIT_REMAINING_HEADER", Setting("grpc_headers")),
    specific("LIMIT_REQUEST_HEADERS_ENABLED", Switch(REQUEST_HEADERS)),
    specific("LIMIT_REQUEST_LIMIT_HEADER", Ignored(REQUEST_HEADERS)),
    specific("LIMIT_REQUEST_REMAINING_HEADER", Ignored(REQUEST_HEADERS)),
    specific("LIMIT_REQUEST_RESET_HEADER", Ignored(REQUEST_HEADERS)),
    specific("LIMIT_RESET_HEADER", Setting("grpc_headers")),
    specific("LIMIT_RESPONSE_HEADERS_ENABLED", Setting("grpc_headers")),
    specific("LOCAL_CACHE_SIZE_IN_BYTES", Ignored("denials are remembered without it")),
    general("LOG_FORMAT", Setting("log_format")),
    general("LOG_LEVEL", Setting("log_level")),
    general("MAX_CONCURRENT_REQUESTS", Ignored(OVERLOAD)),
    general("MEMCACHE_HOST_PORT", Ignored(MEMCACHE)),
    general("MEMCACHE_MAX_IDLE_CONNS", Ignored(MEMCACHE)),
    general("MEMCACHE_SRV", Ignored(MEMCACHE)),
    general("MEMCACHE_SRV_REFRESH", Ignored(MEMCACHE)),
    general("MEMCACHE_TLS", Ignored(MEMCACHE)),
    general("MEMCACHE_TLS_CACERT", Ignored(MEMCACHE)),
    general("MEMCACHE_TLS_CLIENT_CERT", Ignored(MEMCACHE)),
    general("MEMCACHE_TLS_CLIENT_KEY", Ignored(MEMCACHE)),
    general("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Ignored(MEMCACHE)),
    specific("MERGE_DOMAIN_CONFIG", Setting("merge_domains")),
    specific("NEAR_LIMIT_RATIO", Ignored("no metric counts requests that come near a limit")),
    general("PORT", Setting("http_listen")),
    general("PROMETHEUS_ADDR", Ignored(PROMETHEUS)),
    general("PROMETHEUS_MAPPER_YAML", Ignored(PROMETHEUS_NAMES)),
    general("PROMETHEUS_PATH", Ignored(PROMETHEUS)),
    specific("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Switch(PROMETHEUS_NAMES)),
    specific("QUOTA_MODE", Setting("grpc_quota")),
    general("REDIS_AUTH", Setting("store")),
    general("REDIS_AUTH_FILE", Setting("store")),
    specific("REDIS_AWS_IAM_AUTH", RefusedSwitch("there is no login by IAM: give a password with REDIS_AUTH")),
    specific("REDIS_AWS_IAM_CACHE_NAME", Ignored(IAM)),
    specific("REDIS_AWS_IAM_REGION", Ignored(IAM)),
    specific("REDIS_AWS_IAM_SERVERLESS", Ignored(IAM)),
    specific("REDIS_AWS_IAM_USER_ID", Ignored(IAM)),
    specific("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", Switch("name a Sentinel or a cluster to follow a failover")),
    specific("REDIS_CLUSTER_PIPELINE_PARALLELISM", Ignored(BATCH)),
    specific("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Switch("readiness follows the limits' on_store_failure")),
    specific("REDIS_PERSECOND", Switch(PERSECOND)),
    specific("REDIS_PERSECOND_AUTH", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_AUTH_FILE", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_AWS_IAM_AUTH", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_AWS_IAM_CACHE_NAME", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_AWS_IAM_SERVERLESS", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_AWS_IAM_USER_ID", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_PIPELINE_LIMIT", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_PIPELINE_WINDOW", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_POOL_SIZE", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_SENTINEL_AUTH", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_SOCKET_TYPE", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_TIMEOUT", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_TLS", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_TYPE", Ignored(PERSECOND)),
    specific("REDIS_PERSECOND_URL", Ignored(PERSECOND)),
    specific("REDIS_PIPELINE_LIMIT", Ignored(BATCH)),
    specific("REDIS_PIPELINE_WINDOW", Ignored(BATCH)),
    specific("REDIS_POOL_ON_EMPTY_BEHAVIOR", Ignored(POOL)),
    general("REDIS_POOL_SIZE", Ignored(POOL)),
    general(
        "REDIS_SENTINEL_AUTH",
        Refused("Sentinels are asked without a login: allow that, or name the server itself"),
    ),
    specific("REDIS_SOCKET_TYPE", Setting("store")),
    specific("REDIS_STARTUP_INITIAL_INTERVAL", Ignored(STARTUP)),
    specific("REDIS_STARTUP_MAX_ELAPSED_TIME", Ignored(STARTUP)),
    specific("REDIS_STARTUP_MAX_INTERVAL", Ignored(STARTUP)),
    general("REDIS_TIMEOUT", Ignored(TIMEOUT)),
    general("REDIS_TLS", Setting("store")),
    general("REDIS_TLS_CACERT", Setting("store_ca")),
    general("REDIS_TLS_CLIENT_CERT", Setting("store_client_cert")),
    general("REDIS_TLS_CLIENT_KEY", Setting("store_client_key")),
    general(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        RefusedSwitch("the name in the certificate is always verified: use the name that stands there in REDIS_URL"),
    ),
    general("REDIS_TYPE", Setting("store")),
    general("REDIS_URL", Setting("store")),
    general("REQUEST_TIMEOUT", Ignored(TIMEOUT)),
    specific("RESPONSE_DYNAMIC_METADATA", Setting("grpc_metadata")),
    specific("RUNTIME_APPDIRECTORY", Setting("rules")),
    specific("RUNTIME_IGNOREDOTFILES", Ignored("files whose names begin with a dot are never read")),
    specific("RUNTIME_ROOT", Setting("rules")),
    specific("RUNTIME_SUBDIRECTORY", Setting("rules")),
    specific("RUNTIME_WATCH_ROOT", Ignored("a change of any file is noticed within a second")),
    specific("SANITIZE_DESCRIPTOR_METRIC_DOTS", Switch(PROMETHEUS_NAMES)),
    general("SHADOW_MODE", Setting("grpc_shadow")),
    general("STATSD_HOST", Ignored(STATSD)),
    general("STATSD_PORT", Ignored(STATSD)),
    general("STATSD_PROTOCOL", Ignored(STATSD)),
    specific("STATS_FLUSH_INTERVAL", Ignored(STATSD)),
    specific("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Ignored("a request that is denied is never charged")),
    general("TRACING_ENABLED", Switch(TRACING)),
    general("TRACING_EXPORTER_PROTOCOL", Ignored(TRACING)),
    general("TRACING_SAMPLING_RATE", Ignored("see --trace-share")),
    general("TRACING_SERVICE_INSTANCE_ID", Ignored(TRACING)),
    general("TRACING_SERVICE_NAME", Ignored(TRACING)),
    general("TRACING_SERVICE_NAMESPACE", Ignored(TRACING)),
    specific(
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        RefusedSwitch("a month of a descriptor is 30 days: write a rule with a calendar quota instead"),
    ),
    specific("USE_DOG_STATSD", Switch(STATSD)),
    specific("USE_DOG_STATSD_MOGRIFIERS", Ignored(STATSD)),
    general("USE_PROMETHEUS", Ignored(PROMETHEUS)),
    specific("USE_STATSD", Switch(STATSD)),
    specific("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Ignored(XDS)),
    specific("XDS_CLIENT_BACKOFF_JITTER", Ignored(XDS)),
    specific("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Ignored(XDS)),
    specific("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Ignored(XDS)),
    specific("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Ignored(XDS)),
];
