//! Environment variables of envoyproxy/ratelimit, for deployments that replace it
//! with this server. checkdam's own variables and flags take precedence.
//!
//! They are read only if a variable is set that no other program uses, such as
//! `RUNTIME_ROOT`: names as general as `PORT` may belong to other programs. Every
//! variable that is set is logged with its effect.

mod redis_url;
mod variables;

use std::fmt;
use std::path::PathBuf;

use toml::Value;

use self::redis_url::RedisVariables;
use self::variables::{EnvoyVariable, TABLE, VariableMeaning};
use super::ConfigError;
use super::layers::Layers;

/// The default of `RUNTIME_ROOT`.
const ROOT_DEFAULT: &str = "/srv/runtime_data/current";

/// Reads variables.
pub(super) struct EnvoyEnvironment<F>(pub(super) F);

/// A variable that is set, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyVariableReport {
    pub name: &'static str,
    pub became: VariableEffect,
}

/// What became of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableEffect {
    /// It is read as this setting.
    Setting(&'static str),
    /// That setting is given otherwise.
    Overridden(&'static str),
    /// It is how it is here anyway.
    AsHere,
    /// It changes nothing, because of this.
    Ignored(&'static str),
    /// No variable shows that it is meant for this program.
    NotMeant,
}

impl fmt::Display for VariableEffect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(name) => write!(out, "read as {name}"),
            Self::Overridden(name) => write!(out, "not read: {name} is given"),
            Self::AsHere => out.write_str("as it is here"),
            Self::Ignored(reason) => out.write_str(reason),
            Self::NotMeant => out.write_str("not read: RUNTIME_ROOT is not set"),
        }
    }
}

/// Variables that become one setting: the setting, and the variable.
const TEXTS: [(&str, &str); 4] = [
    ("store_ca", "REDIS_TLS_CACERT"),
    ("store_client_cert", "REDIS_TLS_CLIENT_CERT"),
    ("store_client_key", "REDIS_TLS_CLIENT_KEY"),
    ("key_prefix", "CACHE_KEY_PREFIX"),
];
const SWITCHES: [(&str, &str); 4] = [
    ("merge_domains", "MERGE_DOMAIN_CONFIG"),
    ("grpc_shadow", "SHADOW_MODE"),
    ("grpc_quota", "QUOTA_MODE"),
    ("grpc_metadata", "RESPONSE_DYNAMIC_METADATA"),
];
/// The key is first: it is not read beside a certificate that is given otherwise.
const GRPC_TLS_FILES: [(&str, &str); 3] = [
    ("grpc_tls_key", "GRPC_SERVER_TLS_KEY"),
    ("grpc_tls_client_ca", "GRPC_CLIENT_TLS_CACERT"),
    ("grpc_tls_cert", "GRPC_SERVER_TLS_CERT"),
];

impl<F: Fn(&str) -> Option<String>> EnvoyEnvironment<F> {
    /// Whether the program is set up as envoyproxy/ratelimit is.
    pub(super) fn is_detected(&self) -> bool {
        self.own_variables().next().is_some()
    }

    /// Adds what they say where it is not given otherwise; and what became of each.
    /// `host` is that of listeners for which none is given.
    pub(super) fn add_to(
        &self,
        layers: &mut Layers,
        has_rules: bool,
        host: &str,
    ) -> Result<Vec<EnvoyVariableReport>, ConfigError> {
        if !self.is_detected() {
            let others = TABLE.iter().filter(|known| !self.is_platform_variable(known));
            return Ok(self.reports(others, |_| VariableEffect::NotMeant));
        }
        self.refuse_unsupported()?;
        let reports = self.reports(TABLE.iter(), |known| self.effect(known, layers));
        match self.get("RUNTIME_ROOT") {
            Some(_) => layers.add("rules", "RUNTIME_ROOT", || self.rule_folder())?,
            None if has_rules => {}
            None => layers.add("rules", super::effective::DEFAULT, || self.rule_folder())?,
        }
        for (setting, [host_name, port_name], port) in
            [("http_listen", ["HOST", "PORT"], "8080"), ("grpc_listen", ["GRPC_HOST", "GRPC_PORT"], "8081")]
        {
            let source = if self.get(port_name).is_some() { port_name } else { host_name };
            layers.add(setting, source, || Ok(self.address(host_name, port_name, port, host).map(Value::from)))?;
        }
        for (setting, name) in TEXTS {
            layers.add(setting, name, || Ok(self.get(name).map(Value::from)))?;
        }
        for (setting, name) in SWITCHES {
            layers.add(setting, name, || Ok(self.go_bool(name)?.map(Value::from)))?;
        }
        let has_certificate = layers.has("grpc_tls_cert");
        for (setting, name) in GRPC_TLS_FILES.into_iter().skip(usize::from(has_certificate)) {
            layers.add(setting, name, || self.grpc_tls(name))?;
        }
        layers.add("store", "REDIS_URL", || self.redis_store_url())?;
        layers.add("grpc_headers", "LIMIT_RESPONSE_HEADERS_ENABLED", || self.headers())?;
        Ok(reports)
    }

    /// Redis as one URL, by the variables that platforms set for every program.
    pub(super) fn redis_store_url(&self) -> Result<Option<Value>, ConfigError> {
        let Some(url) = self.get("REDIS_URL") else { return Ok(None) };
        let login = match (self.get("REDIS_AUTH"), self.get("REDIS_AUTH_FILE")) {
            (Some(_), Some(_)) => return Err(ConfigError::TwoLogins),
            (None, Some(path)) => Some(super::layers::read_secret(path.as_ref())?),
            (login, None) => login,
        };
        let is_tls = self.go_bool("REDIS_TLS")?.unwrap_or(false);
        let kind = self.get("REDIS_TYPE").unwrap_or_default();
        RedisVariables { url, kind, login, is_tls }.to_url().map(|url| Some(url.into()))
    }

    /// Where the HTTP listener is, as far as these variables say it.
    pub(super) fn http_listen(&self) -> Option<String> {
        if self.is_detected() { self.address("HOST", "PORT", "8080", "127.0.0.1") } else { None }
    }

    /// A TLS file of the gRPC listener: only with `GRPC_SERVER_USE_TLS`.
    fn grpc_tls(&self, name: &str) -> Result<Option<Value>, ConfigError> {
        if self.go_bool("GRPC_SERVER_USE_TLS")? != Some(true) {
            return Ok(None);
        }
        if self.get("GRPC_SERVER_TLS_CERT").is_none() {
            return Err(ConfigError::NoTlsCertificate { name: "GRPC_SERVER_USE_TLS", needed: "GRPC_SERVER_TLS_CERT" });
        }
        Ok(self.get(name).map(Value::from))
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Those that are set and that no other program has.
    fn own_variables(&self) -> impl Iterator<Item = &'static str> {
        TABLE.iter().filter(|known| !known.is_general && self.get(known.name).is_some()).map(|known| known.name)
    }

    fn reports<'a>(
        &self,
        known: impl Iterator<Item = &'a EnvoyVariable>,
        became: impl Fn(&EnvoyVariable) -> VariableEffect,
    ) -> Vec<EnvoyVariableReport> {
        let set = known.filter(|known| self.get(known.name).is_some());
        set.map(|known| EnvoyVariableReport { name: known.name, became: became(known) }).collect()
    }

    /// What becomes of one that is set, where they are read.
    fn effect(&self, known: &EnvoyVariable, layers: &Layers) -> VariableEffect {
        let is_off = || matches!(self.go_bool(known.name), Ok(Some(false)));
        let is_on = |name| matches!(self.go_bool(name), Ok(Some(true)));
        let without_switch = |reason| if is_off() { VariableEffect::AsHere } else { VariableEffect::Ignored(reason) };
        match known.meaning {
            VariableMeaning::Setting(setting) if layers.has(setting) => VariableEffect::Overridden(setting),
            VariableMeaning::Setting("store") if self.get("REDIS_URL").is_none() => {
                VariableEffect::Ignored("REDIS_URL is not set: limits are counted in memory, by each node for itself")
            }
            VariableMeaning::Setting("grpc_headers") if !is_on("LIMIT_RESPONSE_HEADERS_ENABLED") => {
                without_switch("LIMIT_RESPONSE_HEADERS_ENABLED is not true")
            }
            VariableMeaning::Setting("grpc_tls_cert" | "grpc_tls_key" | "grpc_tls_client_ca")
                if !is_on("GRPC_SERVER_USE_TLS") =>
            {
                without_switch("GRPC_SERVER_USE_TLS is not true")
            }
            VariableMeaning::Setting(setting) => VariableEffect::Setting(setting),
            VariableMeaning::Switch(_) | VariableMeaning::RefusedSwitch(_) if is_off() => VariableEffect::AsHere,
            VariableMeaning::Ignored(reason) | VariableMeaning::Switch(reason) => VariableEffect::Ignored(reason),
            // Those have ended the program already.
            VariableMeaning::Refused(reason) | VariableMeaning::RefusedSwitch(reason) => {
                VariableEffect::Ignored(reason)
            }
        }
    }

    /// Whether it is one of those that platforms set for every program, and that
    /// are read without the others.
    fn is_platform_variable(&self, known: &EnvoyVariable) -> bool {
        match known.meaning {
            VariableMeaning::Setting("log_level" | "log_format") => true,
            VariableMeaning::Setting("store") => self.get("REDIS_URL").is_some_and(|url| super::is_redis_url(&url)),
            _ => false,
        }
    }

    /// Rejects variables for unsupported features, which would silently be missing.
    fn refuse_unsupported(&self) -> Result<(), ConfigError> {
        let refuse = |name: &'static str, instead: &'static str| {
            let value = self.get(name).unwrap_or_default();
            // A login is never shown.
            let value = if name.ends_with("_AUTH") { "…".to_owned() } else { value };
            Err(ConfigError::NotHere { name, value, instead })
        };
        if self.get("BACKEND_TYPE").is_some_and(|kind| kind != "redis") {
            return refuse("BACKEND_TYPE", "use redis, or leave REDIS_URL out to count in memory");
        }
        if self.get("CONFIG_TYPE").is_some_and(|kind| kind != "FILE") {
            return refuse("CONFIG_TYPE", "use FILE: rules come from files or from a database");
        }
        for known in &TABLE {
            match known.meaning {
                VariableMeaning::Refused(instead) if self.get(known.name).is_some() => {
                    return refuse(known.name, instead);
                }
                VariableMeaning::RefusedSwitch(instead) if self.go_bool(known.name)? == Some(true) => {
                    return refuse(known.name, instead);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder with the files, one a domain; refused if that is not said and
    /// nothing is where it looks for it.
    fn rule_folder(&self) -> Result<Option<Value>, ConfigError> {
        let mut folder = PathBuf::from(self.get("RUNTIME_ROOT").unwrap_or_else(|| ROOT_DEFAULT.to_owned()));
        folder.extend(self.get("RUNTIME_SUBDIRECTORY"));
        folder.push(self.get("RUNTIME_APPDIRECTORY").unwrap_or_else(|| "config".to_owned()));
        if self.get("RUNTIME_ROOT").is_none() && !folder.exists() {
            let names = self.own_variables().collect::<Vec<_>>().join(", ");
            return Err(ConfigError::NoRuntimeRoot { names, folder: folder.display().to_string() });
        }
        Ok(Some(folder.display().to_string().into()))
    }

    /// Only a configured host is exposed: by default it is checkdam's own default.
    fn address(&self, host: &str, port: &str, port_default: &str, host_default: &str) -> Option<String> {
        let (host, port) = (self.get(host), self.get(port));
        if host.is_none() && port.is_none() {
            return None;
        }
        Some(super::address(host.as_deref().unwrap_or(host_default), port.as_deref().unwrap_or(port_default)))
    }

    fn headers(&self) -> Result<Option<Value>, ConfigError> {
        if self.go_bool("LIMIT_RESPONSE_HEADERS_ENABLED")? != Some(true) {
            return Ok(None);
        }
        let names = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
        let names = names.into_iter().zip(super::HeaderNames::DEFAULT);
        let names = names.map(|(name, default)| self.get(name).unwrap_or_else(|| default.to_owned()));
        Ok(Some(names.collect::<Vec<_>>().join(",").into()))
    }

    /// What Go reads as a truth value.
    fn go_bool(&self, name: &'static str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            _ => Err(ConfigError::NotAChoice { name, value, choices: "true, false".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests;
