//! Command-line arguments of `checkdam bench` and their validation.

use std::time::Duration;

use crate::cli::attribute as plain_attribute;
use crate::config::DurationText;
use crate::loadgen::{HeaderTemplate, KeyDistribution, KeyTemplate};

/// No load lasts longer, so that what is forgotten ends.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
/// Nor is an answer waited for longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What `checkdam bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// The server to load, by plain HTTP [default: http://127.0.0.1:8080, with --grpc http://127.0.0.1:8081]
    #[arg(value_name = "URL")]
    pub(super) url: Option<String>,

    /// Ask Envoy's rate limit service, with one descriptor of the attributes
    #[arg(long, requires = "domain")]
    pub(super) grpc: bool,

    /// Get this path instead of asking for decisions: for a proxy, or an application behind one; {key} is replaced
    #[arg(long, value_name = "PATH", value_parser = path, conflicts_with_all = ["grpc", "attributes", "cost", "domain"])]
    pub(super) get: Option<KeyTemplate>,

    /// The attributes of each request; {key} is replaced by the number of a key
    #[arg(long, value_name = "ATTR=VALUE,…", value_delimiter = ',', value_parser = attribute, default_value = "user={key},plan=free")]
    pub(super) attributes: Vec<(String, KeyTemplate)>,

    /// A header of each request; {key} is replaced; Host and Content-Type stand in place of ours
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, conflicts_with = "grpc")]
    pub(super) header: Vec<HeaderTemplate>,

    /// The domain of the requests
    #[arg(long, value_name = "DOMAIN")]
    pub(super) domain: Option<String>,

    /// How much each request charges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=checkdam::LIMIT_MAX))]
    pub(super) cost: u64,

    /// Requests in flight at once: connections of HTTP, streams of gRPC, which has 16 to a connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) connections: u64,

    /// Requests a second that are due whether the server keeps up or not (an open loop); without it each connection
    /// asks again when it is answered (a closed loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) rate: Option<u64>,

    /// For how long requests are sent and counted, at most 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(super) duration: Duration,

    /// How many requests are counted, if that is reached sooner; those of the warm-up come on top
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,

    /// For how long requests are sent before they are counted, at most 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup)]
    pub(super) warmup: Duration,

    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) keys: u64,

    /// How often each key is asked about
    #[arg(long, value_name = "SPREAD", default_value = "uniform")]
    pub(super) spread: KeyDistribution,

    /// How long an answer is waited for, at most 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = timeout)]
    pub(super) timeout: Duration,

    /// Threads that send [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(super) threads: Option<u64>,

    /// The same seed draws the same keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Allow a target that is not on this machine; name only your own
    #[arg(long)]
    pub(super) target_is_mine: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Tell nothing while it runs, and hide the remarks on the result
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
