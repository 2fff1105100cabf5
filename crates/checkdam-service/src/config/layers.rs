//! Merges the layers of settings. From the highest: flags and `CHECKDAM_…` variables,
//! which clap has merged; the variables of envoyproxy/ratelimit; `LOG_LEVEL` and
//! `LOG_FORMAT`; `checkdam.toml`; and the variables that platforms set for every program,
//! such as `REDIS_URL`. Each value keeps its source.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use toml::{Table, Value};

use super::enums::{LogFormat, LogLevel, choice};
use super::envoy_ratelimit_env::{EnvoyEnvironment, EnvoyVariableReport};
use super::{ConfigError, DatabaseUrl, FILE_DEFAULT, Settings, is_redis_url, listen_host, read_text, variable};

/// The standard variables of OpenTelemetry, the more specific first.
pub(super) const OTLP_ENDPOINT: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Settings of which a layer may give any part.
pub(super) trait Layered: Sized {
    /// These, and those of a lower layer where they are not given.
    fn or(self, below: Self) -> Self;

    fn is_given(&self, name: &str) -> bool;
}

/// Defines a struct of settings, all of them optional, and how its layers are merged.
macro_rules! layered {
    ($(#[$about:meta])* $visible:vis struct $name:ident {
        $($(#[$field_about:meta])* $field_visible:vis $field:ident: Option<$kind:ty>,)*
    }) => {
        $(#[$about])*
        $visible struct $name { $($(#[$field_about])* $field_visible $field: Option<$kind>,)* }

        impl $crate::config::layers::Layered for $name {
            fn or(self, below: Self) -> Self {
                Self { $($field: self.$field.or(below.$field),)* }
            }

            fn is_given(&self, name: &str) -> bool {
                match name {
                    $(stringify!($field) => self.$field.is_some(),)*
                    _ => false,
                }
            }
        }
    };
}

/// The file's texts are read as the command line's.
macro_rules! from_text {
    ($($kind:ty),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )+};
}

pub(super) use {from_text, layered};

/// The layers of the settings, from the highest to the lowest.
#[derive(Clone, Default)]
pub(super) struct Layers {
    given: Settings,
    /// What the lower layers say, with the source: of each setting the highest that has it.
    below: BTreeMap<String, (Value, String)>,
}

impl Layers {
    pub(super) fn new(given: Settings) -> Self {
        Self { given, ..Self::default() }
    }

    /// All layers, and what became of each variable of envoyproxy/ratelimit. Rules and the
    /// log matter only to servers.
    pub(super) fn load(
        given: Settings,
        file: Option<&Path>,
        is_server: bool,
    ) -> Result<(Self, Vec<EnvoyVariableReport>), ConfigError> {
        let path = settings_file(file);
        let (in_file, table) = path.map(read).transpose()?.unwrap_or_default();
        let host = listen_host(given.listen_host.as_ref().or(in_file.listen_host.as_ref()));
        let gives = |name| given.is_given(name) || in_file.is_given(name);
        let has_rules = ["rules", "database", "database_file"].into_iter().any(gives);
        let has_rules = !is_server || has_rules || variable("DATABASE_URL").is_some();
        let environment = EnvoyEnvironment(variable);
        let mut layers = Self::new(given);
        let reports = environment.add_to(&mut layers, has_rules, &host)?;
        if is_server {
            layers.add("log_level", "LOG_LEVEL", || choice::<LogLevel>("LOG_LEVEL"))?;
            layers.add("log_format", "LOG_FORMAT", || choice::<LogFormat>("LOG_FORMAT"))?;
        }
        layers.add_file(path, table);
        // Platforms set these for every program: those of another kind are not for this one.
        if variable("REDIS_URL").is_some_and(|url| is_redis_url(&url)) {
            layers.add("store", "REDIS_URL", || environment.redis_store_url())?;
        }
        let database = || variable("DATABASE_URL").filter(|url| url.parse::<DatabaseUrl>().is_ok());
        layers.add("database", "DATABASE_URL", || Ok(database().map(Value::from)))?;
        for name in OTLP_ENDPOINT {
            layers.add("otlp_endpoint", name, || Ok(variable(name).map(Value::from)))?;
        }
        Ok((layers, reports))
    }

    /// Adds a value, unless a higher layer has the setting; then it is not read.
    pub(super) fn add(
        &mut self,
        name: &str,
        source: &str,
        value: impl FnOnce() -> Result<Option<Value>, ConfigError>,
    ) -> Result<(), ConfigError> {
        if !self.has(name)
            && let Some(value) = value()?
        {
            self.below.insert(name.to_owned(), (value, source.to_owned()));
        }
        Ok(())
    }

    fn add_file(&mut self, path: Option<&Path>, mut table: Table) {
        let source = path.map(|path| path.display().to_string()).unwrap_or_default();
        table.retain(|name, _| !self.has(name));
        self.below.extend(table.into_iter().map(|(name, value)| (name, (value, source.clone()))));
    }

    /// Whether a layer has the setting. A secret and the file that contains it are one.
    pub(super) fn has(&self, name: &str) -> bool {
        let value = name.strip_suffix("_file").unwrap_or(name);
        let is_in = |name: &str| self.given.is_given(name) || self.below.contains_key(name);
        is_in(value) || is_in(&format!("{value}_file"))
    }

    /// What a lower layer says of a setting, and its source.
    pub(super) fn below(&self, name: &str) -> Option<(&Value, &str)> {
        self.below.get(name).map(|(value, source)| (value, source.as_str()))
    }

    /// The settings of all layers, with what files of secrets contain.
    pub(super) fn merge(&mut self) -> Result<Settings, ConfigError> {
        let below: Table = self.below.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect();
        // Each layer was validated by itself.
        let below = below.try_into().map_err(|error: toml::de::Error| ConfigError::Invalid {
            path: FILE_DEFAULT.to_owned(),
            reason: error.message().to_owned(),
        })?;
        let mut settings = std::mem::take(&mut self.given).or(below);
        for (value, file) in [
            (&mut settings.database, &settings.database_file),
            (&mut settings.store, &settings.store_file),
            (&mut settings.key_secret, &settings.key_secret_file),
        ] {
            if let (None, Some(path)) = (&value, file) {
                *value = Some(read_secret(path)?);
            }
        }
        Ok(settings)
    }
}

/// Without values: they may be secrets.
impl fmt::Debug for Layers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.below.iter().map(|(name, (_, source))| (name, source))).finish()
    }
}

/// The text of a file, without the line's end that editors add.
pub(super) fn read_secret(path: &Path) -> Result<String, ConfigError> {
    let shown = path.display().to_string();
    match read_text(path) {
        Ok(text) if text.trim().is_empty() => Err(ConfigError::EmptySecret { path: shown }),
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(reason) => Err(ConfigError::Unreadable { path: shown, reason }),
    }
}

/// What the settings file says, if there is one.
pub(super) fn from_file(file: Option<&Path>) -> Result<Settings, ConfigError> {
    Ok(settings_file(file).map(read).transpose()?.unwrap_or_default().0)
}

/// Which settings file is read, if there is one.
fn settings_file(given: Option<&Path>) -> Option<&Path> {
    given.or_else(|| Some(Path::new(FILE_DEFAULT)).filter(|path| path.exists()))
}

fn read(path: &Path) -> Result<(Settings, Table), ConfigError> {
    let shown = path.display().to_string();
    match read_text(path) {
        Ok(text) => Ok((from_toml(&shown, &text)?, from_toml(&shown, &text)?)),
        Err(reason) => Err(ConfigError::Unreadable { path: shown, reason }),
    }
}

/// Parses TOML. Errors have the location and the key, never the value: it may be a
/// secret.
fn from_toml<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let (line, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
        let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let key = before[line_start..].split_once('=').map(|(key, _)| key.trim());
        let key = key.filter(|key| key.bytes().all(is_of_key)).map(|key| format!("{key}: ")).unwrap_or_default();
        let reason = format!("{key}{}", without_secret(&before[line_start..], error.message().trim_end()));
        ConfigError::Invalid { path: format!("{path}:{line}:{column}"), reason }
    })
}

/// What is wrong with a value, without the value if it may be a secret. `before` is the line
/// up to the value. Messages about syntax never have a value.
fn without_secret(before: &str, message: &str) -> String {
    let key = before.split('=').next().unwrap_or_default().trim();
    let is_secret = ["token", "secret"].iter().any(|part| before.contains(part))
        || ["database", "otlp_endpoint", "store"].contains(&key);
    let has_value = ["invalid type", "invalid value", "unknown variant"].iter().any(|kind| message.starts_with(kind));
    if !is_secret || !has_value {
        return message.to_owned();
    }
    // serde writes "invalid type: integer `1`, expected a string", and texts in double quotes.
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, "another value"));
    let kind = found.split(['`', '"']).next().unwrap_or_default().trim_end();
    format!("{kind}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_settings_file_show_no_secret() {
        const SECRETS: [&str; 4] = ["1234567890123456", "hunter2", "12345.678", "4567"];
        for (text, expected) in [
            ("admin_token = hunter2-hunter2-hunter2", "file:1:15: admin_token: "),
            ("admin_token = 1234567890123456", "file:1:15: admin_token: invalid type: integer, expected a string"),
            ("key_secret = 12345.678", "key_secret: invalid type: floating point, expected a string"),
            ("api_token = hunter2=hunter2", "file:1:"),
            ("api_token = \"hunter2", "file:1:"),
            ("api_token: hunter2=hunter2", "file:1:"),
            ("admin_tokens = \"hunter2-hunter2\"", "admin_tokens: invalid type: string, expected"),
            ("[[admin_tokens]]\ntoken = 1234567890123456", "file:2:9: token: invalid type: integer"),
            ("admin_tokens = [{ name = \"a\", token = 1234567890123456 }]", "file:1:"),
            ("admin_tokens = [\n  { name = \"a\", token = 1234567890123456 },\n]", "file:2:"),
            ("database = 4567", "database: invalid type: integer"),
        ] {
            let error = from_toml::<Settings>("file", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(SECRETS.iter().all(|secret| !error.contains(secret)), "{text}: {error}");
        }
        let error = from_toml::<Settings>("file", "max_buckets = \"many\"").unwrap_err().to_string();
        assert!(error.contains("max_buckets: ") && error.contains("\"many\""), "other values are shown: {error}");
    }
}
