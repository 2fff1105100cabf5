//! The settings of envoyproxy/ratelimit, for those who put this server in its
//! place: its variables, as far as they mean something here.
//!
//! `RUNTIME_ROOT` tells that a program is set up so; without it names as
//! general as `PORT` are somebody else's. Our own variables and flags win.

use std::path::PathBuf;

use super::{ConfigError, Settings};

/// Variables that are known and change nothing here: whoever sets one should
/// hear of it.
const IGNORED: [&str; 42] = [
    "CACHE_KEY_PREFIX",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "DETAILED_METRICS_MODE",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_MAX_CONNECTION_AGE",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    "GRPC_UDS",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "LIMIT_REQUEST_HEADERS_ENABLED",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "NEAR_LIMIT_RATIO",
    "PROMETHEUS_ADDR",
    "PROMETHEUS_MAPPER_YAML",
    "PROMETHEUS_PATH",
    "QUOTA_MODE",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_PERSECOND",
    "REDIS_PERSECOND_AUTH",
    "REDIS_PERSECOND_SOCKET_TYPE",
    "REDIS_PERSECOND_TYPE",
    "REDIS_PERSECOND_URL",
    "REDIS_PIPELINE_LIMIT",
    "REDIS_PIPELINE_WINDOW",
    "REDIS_POOL_SIZE",
    "REDIS_SENTINEL_AUTH",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_WATCH_ROOT",
    "STATSD_HOST",
    "STATSD_PORT",
    "STATS_FLUSH_INTERVAL",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
    "TRACING_ENABLED",
    "USE_CALENDAR_MONTH_RATE_LIMIT",
    "USE_DOG_STATSD",
    "USE_PROMETHEUS",
];

/// Reads variables.
pub(super) struct Variables<F>(pub(super) F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    /// Whether the program is set up as envoyproxy/ratelimit is.
    pub(super) fn is_set_up(&self) -> bool {
        self.get("RUNTIME_ROOT").is_some()
    }

    /// What they say, where it is not given otherwise; and those that change nothing.
    pub(super) fn under(&self, given: Settings) -> Result<(Settings, Vec<String>), ConfigError> {
        if !self.is_set_up() {
            return Ok((given, Vec::new()));
        }
        self.refuse_what_cannot_be()?;
        let has_redis = given.store.is_none() && self.get("REDIS_URL").is_some();
        let settings = Settings {
            rules: given.rules.or_else(|| self.rules()),
            http_listen: given.http_listen.or_else(|| self.address("HOST", "PORT", "8080")),
            grpc_listen: given.grpc_listen.or_else(|| self.address("GRPC_HOST", "GRPC_PORT", "8081")),
            store_ca: given.store_ca.or_else(|| self.get("REDIS_TLS_CACERT").map(PathBuf::from)),
            store: if has_redis { Some(self.store()?) } else { given.store },
            merge_domains: given.merge_domains.or(self.truth("MERGE_DOMAIN_CONFIG")?),
            grpc_shadow: given.grpc_shadow.or(self.truth("SHADOW_MODE")?),
            grpc_metadata: given.grpc_metadata.or(self.truth("RESPONSE_DYNAMIC_METADATA")?),
            grpc_headers: match given.grpc_headers {
                None => self.headers()?,
                headers => headers,
            },
            ..given
        };
        let ignored = IGNORED.iter().filter(|name| self.get(name).is_some()).map(|name| (*name).to_owned());
        Ok((settings, ignored.collect()))
    }

    /// What they say of a setting, as text, and the one that says it.
    pub(super) fn of(&self, setting: &str) -> Result<Option<(String, &'static str)>, ConfigError> {
        let said = self.under(Settings::default())?.0;
        let shown = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
        let one_of = |first, second| if self.get(first).is_some() { first } else { second };
        let (value, name) = match setting {
            "rules" => (shown(said.rules), "RUNTIME_ROOT"),
            "http_listen" => (said.http_listen, one_of("PORT", "HOST")),
            "grpc_listen" => (said.grpc_listen, one_of("GRPC_PORT", "GRPC_HOST")),
            "store" => (said.store, "REDIS_URL"),
            "store_ca" => (shown(said.store_ca), "REDIS_TLS_CACERT"),
            "merge_domains" => (said.merge_domains.map(|is| is.to_string()), "MERGE_DOMAIN_CONFIG"),
            "grpc_shadow" => (said.grpc_shadow.map(|is| is.to_string()), "SHADOW_MODE"),
            "grpc_metadata" => (said.grpc_metadata.map(|is| is.to_string()), "RESPONSE_DYNAMIC_METADATA"),
            "grpc_headers" => (said.grpc_headers, "LIMIT_RESPONSE_HEADERS_ENABLED"),
            _ => (None, ""),
        };
        Ok(value.map(|value| (value, name)))
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// What is asked for and would silently be missing.
    fn refuse_what_cannot_be(&self) -> Result<(), ConfigError> {
        let refuse = |name: &'static str, instead: &'static str| {
            let value = self.get(name).unwrap_or_default();
            Err(ConfigError::NotHere { name, value, instead })
        };
        if self.get("BACKEND_TYPE").is_some_and(|kind| kind != "redis") {
            return refuse("BACKEND_TYPE", "use redis, or leave REDIS_URL out to count in memory");
        }
        if self.get("CONFIG_TYPE").is_some_and(|kind| kind != "FILE") {
            return refuse("CONFIG_TYPE", "use FILE: rules come from files or from a database");
        }
        if self.truth("GRPC_SERVER_USE_TLS")? == Some(true) {
            return refuse("GRPC_SERVER_USE_TLS", "the door speaks no TLS: let a proxy end it");
        }
        Ok(())
    }

    /// The folder with the files, one a domain.
    fn rules(&self) -> Option<PathBuf> {
        let mut folder = PathBuf::from(self.get("RUNTIME_ROOT")?);
        folder.extend(self.get("RUNTIME_SUBDIRECTORY"));
        folder.push(self.get("RUNTIME_APPDIRECTORY").unwrap_or_else(|| "config".to_owned()));
        Some(folder)
    }

    /// Only what is asked for is opened to others: the host stays loopback
    /// where none is given.
    fn address(&self, host: &str, port: &str, port_default: &str) -> Option<String> {
        let (host, port) = (self.get(host), self.get(port));
        if host.is_none() && port.is_none() {
            return None;
        }
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        Some(format!("{host}:{}", port.as_deref().unwrap_or(port_default)))
    }

    fn headers(&self) -> Result<Option<String>, ConfigError> {
        if self.truth("LIMIT_RESPONSE_HEADERS_ENABLED")? != Some(true) {
            return Ok(None);
        }
        let names = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
        let names = names.into_iter().zip(crate::grpc::HeaderNames::DEFAULT);
        let names = names.map(|(name, default)| self.get(name).unwrap_or_else(|| default.to_owned()));
        Ok(Some(names.collect::<Vec<_>>().join(",")))
    }

    /// Where Redis is, as one URL.
    fn store(&self) -> Result<String, ConfigError> {
        let url = self.get("REDIS_URL").unwrap_or_default();
        let is_tls = self.truth("REDIS_TLS")?.unwrap_or(false);
        let scheme = if is_tls { "rediss" } else { "redis" };
        let login = self.get("REDIS_AUTH").map(|login| login_text(&login)).unwrap_or_default();
        match self.get("REDIS_TYPE").unwrap_or_default().to_uppercase().as_str() {
            "" | "SINGLE" if url.contains("://") => Ok(url),
            "" | "SINGLE" if url.starts_with('/') => {
                let (user, password) = login.split_once('@').map_or(("", ""), |(login, _)| split_login(login));
                let parts = [("user", user), ("pass", password)].into_iter().filter(|(_, value)| !value.is_empty());
                let query: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
                let mark = if query.is_empty() { "" } else { "?" };
                Ok(format!("redis+unix://{url}{mark}{}", query.join("&")))
            }
            "" | "SINGLE" => Ok(format!("{scheme}://{login}{url}")),
            "CLUSTER" => Ok(format!("{scheme}-cluster://{login}{url}")),
            "SENTINEL" => {
                let (master, hosts) = url.split_once(',').ok_or_else(|| ConfigError::NotHere {
                    name: "REDIS_URL",
                    value: url.clone(),
                    instead: "with REDIS_TYPE=SENTINEL write master-name,host:port,host:port",
                })?;
                Ok(format!("{scheme}-sentinel://{login}{hosts}/{master}"))
            }
            other => Err(ConfigError::NotAChoice {
                name: "REDIS_TYPE",
                value: other.to_owned(),
                choices: "SINGLE, SENTINEL, CLUSTER".to_owned(),
            }),
        }
    }

    /// What Go reads as a truth value.
    fn truth(&self, name: &'static str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            _ => Err(ConfigError::NotAChoice { name, value, choices: "true, false".to_owned() }),
        }
    }
}

/// `password` or `user:password`, as it stands in a URL before the host.
fn login_text(login: &str) -> String {
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    format!("{}:{}@", encoded(user), encoded(password))
}

fn split_login(login: &str) -> (&str, &str) {
    login.split_once(':').unwrap_or(("", login))
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Variables(get).under(Settings::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn general_names_mean_nothing_without_a_runtime_root() {
        let (settings, ignored) = read(&[("PORT", "1"), ("HOST", "0.0.0.0"), ("SHADOW_MODE", "true")]).unwrap();
        assert_eq!((settings.http_listen, settings.grpc_shadow, ignored.len()), (None, None, 0));
    }

    #[test]
    fn a_set_up_of_the_incumbent_is_understood() {
        let (settings, ignored) = read(&[
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("PORT", "9080"),
            ("GRPC_HOST", "::"),
            ("SHADOW_MODE", "TRUE"),
            ("MERGE_DOMAIN_CONFIG", "1"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
            ("LIMIT_RESET_HEADER", "X-Reset"),
            ("USE_STATSD", "false"),
            ("STATSD_HOST", "stats"),
            ("NEAR_LIMIT_RATIO", "0.8"),
        ])
        .unwrap();
        assert_eq!(settings.rules, Some(PathBuf::from("/data/ratelimit/config")));
        assert_eq!(settings.http_listen.as_deref(), Some("127.0.0.1:9080"), "loopback unless opened");
        assert_eq!(settings.grpc_listen.as_deref(), Some("[::]:8081"));
        assert_eq!((settings.grpc_shadow, settings.grpc_metadata), (Some(true), None));
        assert_eq!(settings.merge_domains, Some(true));
        assert_eq!(settings.grpc_headers.as_deref(), Some("RateLimit-Limit,RateLimit-Remaining,X-Reset"));
        assert_eq!(ignored, ["NEAR_LIMIT_RATIO", "STATSD_HOST"]);
    }

    #[test]
    fn redis_becomes_one_url() {
        for (variables, url) in [
            (&[("REDIS_URL", "redis:6379")][..], "redis://redis:6379"),
            (&[("REDIS_URL", "redis://u:p@h:1"), ("REDIS_SOCKET_TYPE", "tcp")], "redis://u:p@h:1"),
            (&[("REDIS_URL", "h:1"), ("REDIS_TLS", "true"), ("REDIS_AUTH", "a b/c")], "rediss://:a%20b%2Fc@h:1"),
            (&[("REDIS_URL", "h:1"), ("REDIS_AUTH", "me:p@ss")], "redis://me:p%40ss@h:1"),
            (&[("REDIS_URL", "/run/redis.sock"), ("REDIS_AUTH", "pw")], "redis+unix:///run/redis.sock?pass=pw"),
            (&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "cluster")], "redis-cluster://a:1,b:2"),
            (&[("REDIS_URL", "main,a:1,b:2"), ("REDIS_TYPE", "SENTINEL")], "redis-sentinel://a:1,b:2/main"),
        ] {
            let variables: Vec<_> = variables.iter().copied().chain([("RUNTIME_ROOT", "/data")]).collect();
            assert_eq!(read(&variables).unwrap().0.store.as_deref(), Some(url), "{variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        for (name, value, part) in [
            ("BACKEND_TYPE", "memcache", "redis"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW", "FILE"),
            ("GRPC_SERVER_USE_TLS", "true", "TLS"),
            ("SHADOW_MODE", "perhaps", "true, false"),
        ] {
            let said = read(&[("RUNTIME_ROOT", "/data"), (name, value)]).unwrap_err();
            assert!(said.contains(name) && said.contains(value) && said.contains(part), "{said}");
        }
    }

    #[test]
    fn what_is_given_otherwise_wins() {
        let get = |name: &str| (["RUNTIME_ROOT", "PORT", "REDIS_URL"].contains(&name)).then(|| "1".to_owned());
        let given = Settings {
            store: Some("memory".to_owned()),
            http_listen: Some("127.0.0.1:7".to_owned()),
            ..Settings::default()
        };
        let (settings, _) = Variables(get).under(given).unwrap();
        assert_eq!((settings.store.as_deref(), settings.http_listen.as_deref()), (Some("memory"), Some("127.0.0.1:7")));
    }
}
