//! Settings of the database, the audit log and the admin listener.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ConfigError, Settings};
use crate::rulebook::DatabaseUrl;

/// A shorter token could be guessed.
const TOKEN_MIN: usize = 16;
/// So many waiting violations take some hundred megabytes.
const QUEUE_MAX: usize = 1_000_000;

/// The admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminListener {
    /// Where it listens.
    pub(crate) listen: String,
    /// What its callers must know. Default none.
    pub(crate) token: Option<Token>,
}

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// The secret.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token(…)")
    }
}

/// What is written of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditOptions {
    /// The most that are written a second and rule; the others are counted.
    pub(crate) per_rule_and_second: u32,
    /// How long they are kept.
    pub(crate) keep: Duration,
    /// The most that are kept.
    pub(crate) rows_max: u64,
    /// The most that are kept of one rule.
    pub(crate) rule_rows_max: u64,
    /// The most bytes that they may take, about.
    pub(crate) bytes_max: u64,
    /// The most that wait to be written.
    pub(crate) queue_max: usize,
}

impl AdminListener {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Result<Option<Self>, ConfigError> {
        let listen = given.admin_listen.as_ref().or(file.admin_listen.as_ref());
        let listen = listen.map_or("127.0.0.1:8082", String::as_str).to_owned();
        if listen == "off" {
            return Ok(None);
        }
        let token = token(given)?.map_or_else(|| token(file), |token| Ok(Some(token)))?;
        if token.is_none() && !is_loopback(&listen) {
            return Err(ConfigError::OpenAdmin { address: listen });
        }
        Ok(Some(Self { listen, token }))
    }
}

fn token(settings: &Settings) -> Result<Option<Token>, ConfigError> {
    let Some(text) = settings.admin_token.clone() else { return Ok(None) };
    if text.len() < TOKEN_MIN {
        return Err(ConfigError::WeakToken { reason: format!("has {} characters", text.len()) });
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError::WeakToken { reason: "has a character that no header can carry".to_owned() });
    }
    Ok(Some(Token(text)))
}

/// Whether only this machine can connect there. Names are not resolved: except for
/// `localhost`, they count as reachable.
fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// Where rules and violations are kept.
pub(super) fn database(given: &Settings, file: &Settings) -> Result<DatabaseUrl, ConfigError> {
    if let Some(url) = given.database.as_ref().or(file.database.as_ref()) {
        return Ok(url.parse()?);
    }
    // Platforms set it for every program: one of another kind is not for us.
    if let Some(url) = std::env::var("DATABASE_URL").ok().and_then(|url| url.parse().ok()) {
        return Ok(url);
    }
    let folder = given.data_dir.as_ref().or(file.data_dir.as_ref());
    Ok(DatabaseUrl::in_directory(folder.map_or(Path::new("checkdam-data"), PathBuf::as_path)))
}

impl AuditOptions {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Result<Self, ConfigError> {
        let queue_max = given.audit_queue.or(file.audit_queue).unwrap_or(10_000);
        if queue_max == 0 || queue_max > QUEUE_MAX {
            return Err(ConfigError::OutOfRange {
                name: "audit_queue",
                value: queue_max as u64,
                range: "1 to 1000000",
            });
        }
        let keep = given.audit_keep.or(file.audit_keep).map_or(Duration::from_secs(30 * 86_400), Into::into);
        if keep.is_zero() {
            return Err(ConfigError::OutOfRange { name: "audit_keep", value: 0, range: "1s or more" });
        }
        Ok(Self {
            per_rule_and_second: given.audit_rate.or(file.audit_rate).unwrap_or(100),
            keep,
            rows_max: given.audit_rows.or(file.audit_rows).unwrap_or(1_000_000),
            rule_rows_max: given.audit_rule_rows.or(file.audit_rule_rows).unwrap_or(100_000),
            bytes_max: given.audit_bytes.or(file.audit_bytes).unwrap_or(256 << 20),
            queue_max,
        })
    }
}

/// Attributes that are commonly secrets, as rules commonly name them.
const SECRETS: [&str; 16] = [
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "key",
    "token",
    "access_token",
    "refresh_token",
    "bearer",
    "authorization",
    "auth",
    "password",
    "secret",
    "session",
    "session_id",
    "cookie",
];

/// The attributes that records and the log hold as hashes.
pub(super) fn secret_attributes(given: &Settings, file: &Settings) -> Vec<String> {
    match given.secret_attributes.as_ref().or(file.secret_attributes.as_ref()) {
        // One empty name is how none is written on the command line.
        Some(names) => names.iter().filter(|name| !name.is_empty()).cloned().collect(),
        None => SECRETS.map(str::to_owned).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_door_that_others_can_reach_needs_a_token() {
        let listener = |listen: &str, token: Option<&str>| {
            let given = Settings {
                admin_listen: Some(listen.to_owned()),
                admin_token: token.map(str::to_owned),
                ..Settings::default()
            };
            AdminListener::from_settings(&given, &Settings::default()).map_err(|error| error.to_string())
        };
        for address in ["127.0.0.1:8082", "[::1]:0", "localhost:8082"] {
            assert!(listener(address, None).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:8082", "[::]:8082", "example.com:8082", ":8082"] {
            assert!(listener(address, None).unwrap_err().contains("--admin-token"), "{address}");
            assert!(listener(address, Some("0123456789abcdef")).is_ok(), "{address}");
        }
        assert_eq!(listener("off", None), Ok(None));
        assert!(listener("127.0.0.1:1", Some("short")).unwrap_err().contains("5 characters"));
        assert!(listener("127.0.0.1:1", Some("with spaces in the token")).is_err());
    }
}
