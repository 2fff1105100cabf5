//! Settings of telemetry: metrics, samples, traces.

use super::{ConfigError, Settings};

/// So many rules make some megabytes of text at every scrape, and 88 MB of
/// history: a rule with traffic takes 8.8 kB for its points of a minute, a
/// quarter of an hour and a day.
const METRICS_RULES_MAX: usize = 10_000;
/// So many requests take some hundred megabytes.
const RECENT_MAX: usize = 1_000_000;
/// More lines would not be readable.
const LOG_DENIALS_MAX: u32 = 10;

/// The standard variables of OpenTelemetry, the more specific first.
const GENERAL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The same for what is spoken there.
const GENERAL_PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// What is seen of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetryOptions {
    /// How many rules are counted by themselves. Default 1,000.
    pub rules_max: usize,
    /// Whether latencies carry exemplars. Default no.
    pub exemplars: bool,
    /// The most denials that are logged a second and rule. Default 0.
    pub log_denials: u32,
    /// How many of the last requests are kept. Default 100,000.
    pub recent_max: usize,
}

/// Where spans are sent, and of which requests.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceOptions {
    /// A gRPC endpoint.
    pub endpoint: String,
    /// Whether it was set for every program here, not for this one.
    pub is_general: bool,
    /// What is spoken there, if that was said with it.
    pub protocol: Option<String>,
    /// The CA certificate that verifies an https endpoint, in PEM. Default the system's.
    pub ca: Option<Vec<u8>>,
    /// The share of requests that are traced where the caller has not decided
    /// it. Default 0.01.
    pub share: f64,
}

impl TraceOptions {
    /// The endpoint for printing: without a login.
    pub fn redacted_endpoint(&self) -> String {
        redact_login(&self.endpoint)
    }
}

/// A URL with an ellipsis in place of its login and its query, which may contain one.
pub(super) fn redact_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.split_once('?').map_or(path.to_owned(), |(path, _)| format!("{path}?…"));
    match authority.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("…@{host}{path}"),
        Some((_, host)) => format!("{scheme}://…@{host}{path}"),
        None if scheme.is_empty() => format!("{authority}{path}"),
        None => format!("{scheme}://{authority}{path}"),
    }
}

impl TelemetryOptions {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Result<Self, ConfigError> {
        let rules_max = given.metrics_rules.or(file.metrics_rules).unwrap_or(1_000);
        in_range("metrics_rules", rules_max, METRICS_RULES_MAX, "0 to 10000")?;
        let recent_max = given.recent_requests.or(file.recent_requests).unwrap_or(100_000);
        in_range("recent_requests", recent_max, RECENT_MAX, "0 to 1000000")?;
        let log_denials = given.log_denials.or(file.log_denials).unwrap_or(0);
        in_range("log_denials", log_denials as usize, LOG_DENIALS_MAX as usize, "0 to 10")?;
        let exemplars = given.metrics_exemplars.or(file.metrics_exemplars).unwrap_or(false);
        Ok(Self { rules_max, exemplars, log_denials, recent_max })
    }
}

impl TraceOptions {
    pub(super) fn from_settings(given: &Settings, file: &Settings) -> Result<Option<Self>, ConfigError> {
        let share = given.trace_share.or(file.trace_share).unwrap_or(0.01);
        if !(0.0..=1.0).contains(&share) {
            return Err(ConfigError::TraceShare { value: share });
        }
        let own = given.otlp_endpoint.clone().or_else(|| file.otlp_endpoint.clone());
        let first =
            |names: [&str; 2]| names.into_iter().find_map(|name| super::variable(name).filter(|it| !it.is_empty()));
        let is_general = own.is_none();
        let protocol = first(GENERAL_PROTOCOL).filter(|_| is_general);
        let ca = given.otlp_ca.as_ref().or(file.otlp_ca.as_ref()).map(|path| {
            let shown = path.display().to_string();
            super::read_limited::read_bytes(path).map_err(|reason| ConfigError::Unreadable { path: shown, reason })
        });
        let ca = ca.transpose()?;
        Ok(own.or_else(|| first(GENERAL)).map(|endpoint| Self { endpoint, is_general, protocol, ca, share }))
    }
}

fn in_range(name: &'static str, value: usize, max: usize, range: &'static str) -> Result<(), ConfigError> {
    if value > max { Err(ConfigError::OutOfRange { name, value: value as u64, range }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::redact_login;

    #[test]
    fn a_login_in_an_endpoint_is_not_printed() {
        for (url, shown) in [
            ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
            ("http://user:pa@ss@collector:4317/v1?x=a@b", "http://…@collector:4317/v1?…"),
            ("http://token@collector", "http://…@collector"),
            ("user:secret@collector:4317", "…@collector:4317"),
            ("http://collector/a@b", "http://collector/a@b"),
        ] {
            assert_eq!(redact_login(url), shown);
        }
    }
}
