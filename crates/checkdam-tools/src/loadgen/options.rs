//! Command-line options of the load.

use std::time::Duration;

use checkdam_service::config::DurationText;

use super::key_distribution::KeyDistribution;

/// The longest load, so that a forgotten one ends.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, clap::Args)]
pub struct LoadOptions {
    /// Concurrent requests: HTTP connections, or gRPC streams (16 per connection)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub connections: u64,

    /// Requests per second, sent on schedule even if the server falls behind (open loop); without it each connection
    /// sends its next request after the response (closed loop)
    #[arg(long = "rate", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate_per_s: Option<u64>,

    /// Duration of the measurement, at most 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub duration: Duration,

    /// Stop after this many requests, not counting the warm-up
    #[arg(long = "requests", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests_max: Option<u64>,

    /// Duration of the warm-up, at most 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup)]
    pub warmup: Duration,

    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,

    /// Distribution of requests over the keys
    #[arg(long, value_name = "SPREAD", default_value = "uniform")]
    pub spread: KeyDistribution,

    /// Timeout for a response, at most 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = timeout)]
    pub timeout: Duration,

    /// Client threads [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: Option<u64>,

    /// Seed of the key sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn duration(text: &str) -> Result<Duration, String> {
    duration_in_range(text, Duration::from_millis(100), DURATION_MAX)
}

fn warmup(text: &str) -> Result<Duration, String> {
    duration_in_range(text, Duration::ZERO, DURATION_MAX)
}

fn timeout(text: &str) -> Result<Duration, String> {
    duration_in_range(text, Duration::from_millis(1), TIMEOUT_MAX)
}

fn duration_in_range(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let span = Duration::from(text.parse::<DurationText>()?);
    if span < min || span > max {
        return Err(format!("{text:?} is not from {min:?} to {max:?}"));
    }
    Ok(span)
}
