//! Command-line arguments of `checkdam bench` and their validation.

use std::time::Duration;

use crate::cli::attribute as plain_attribute;
use crate::config::DurationText;
use crate::loadgen::{HeaderTemplate, KeyDistribution, KeyTemplate};

/// No load lasts longer, so that what is forgotten ends.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
/// The longest timeout of a response.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What `checkdam bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// URL of the server, plain HTTP [default: http://127.0.0.1:8080, with --grpc http://127.0.0.1:8081]
    #[arg(value_name = "URL")]
    pub(super) url: Option<String>,

    /// Call Envoy's rate limit service with one descriptor made of the attributes
    #[arg(long, requires = "domain")]
    pub(super) grpc: bool,

    /// Send GET requests for this path instead of checks: for a proxy, or an application behind one; {key} is
    /// replaced
    #[arg(long, value_name = "PATH", value_parser = path, conflicts_with_all = ["grpc", "attributes", "cost", "domain"])]
    pub(super) get: Option<KeyTemplate>,

    /// Attributes of each request; {key} is replaced by a key number
    #[arg(long, value_name = "ATTR=VALUE,…", value_delimiter = ',', value_parser = attribute, default_value = "user={key},plan=free")]
    pub(super) attributes: Vec<(String, KeyTemplate)>,

    /// Header of each request; {key} is replaced; Host and Content-Type override the default ones
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, conflicts_with = "grpc")]
    pub(super) header: Vec<HeaderTemplate>,

    /// Domain of the requests
    #[arg(long, value_name = "DOMAIN")]
    pub(super) domain: Option<String>,

    /// Cost of each request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=checkdam::LIMIT_MAX))]
    pub(super) cost: u64,

    /// Concurrent requests: HTTP connections, or gRPC streams (16 per connection)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) connections: u64,

    /// Requests per second, sent on schedule even if the server falls behind (open loop); without it each connection
    /// sends its next request after the response (closed loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) rate: Option<u64>,

    /// Duration of the measurement, at most 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) duration: Duration,

    /// Stop after this many requests, not counting the warm-up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,

    /// Duration of the warm-up, at most 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup)]
    pub(super) warmup: Duration,

    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) keys: u64,

    /// Distribution of requests over the keys
    #[arg(long, value_name = "SPREAD", default_value = "uniform")]
    pub(super) spread: KeyDistribution,

    /// Timeout for a response, at most 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = timeout)]
    pub(super) timeout: Duration,

    /// Client threads [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(super) threads: Option<u64>,

    /// Seed of the key sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Allow a target that is not on this machine; use only your own
    #[arg(long)]
    pub(super) target_is_mine: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Print no progress and no remarks on the result
    #[arg(long, short)]
    pub(super) quiet: bool,
}

fn attribute(text: &str) -> Result<(String, KeyTemplate), String> {
    let (name, value) = plain_attribute(text)?;
    Ok((name, value.parse()?))
}

fn header(text: &str) -> Result<HeaderTemplate, String> {
    let (name, value) = text.split_once(':').ok_or("write a name, a colon and a value, such as 'X-API-Key: {key}'")?;
    let name = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
    if matches!(name, axum::http::header::CONTENT_LENGTH | axum::http::header::TRANSFER_ENCODING) {
        return Err(format!("{name} is set by what is sent"));
    }
    let value: KeyTemplate = value.trim().parse()?;
    if value.contains(char::is_control) {
        return Err(format!("{text:?} has a control character in it"));
    }
    Ok((name, value))
}

fn path(text: &str) -> Result<KeyTemplate, String> {
    let path: KeyTemplate = text.parse()?;
    if !text.starts_with('/') || path.contains(|character| character.is_whitespace() || character.is_control()) {
        return Err(format!(
            "{text:?} is not a path: write it with a slash and without spaces, such as /api/search?q={{key}}"
        ));
    }
    Ok(path)
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
