//! Settings of the database and the audit log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ConfigError, Settings};
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
            change_rows_max: given.change_rows.or(file.change_rows).unwrap_or(CHANGES_MAX),
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
