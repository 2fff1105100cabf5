//! Effective settings: the value of each, and its source. Secrets are redacted.

use checkdam::store::redis::redacted_url;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use toml::Value;

use super::reference::{arguments, help};
use super::{Config, ProxySettings, Settings};

/// The source of a value that was not set.
pub(super) const DEFAULT: &str = "default";
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
    pub fn all(config: &Config, given: &ArgMatches, with_proxy: bool) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for argument in arguments::<Settings>() {
            let id = argument.get_id().as_str();
            all.push(Self::new(id.to_owned(), &argument, given, config.layers.below(id)));
        }
        for name in ["admin_token", "api_token", "database", "key_secret", "store"] {
            let held = all.iter().find(|setting| setting.name == format!("{name}_file")).map(|held| held.from.clone());
            let Some(setting) = all.iter_mut().find(|setting| setting.name == name) else { continue };
            if setting.from == DEFAULT {
                setting.from = held.unwrap_or_default();
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
        for setting in &mut all {
            // The defaults of addresses depend on another setting.
            match setting.name.as_str() {
                "http_listen" if setting.from == DEFAULT => setting.value.clone_from(&config.http_listen),
                "grpc_listen" if setting.from == DEFAULT => {
                    setting.value = config.grpc_listen.clone().unwrap_or_default();
                }
                "otlp_endpoint" => setting.value = redacted_url(&setting.value),
                _ => {}
            }
        }
        let named = config.admin.iter().flat_map(|admin| admin.tokens.names());
        let named: Vec<String> =
            named.skip(usize::from(has_admin_token)).map(|(name, role)| format!("{name} ({})", role.name())).collect();
        if let Some((_, source)) = config.layers.below("admin_tokens").filter(|_| !named.is_empty()) {
            let (name, value) = ("admin_tokens".to_owned(), named.join(", "));
            all.push(Self { name, value, from: source.to_owned() });
        }
        if with_proxy {
            let in_file = config.layers.below("proxy").and_then(|(table, source)| Some((table.as_table()?, source)));
            for argument in arguments::<ProxySettings>() {
                let id = argument.get_id().as_str();
                let below = in_file.and_then(|(table, source)| Some((table.get(id)?, source)));
                all.push(Self::new(format!("proxy.{id}"), &argument, given, below));
            }
        }
        all
    }

    fn new(name: String, argument: &Arg, given: &ArgMatches, below: Option<(&Value, &str)>) -> Self {
        let id = argument.get_id().as_str();
        let from = match (given.value_source(id), below) {
            (Some(ValueSource::CommandLine), _) => "flag".to_owned(),
            (Some(ValueSource::EnvVariable), _) => {
                argument.get_env().unwrap_or_default().to_string_lossy().into_owned()
            }
            (_, Some((value, source))) => return Self { name, value: value_text(value), from: source.to_owned() },
            (_, None) => {
                let value = help(argument).1.unwrap_or_else(|| "none".to_owned());
                return Self { name, value, from: DEFAULT.to_owned() };
            }
        };
        let values = given.get_raw(id).into_iter().flatten();
        let value = values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(",");
        Self { name, value, from }
    }
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
