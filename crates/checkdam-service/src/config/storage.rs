//! Settings of the database and the audit log.

use std::path::Path;
use std::time::Duration;

use super::{ConfigError, Settings, in_range};
use crate::rulebook::{CHANGES_MAX, DatabaseUrl};

/// So many waiting violations take some hundred megabytes.
const QUEUE_MAX: usize = 1_000_000;

/// What is written of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// The most that are written a second and rule; the others are counted.
    pub per_rule_and_second: u32,
    /// How long they are kept.
    pub keep: Duration,
    /// The most that are kept.
    pub rows_max: u64,
    /// The most that are kept of one rule.
    pub rule_rows_max: u64,
    /// The most bytes that they may take, about.
    pub bytes_max: u64,
    /// The most that wait to be written.
    pub queue_max: usize,
    /// The most edits that the change log keeps.
    pub change_rows_max: u32,
}

/// Where rules and violations are kept.
pub(super) fn database(settings: &Settings) -> Result<DatabaseUrl, ConfigError> {
    match &settings.database {
        Some(url) => Ok(url.parse()?),
        None => Ok(DatabaseUrl::in_directory(settings.data_dir.as_deref().unwrap_or(Path::new("checkdam-data")))),
    }
}

impl AuditOptions {
    pub(super) fn from_settings(settings: &Settings) -> Result<Self, ConfigError> {
        let queue_max = settings.audit_queue.unwrap_or(10_000);
        let queue_max = in_range("audit_queue", queue_max, 1..=QUEUE_MAX, "1 to 1000000")?;
        let keep = settings.audit_keep.map_or(Duration::from_secs(30 * 86_400), Into::into);
        if keep.is_zero() {
            return Err(ConfigError::OutOfRange { name: "audit_keep", value: 0, range: "1s or more" });
        }
        Ok(Self {
            per_rule_and_second: settings.audit_rate.unwrap_or(100),
            keep,
            rows_max: settings.audit_rows.unwrap_or(1_000_000),
            rule_rows_max: settings.audit_rule_rows.unwrap_or(100_000),
            bytes_max: settings.audit_bytes.unwrap_or(256 << 20),
            queue_max,
            change_rows_max: settings.change_rows.unwrap_or(CHANGES_MAX),
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
pub(super) fn secret_attributes(settings: &Settings) -> Vec<String> {
    match &settings.secret_attributes {
        // One empty name is how none is written on the command line.
        Some(names) => names.iter().filter(|name| !name.is_empty()).cloned().collect(),
        None => SECRETS.map(str::to_owned).to_vec(),
    }
}
