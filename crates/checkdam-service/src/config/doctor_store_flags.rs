//! The store flags of `checkdam doctor`.

use std::path::{Path, PathBuf};

use checkdam::store::redis::RedisOptions;

use super::envoy_ratelimit_env::{EnvoyEnvironment, OtherSettings};
use super::{ConfigError, DurationText, Settings, from_file, redis_options, variable};

/// Where the store is: the same names as `serve` takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct StoreSettings {
    /// Redis to check: redis://…, rediss://…, redis-cluster://host:port,host:port or
    /// redis-sentinel://host:port,host:port/master-name; REDIS_URL is read too [default: none; the memory store needs
    /// no check]
    #[arg(long, env = "CHECKDAM_STORE", value_name = "STORE", hide_env_values = true)]
    store: Option<String>,

    /// File containing the store URL, for a URL with a password
    #[arg(long, env = "CHECKDAM_STORE_FILE", value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,

    /// CA certificate (PEM) that verifies a rediss:// server [default: the system's]
    #[arg(long, env = "CHECKDAM_STORE_CA", value_name = "FILE")]
    store_ca: Option<PathBuf>,

    /// Client certificate (PEM) for a rediss:// server [default: none]
    #[arg(long, env = "CHECKDAM_STORE_CLIENT_CERT", value_name = "FILE")]
    store_client_cert: Option<PathBuf>,

    /// Private key (PEM) of store_client_cert [default: in the file of store_client_cert]
    #[arg(long, env = "CHECKDAM_STORE_CLIENT_KEY", value_name = "FILE")]
    store_client_key: Option<PathBuf>,

    /// Maximum time that a decision waits for Redis, such as 15ms; if unset, it adapts to the round-trip time [default:
    /// 15ms, or three round trips if that is more, up to 18ms]
    #[arg(long, env = "CHECKDAM_STORE_DEADLINE", value_name = "TIME")]
    store_deadline: Option<DurationText>,

    /// Prefix of every Redis key, after cd: [default: none]
    #[arg(long, env = "CHECKDAM_KEY_PREFIX", value_name = "TEXT")]
    key_prefix: Option<String>,
}

impl StoreSettings {
    /// Joins what was given with the file; none if the buckets live in memory.
    pub fn options(self, file: Option<&Path>) -> Result<Option<RedisOptions>, ConfigError> {
        let given = Settings {
            store: self.store,
            store_file: self.store_file,
            store_ca: self.store_ca,
            store_client_cert: self.store_client_cert,
            store_client_key: self.store_client_key,
            store_deadline: self.store_deadline,
            key_prefix: self.key_prefix,
            ..Settings::default()
        };
        // Rules and listeners do not matter here.
        let around = OtherSettings { has_rules: true, host: "127.0.0.1" };
        let (given, _) = EnvoyEnvironment(variable).merge_under(given.with_secrets()?, around)?;
        // Nothing is kept in memory while a store is examined.
        redis_options(&given, &from_file(file)?, 1)
    }
}
