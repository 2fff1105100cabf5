//! Combines the Redis settings of envoyproxy/ratelimit into one URL: `REDIS_URL` in
//! any of its forms, the login of `REDIS_AUTH` and the TLS of `REDIS_TLS`.

use super::super::ConfigError;

/// What its variables say of Redis.
pub(super) struct RedisVariables {
    /// `REDIS_URL`: an address, several, the path of a socket, or a URL.
    pub(super) url: String,
    /// `REDIS_TYPE`; empty if it is not set.
    pub(super) kind: String,
    /// `REDIS_AUTH`, or what the file of `REDIS_AUTH_FILE` holds: `password` or
    /// `user:password`.
    pub(super) login: Option<String>,
    /// `REDIS_TLS`.
    pub(super) is_tls: bool,
}

impl RedisVariables {
    /// The URL as our own setting takes it. A login or TLS that it cannot hold is
    /// refused: neither may silently be missing.
    pub(super) fn to_url(&self) -> Result<String, ConfigError> {
        let url = self.url.as_str();
        match self.kind.to_uppercase().as_str() {
            "" | "SINGLE" if url.starts_with('/') => self.socket("redis+unix", url),
            "" | "SINGLE" => match url.split_once("://") {
                Some((scheme @ ("redis+unix" | "unix"), path)) => self.socket(scheme, path),
                Some((scheme, rest)) => self.servers(&self.scheme(scheme), rest),
                None => self.servers(&self.scheme("redis"), url),
            },
            "CLUSTER" => {
                let (is_tls, hosts) = strip_schemes(url);
                self.servers(&self.scheme(if is_tls { "rediss-cluster" } else { "redis-cluster" }), &hosts)
            }
            "SENTINEL" => {
                let (master, hosts) = url.split_once(',').ok_or_else(|| ConfigError::NotHere {
                    name: "REDIS_URL",
                    value: url.to_owned(),
                    instead: "with REDIS_TYPE=SENTINEL write master-name,host:port,host:port",
                })?;
                let (is_tls, hosts) = strip_schemes(hosts);
                let scheme = self.scheme(if is_tls { "rediss-sentinel" } else { "redis-sentinel" });
                self.servers(&scheme, &format!("{hosts}/{master}"))
            }
            other => Err(ConfigError::NotAChoice {
                name: "REDIS_TYPE",
                value: other.to_owned(),
                choices: "SINGLE, SENTINEL, CLUSTER".to_owned(),
            }),
        }
    }

    /// The scheme, with TLS if that is enabled. TLS is never removed.
    fn scheme(&self, scheme: &str) -> String {
        match scheme.strip_prefix("redis") {
            Some(rest) if self.is_tls && !rest.starts_with('s') => format!("rediss{rest}"),
            _ => scheme.to_owned(),
        }
    }

    fn servers(&self, scheme: &str, rest: &str) -> Result<String, ConfigError> {
        match &self.login {
            Some(_) if rest.contains('@') => Err(ConfigError::TwoLogins),
            Some(login) => {
                let (user, password) = split_login(login);
                Ok(format!("{scheme}://{}:{}@{rest}", percent_encoded(user), percent_encoded(password)))
            }
            None => Ok(format!("{scheme}://{rest}")),
        }
    }

    /// The login of a socket stands in the query.
    fn socket(&self, scheme: &str, path: &str) -> Result<String, ConfigError> {
        if self.is_tls {
            return Err(ConfigError::NotHere {
                name: "REDIS_TLS",
                value: "true".to_owned(),
                instead: "the socket that REDIS_URL names has no TLS: leave it out",
            });
        }
        let Some(login) = &self.login else { return Ok(format!("{scheme}://{path}")) };
        if path.contains("pass=") {
            return Err(ConfigError::TwoLogins);
        }
        let (user, password) = split_login(login);
        let parts = [("user", user), ("pass", password)].into_iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = parts.map(|(name, value)| format!("{name}={}", percent_encoded(value))).collect();
        let mark = if path.contains('?') { '&' } else { '?' };
        Ok(format!("{scheme}://{path}{mark}{}", query.join("&")))
    }
}

/// Hosts without their schemes, and whether one of these demands TLS.
fn strip_schemes(hosts: &str) -> (bool, String) {
    let is_tls = hosts.contains("rediss://");
    (is_tls, hosts.replace("rediss://", "").replace("redis://", ""))
}

fn split_login(login: &str) -> (&str, &str) {
    login.split_once(':').unwrap_or(("", login))
}

fn percent_encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(url: &str, kind: &str, login: Option<&str>, is_tls: bool) -> Result<String, String> {
        let redis =
            RedisVariables { url: url.to_owned(), kind: kind.to_owned(), login: login.map(str::to_owned), is_tls };
        redis.to_url().map_err(|error| error.to_string())
    }

    #[test]
    fn login_and_tls_become_part_of_every_form() {
        for (url, kind, login, is_tls, wanted) in [
            ("redis:6379", "", None, false, "redis://redis:6379"),
            ("h:1", "", Some("a b/c"), true, "rediss://:a%20b%2Fc@h:1"),
            ("h:1", "single", Some("me:p@ss"), false, "redis://me:p%40ss@h:1"),
            ("redis://u:p@h:1", "", None, false, "redis://u:p@h:1"),
            ("redis://h:1/2", "", Some("pw"), false, "redis://:pw@h:1/2"),
            ("redis://h:1", "", None, true, "rediss://h:1"),
            ("redis://h:1", "SINGLE", Some("me:pw"), true, "rediss://me:pw@h:1"),
            ("rediss://h:1", "", None, false, "rediss://h:1"),
            ("redis-cluster://a:1,b:2", "", Some("pw"), true, "rediss-cluster://:pw@a:1,b:2"),
            ("/run/redis.sock", "", Some("pw"), false, "redis+unix:///run/redis.sock?pass=pw"),
            ("redis+unix:///r.sock?db=1", "", Some("me:p"), false, "redis+unix:///r.sock?db=1&user=me&pass=p"),
            ("a:1,b:2", "cluster", None, false, "redis-cluster://a:1,b:2"),
            ("redis://a:1,redis://b:2", "CLUSTER", Some("pw"), true, "rediss-cluster://:pw@a:1,b:2"),
            ("rediss://a:1,rediss://b:2", "CLUSTER", None, false, "rediss-cluster://a:1,b:2"),
            ("main,a:1,b:2", "SENTINEL", None, true, "rediss-sentinel://a:1,b:2/main"),
        ] {
            assert_eq!(store(url, kind, login, is_tls).as_deref(), Ok(wanted), "{url:?}");
        }
    }

    #[test]
    fn what_one_url_cannot_say_is_refused_and_names_no_secret() {
        for (url, kind, login, is_tls, part) in [
            ("redis://u:p@h:1", "", Some("secret"), false, "REDIS_AUTH"),
            ("redis+unix:///r.sock?pass=p", "", Some("secret"), false, "REDIS_AUTH"),
            ("/run/redis.sock", "", None, true, "REDIS_TLS"),
            ("h:1", "RING", None, false, "REDIS_TYPE"),
            ("h:1", "SENTINEL", None, false, "master-name"),
        ] {
            let said = store(url, kind, login, is_tls).unwrap_err();
            assert!(said.contains(part) && !said.contains("secret"), "{said}");
        }
    }
}
