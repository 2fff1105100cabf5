//! `checkdam bench`: load for a deployment of one's own, and what it answered.

mod progress;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{HeaderName, Method, StatusCode};
use serde_json::Value;

use self::progress::Teller;
use super::client::Call;
use super::interrupt::stop_on_interrupt;
use super::{SERVER_DEFAULT, print, print_value, say};
use crate::config::Span;
use crate::load::{self, Answer, Asked, Bounds, Fault, GrpcRequest, HttpRequest, Plan, Spread, Target, Template};

/// The gRPC door of a server on this machine.
const GRPC_DEFAULT: &str = "http://127.0.0.1:8081";
/// No load lasts longer, so that what is forgotten ends.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
/// Nor is an answer waited for longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What `checkdam bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server to load, by plain HTTP [default: http://127.0.0.1:8080, with --grpc http://127.0.0.1:8081]
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// Ask Envoy's rate limit service, with one descriptor of the attributes
    #[arg(long, requires = "domain")]
    grpc: bool,

    /// Get this path instead of asking for decisions: for a proxy, or an application behind one; {key} is replaced
    #[arg(long, value_name = "PATH", value_parser = path, conflicts_with_all = ["grpc", "attributes", "cost", "domain"])]
    get: Option<Template>,

    /// The attributes of each request; {key} is replaced by the number of a key
    #[arg(long, value_name = "ATTR=VALUE,…", value_delimiter = ',', value_parser = attribute, default_value = "user={key},plan=free")]
    attributes: Vec<(String, Template)>,

    /// A header of each request; {key} is replaced
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, conflicts_with = "grpc")]
    header: Vec<(HeaderName, Template)>,

    /// The domain of the requests
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// How much each request charges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=checkdam::LIMIT_MAX))]
    cost: u64,

    /// Requests in flight at once: connections of HTTP, streams of gRPC, which has 16 to a connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,

    /// Requests a second that are due whether the server keeps up or not (an open loop); without it each connection
    /// asks again when it is answered (a closed loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,

    /// For how long requests are sent and counted, at most 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,

    /// How many requests are counted, if that is reached sooner; those of the warm-up come on top
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// For how long requests are sent before they are counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = warmup)]
    warmup: Duration,

    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,

    /// How often each key is asked about
    #[arg(long, value_name = "SPREAD", default_value = "uniform")]
    spread: Spread,

    /// How long an answer is waited for, at most 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = timeout)]
    timeout: Duration,

    /// Threads that send [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Option<u64>,

    /// The same seed draws the same keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Load a server that is not on this machine: it is yours, and its owner expects it
    #[arg(long)]
    target_is_mine: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Tell nothing while it runs
    #[arg(long, short)]
    quiet: bool,
}

/// Loads, and prints what was measured.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let url = arguments.url.as_deref().unwrap_or(if arguments.grpc { GRPC_DEFAULT } else { SERVER_DEFAULT });
    let target = Target::find(url, arguments.target_is_mine)?;
    let plan = arguments.plan(target)?;
    arguments.probe(&plan.target)?;
    if !arguments.quiet && !arguments.has_key() && plan.spread != Spread::One {
        say("no {key} is in what is sent, so all requests are the same");
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&is_stopped)?;
    let mut teller = Teller::new(arguments.quiet, plan.bounds.duration);
    let report = load::run(&plan, &is_stopped, |progress| teller.tell(progress));
    teller.end();
    let report = report?;
    if arguments.json {
        print_value(&report.json())?;
    } else {
        print(text::of(&report).as_bytes())?;
    }
    if !arguments.quiet {
        report.remarks().iter().for_each(|remark| say(&super::table::printable(remark)));
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Arguments {
    fn plan(&self, target: Target) -> anyhow::Result<Plan> {
        let asked = if self.grpc {
            Asked::Grpc(Arc::new(self.grpc_request(&target)?))
        } else {
            let headers: Vec<Template> =
                self.header.iter().map(|(name, value)| Template::of(format!("{name}: ")).then(value)).collect();
            let path = Template::of(target.prefix.as_str());
            Asked::Http(Arc::new(match &self.get {
                Some(get) => HttpRequest::get(&path.then(get), &target.authority, &headers),
                None => HttpRequest::check(&path.text("/v1/check"), &target.authority, &headers, self.body()),
            }))
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Plan {
            target,
            asked,
            lanes: self.connections,
            threads: self.threads.unwrap_or((cores as u64 / 2).max(1)),
            keys: self.keys,
            spread: self.spread,
            seed: self.seed,
            bounds: Bounds {
                warmup: self.warmup,
                duration: self.duration,
                requests_max: self.requests,
                rate_per_s: self.rate,
                timeout: self.timeout,
            },
        })
    }

    /// What `/v1/check` takes, in JSON.
    fn body(&self) -> Template {
        let quoted = |text: &str| Value::from(text).to_string();
        // A part of a text in JSON is the whole without its quotes.
        let part = |text: &str| {
            let whole = quoted(text);
            whole[1..whole.len() - 1].to_owned()
        };
        let mut body = Template::of("{");
        if let Some(domain) = &self.domain {
            body = body.text(&format!("\"domain\":{},", quoted(domain)));
        }
        body = body.text("\"attributes\":{");
        for (place, (name, value)) in self.attributes.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            body = body.text(&format!("{comma}{}:\"", quoted(name))).then(&value.map(part)).text("\"");
        }
        let cost = if self.cost == 1 { String::new() } else { format!(",\"cost\":{}", self.cost) };
        body.text(&format!("}}{cost}}}"))
    }

    fn grpc_request(&self, target: &Target) -> anyhow::Result<GrpcRequest> {
        let domain = self.domain.as_deref().unwrap_or_default();
        let request = GrpcRequest::new(&target.authority, domain, &self.attributes, self.cost);
        request.with_context(|| format!("the target {:?} is not a URL", target.url))
    }

    fn has_key(&self) -> bool {
        let asked = match &self.get {
            Some(path) => path.has_key(),
            None => self.attributes.iter().any(|(_, value)| value.has_key()),
        };
        asked || self.header.iter().any(|(_, value)| value.has_key())
    }

    /// Asks once before any load, charging nothing, so that a wrong address or
    /// request is one clear error instead of a million.
    fn probe(&self, target: &Target) -> anyhow::Result<()> {
        let url = &target.url;
        if self.grpc {
            return self.probe_grpc(target);
        }
        let mut call = match &self.get {
            Some(path) => Call::new(Method::GET, path.filled("0")),
            None => Call::new(Method::POST, "/v1/peek").body("application/json", self.body().filled("0")),
        };
        for (name, value) in &self.header {
            call = call.header(name.clone(), value.filled("0"));
        }
        let answer = call.send(url)?;
        match (answer.status, &self.get) {
            (StatusCode::OK, _) => Ok(()),
            (status, Some(path)) => {
                say(&format!("{url} answers {} with {}", path.filled("0"), status.as_u16()));
                Ok(())
            }
            (StatusCode::NOT_FOUND, None) => {
                bail!("{url} knows no /v1/peek: is it a checkdam server? Others are loaded with --get PATH")
            }
            (status, None) => {
                let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let detail = problem["detail"].as_str().unwrap_or("it says no more");
                bail!("{url} refuses such requests with {}: {}", status.as_u16(), super::table::printable(detail))
            }
        }
    }

    fn probe_grpc(&self, target: &Target) -> anyhow::Result<()> {
        let url = &target.url;
        let request = self.grpc_request(target)?.free();
        let no_service = || format!("the server at {url} is no gRPC server: is it the right port?");
        match load::probe_grpc(target, request, self.timeout.max(Duration::from_secs(1)))? {
            Ok(Answer { status: None, .. }) => Ok(()),
            Ok(Answer { status: Some(status @ 0..100), .. }) => {
                bail!("the server at {url} refuses such requests with the gRPC status {status}")
            }
            Ok(_) | Err(Fault::Reset) => bail!(no_service()),
            Err(Fault::Refused) => {
                bail!("cannot reach a server at {url}: start one with `checkdam serve`, or give another address")
            }
            Err(Fault::Timeout) => bail!("the server at {url} did not answer in time"),
            Err(Fault::Other(reason)) => bail!("{}: {reason}", no_service()),
        }
    }
}

fn attribute(text: &str) -> Result<(String, Template), String> {
    let (name, value) = super::attribute(text)?;
    Ok((name, value.parse()?))
}

fn header(text: &str) -> Result<(HeaderName, Template), String> {
    let (name, value) = text.split_once(':').ok_or("write a name, a colon and a value, such as 'X-API-Key: {key}'")?;
    let name = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
    if matches!(name, axum::http::header::CONTENT_LENGTH | axum::http::header::TRANSFER_ENCODING) {
        return Err(format!("{name} is set by what is sent"));
    }
    let value: Template = value.trim().parse()?;
    if value.contains(char::is_control) {
        return Err(format!("{text:?} has a control character in it"));
    }
    Ok((name, value))
}

fn path(text: &str) -> Result<Template, String> {
    let path: Template = text.parse()?;
    if !text.starts_with('/') || path.contains(|character| character.is_whitespace() || character.is_control()) {
        return Err(format!(
            "{text:?} is not a path: write it with a slash and without spaces, such as /api/search?q={{key}}"
        ));
    }
    Ok(path)
}

fn duration(text: &str) -> Result<Duration, String> {
    span(text, Duration::from_millis(100), DURATION_MAX)
}

fn warmup(text: &str) -> Result<Duration, String> {
    span(text, Duration::ZERO, DURATION_MAX)
}

fn timeout(text: &str) -> Result<Duration, String> {
    span(text, Duration::from_millis(1), TIMEOUT_MAX)
}

fn span(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let span = Duration::from(text.parse::<Span>()?);
    if span < min || span > max {
        return Err(format!("{text:?} is not from {min:?} to {max:?}"));
    }
    Ok(span)
}
