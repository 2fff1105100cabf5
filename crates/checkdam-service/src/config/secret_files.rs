//! Secrets from files, as containers and systemd credentials provide them.

use std::path::Path;

use super::{ConfigError, Settings};

impl Settings {
    /// The same with what its files of secrets hold.
    pub(super) fn with_secrets(mut self) -> Result<Self, ConfigError> {
        for (value, file) in [
            (&mut self.database, &self.database_file),
            (&mut self.store, &self.store_file),
            (&mut self.key_secret, &self.key_secret_file),
        ] {
            if let (None, Some(path)) = (&value, file) {
                *value = Some(read(path)?);
            }
        }
        Ok(self)
    }
}

/// The text of a file, without the line's end that editors add.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let shown = path.display().to_string();
    match super::read_limited::read_text(path) {
        Ok(text) if text.trim().is_empty() => Err(ConfigError::EmptySecret { path: shown }),
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(reason) => Err(ConfigError::Unreadable { path: shown, reason }),
    }
}
