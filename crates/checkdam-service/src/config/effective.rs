//! Effective settings: the value of each, and its source. Secrets are redacted.

use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use toml::{Table, Value};

use super::envoy_ratelimit_env::EnvoyEnvironment;
use super::reference::{arguments, help};
use super::telemetry::redact_login;
use super::{Config, ConfigError, ProxySettings, Settings, is_redis_url, settings_file, variable};

/// The source of a value that was not set.
const DEFAULT: &str = "default";
/// Settings that are also read from variables that platforms set for every program.
const GENERAL: [(&str, &str); 6] = [
    ("store", "REDIS_URL"),
    ("database", "DATABASE_URL"),
    ("log_level", "LOG_LEVEL"),
    ("log_format", "LOG_FORMAT"),
    ("otlp_endpoint", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    ("otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"),
];

/// One setting.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct EffectiveSetting {
    /// As the file calls it.
    pub name: String,
    pub value: String,
    /// `flag`, the variable's name, the file's path, or `default`.
    pub from: String,
}

impl EffectiveSetting {
    /// Every setting of `serve`, and those of `proxy` if it is `with_proxy`.
    pub fn all(
        config: &Config,
        given: &ArgMatches,
        file: Option<&Path>,
        with_proxy: bool,
    ) -> Result<Vec<Self>, ConfigError> {
        let file = settings_file(file);
        let (path, kept) = match file {
            Some(path) => (path.display().to_string(), table(path)?),
            None => Default::default(),
        };
        let mut all = Vec::new();
        for argument in arguments::<Settings>() {
            let found = SettingSources { argument: &argument, given, path: &path, host: &config.listen_host };
            all.push(found.setting(argument.get_id().as_str().to_owned(), &kept)?);
        }
        let is_general = |from: &str| GENERAL.iter().any(|(_, name)| *name == from);
        for name in ["admin_token", "api_token", "database", "key_secret", "store"] {
            let held = all.iter().find(|setting| setting.name == format!("{name}_file")).map(|held| held.from.clone());
            let Some(setting) = all.iter_mut().find(|setting| setting.name == name) else { continue };
            // The variables of envoyproxy/ratelimit count before the settings file, the general ones after it.
            let is_beaten = |held: &str| {
                setting.from == DEFAULT
                    || is_general(&setting.from) && (held != path || !EnvoyEnvironment(variable).is_detected())
            };
            if let Some(from) = held.filter(|from| from != DEFAULT && is_beaten(from)) {
                setting.from = from;
            }
            if setting.from != DEFAULT {
                setting.value = match name {
                    "store" => config.store_description(),
                    "database" => config.database.to_string(),
                    _ => "…".to_owned(),
                };
            }
        }
        let has_admin_token = all.iter().any(|setting| setting.name == "admin_token" && setting.from != DEFAULT);
        for setting in all.iter_mut().filter(|setting| setting.from == DEFAULT) {
            // What these are depends on other settings.
            match setting.name.as_str() {
                "http_listen" => setting.value.clone_from(&config.http_listen),
                "grpc_listen" => setting.value = config.grpc_listen.clone().unwrap_or_default(),
                "rules" => {
                    if let Some(folder) = &config.rules {
                        setting.value = folder.display().to_string();
                    }
                }
                _ => {}
            }
        }
        for setting in all.iter_mut().filter(|setting| setting.name == "otlp_endpoint") {
            setting.value = redact_login(&setting.value);
        }
        let named = config.admin.iter().flat_map(|admin| admin.tokens.names());
        let named: Vec<String> =
            named.skip(usize::from(has_admin_token)).map(|(name, role)| format!("{name} ({})", role.name())).collect();
        if !named.is_empty() {
            let (name, value) = ("admin_tokens".to_owned(), named.join(", "));
            all.push(Self { name, value, from: path.clone() });
        }
        if with_proxy {
            let kept = kept.get("proxy").and_then(Value::as_table).cloned().unwrap_or_default();
            for argument in arguments::<ProxySettings>() {
                let found = SettingSources { argument: &argument, given, path: &path, host: &config.listen_host };
                all.push(found.setting(format!("proxy.{}", argument.get_id()), &kept)?);
            }
        }
        Ok(all)
    }
}

/// The possible sources of a setting.
struct SettingSources<'a> {
    argument: &'a Arg,
    given: &'a ArgMatches,
    /// The settings file.
    path: &'a str,
    /// The default host of listeners.
    host: &'a str,
}

impl SettingSources<'_> {
    fn setting(&self, name: String, kept: &Table) -> Result<EffectiveSetting, ConfigError> {
        let id = self.argument.get_id().as_str();
        let (value, from) = self.value(id, kept)?;
        Ok(EffectiveSetting { name, value, from })
    }

    fn value(&self, id: &str, kept: &Table) -> Result<(String, String), ConfigError> {
        let given = || {
            let values = self.given.get_raw(id).into_iter().flatten();
            values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(",")
        };
        match self.given.value_source(id) {
            Some(ValueSource::CommandLine) => return Ok((given(), "flag".to_owned())),
            Some(ValueSource::EnvVariable) => {
                let name = self.argument.get_env().unwrap_or_default().to_string_lossy().into_owned();
                return Ok((given(), name));
            }
            _ => {}
        }
        if let Some((value, name)) = EnvoyEnvironment(variable).setting_value(id, self.host)? {
            return Ok((value, name.to_owned()));
        }
        let mut general = GENERAL.iter().filter(|(name, _)| *name == id);
        let general = general.find_map(|(_, name)| Some((variable(name).filter(|value| !value.is_empty())?, *name)));
        // A variable that names no supported store belongs to another program.
        let general = general.filter(|(value, _)| id != "store" || is_redis_url(value));
        let kept = kept.get(id).map(|value| (value_text(value), self.path.to_owned()));
        let general = general.map(|(value, name)| (value, name.to_owned()));
        // Of these variables, those of the log count before the file.
        let first = if id.starts_with("log_") { general.clone().or(kept) } else { kept.or(general) };
        Ok(first.unwrap_or_else(|| (help(self.argument).1.unwrap_or_else(|| "none".to_owned()), DEFAULT.to_owned())))
    }
}

fn table(path: &Path) -> Result<Table, ConfigError> {
    let shown = path.display().to_string();
    let text = super::read_limited::read_text(path);
    let text = text.map_err(|reason| ConfigError::Unreadable { path: shown.clone(), reason })?;
    super::from_toml(&shown, &text)
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is) => is.to_string(),
        Value::Array(values) => values.iter().map(value_text).collect::<Vec<_>>().join(","),
        Value::Table(table) => {
            table.iter().map(|(key, value)| format!("{key}={}", value_text(value))).collect::<Vec<_>>().join(",")
        }
        Value::Datetime(_) => "a date".to_owned(),
    }
}
