//! Settings of commands that need only some: those of the store, and those of how rule
//! files are parsed.

use std::path::{Path, PathBuf};

use checkdam::Algorithm;
use checkdam::rule_file::FileOptions;
use checkdam::store::redis::RedisOptions;
use serde::Deserialize;

use super::layers::Layers;
use super::{ConfigError, DurationText, Settings, redis_options};

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
        // Rules and listeners do not matter here, and nothing is kept in memory.
        redis_options(&Layers::load(given, file, false)?.0.merge()?, 1)
    }
}

/// Flags for parsing rule files, for commands that need no server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RuleFileArguments {
    /// Default algorithm for descriptor limits [default: fixed_window]
    #[arg(long, env = "CHECKDAM_DEFAULT_ALGORITHM", value_name = "ALGORITHM", value_parser = algorithm)]
    default_algorithm: Option<Algorithm>,

    /// Allow several files to define descriptors of the same domain
    #[arg(long, env = "CHECKDAM_MERGE_DOMAINS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    merge_domains: Option<bool>,
}

impl RuleFileArguments {
    pub fn options(&self) -> FileOptions {
        options(self.default_algorithm, self.merge_domains)
    }
}

pub(super) fn options(algorithm: Option<Algorithm>, merge_domains: Option<bool>) -> FileOptions {
    let usual = FileOptions::default();
    FileOptions {
        descriptor_algorithm: algorithm.unwrap_or(usual.descriptor_algorithm),
        merge_domains: merge_domains.unwrap_or(usual.merge_domains),
        ..usual
    }
}

pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::by_name(name).ok_or_else(|| {
        let mut names = Algorithm::ALL.map(Algorithm::name).to_vec();
        names.dedup();
        format!("use one of {}", names.join(", "))
    })
}

pub(super) fn read_algorithm<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Algorithm>, D::Error> {
    let name = String::deserialize(from)?;
    algorithm(&name).map(Some).map_err(|error| serde::de::Error::custom(format!("{name:?} is no algorithm: {error}")))
}
