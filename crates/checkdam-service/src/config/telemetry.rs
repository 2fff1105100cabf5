//! Settings of telemetry: metrics, samples, traces.

use checkdam::store::redis::redacted_url;

use super::{ConfigError, Settings, in_range, read_bytes};

/// So many rules make some megabytes of text at every scrape, and 88 MB of
/// history: a rule with traffic takes 8.8 kB for its points of a minute, a
/// quarter of an hour and a day.
const METRICS_RULES_MAX: usize = 10_000;
/// So many requests take some hundred megabytes.
const RECENT_MAX: usize = 1_000_000;
/// More lines would not be readable.
const LOG_DENIALS_MAX: u32 = 10;

/// The standard variables of what is spoken at the endpoint, the more specific first.
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
        redacted_url(&self.endpoint)
    }
}

impl TelemetryOptions {
    pub(super) fn from_settings(settings: &Settings) -> Result<Self, ConfigError> {
        let rules_max = settings.metrics_rules.unwrap_or(1_000);
        let rules_max = in_range("metrics_rules", rules_max, 0..=METRICS_RULES_MAX, "0 to 10000")?;
        let recent_max = settings.recent_requests.unwrap_or(100_000);
        let recent_max = in_range("recent_requests", recent_max, 0..=RECENT_MAX, "0 to 1000000")?;
        let log_denials = settings.log_denials.unwrap_or(0);
        let log_denials = in_range("log_denials", log_denials, 0..=LOG_DENIALS_MAX, "0 to 10")?;
        let exemplars = settings.metrics_exemplars.unwrap_or(false);
        Ok(Self { rules_max, exemplars, log_denials, recent_max })
    }
}

impl TraceOptions {
    /// `is_general` says that the endpoint was set for every program.
    pub(super) fn from_settings(settings: &Settings, is_general: bool) -> Result<Option<Self>, ConfigError> {
        let share = settings.trace_share.unwrap_or(0.01);
        if !(0.0..=1.0).contains(&share) {
            return Err(ConfigError::TraceShare { value: share });
        }
        let protocol = GENERAL_PROTOCOL.into_iter().find_map(super::variable).filter(|_| is_general);
        let ca = settings.otlp_ca.as_deref().map(read_bytes).transpose()?;
        let endpoint = settings.otlp_endpoint.clone();
        Ok(endpoint.map(|endpoint| Self { endpoint, is_general, protocol, ca, share }))
    }
}
