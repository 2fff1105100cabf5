//! `checkdam bench`: generates load for your own deployment and reports throughput
//! and latency.

mod probe;
mod text_report;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use axum::http::header::AUTHORIZATION;
use checkdam_tools::loadgen::{
    self, Endpoint, GrpcRequest, HeaderTemplate, HttpRequest, KeyDistribution, KeyTemplate, LoadOptions, LoadPlan,
    PlannedRequest, Target,
};
use checkdam_tools::simulate::attribute as plain_attribute;
use serde_json::Value;

use self::text_report::ProgressPrinter;
use super::api_token::ApiTokenArguments;
use super::http_client::ClientTlsArguments;
use super::signals::stop_on_interrupt;
use super::table::printable;
use super::{SERVER_DEFAULT, print, print_notice, print_value};

/// The gRPC listener of a server on this machine.
const GRPC_DEFAULT: &str = "http://127.0.0.1:8081";

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    /// URL of the server, http:// or https:// [default: http://127.0.0.1:8080, with --grpc http://127.0.0.1:8081]
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// Call Envoy's rate limit service with one descriptor made of the attributes
    #[arg(long, requires = "domain")]
    grpc: bool,

    /// Send GET requests for this path instead of checks: for a proxy, or an application behind one; {key} is replaced
    /// by a key number
    #[arg(long, value_name = "PATH", value_parser = path, conflicts_with_all = ["grpc", "attributes", "cost", "domain"])]
    get: Option<KeyTemplate>,

    /// Attributes of each request; {key} is replaced by a key number
    #[arg(long, value_name = "ATTR=VALUE,…", value_delimiter = ',', value_parser = attribute, default_value = "user={key},plan=free")]
    attributes: Vec<(String, KeyTemplate)>,

    /// Header of each request; {key} is replaced by a key number; Host and Content-Type override the default ones
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, conflicts_with = "grpc")]
    header: Vec<HeaderTemplate>,

    #[command(flatten)]
    token: ApiTokenArguments,

    #[command(flatten)]
    tls: ClientTlsArguments,

    /// Domain of the requests
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Cost of each request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=checkdam::LIMIT_MAX))]
    cost: u64,

    #[command(flatten)]
    load: LoadOptions,

    /// Allow a target that is not on this machine; send load only to machines that are yours
    #[arg(long)]
    target_is_mine: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print no progress and no notes on the result
    #[arg(long, short)]
    quiet: bool,
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

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let url = arguments.url.as_deref().unwrap_or(if arguments.grpc { GRPC_DEFAULT } else { SERVER_DEFAULT });
    let target = Target::resolve(url, arguments.target_is_mine)?;
    let endpoint = arguments.probe(&target)?;
    let plan = arguments.plan(target, endpoint)?;
    if !arguments.quiet && !arguments.has_key() && plan.options.spread != KeyDistribution::One {
        print_notice("the requests contain no {key}, so all are the same");
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&is_stopped)?;
    let mut printer = ProgressPrinter::new(arguments.quiet, plan.options.duration);
    let report = loadgen::run(&plan, &is_stopped, |progress| printer.print(progress));
    printer.clear();
    let report = report?;
    if arguments.json {
        print_value(&report.json())?;
    } else {
        print(text_report::render(&report).as_bytes())?;
    }
    if !arguments.quiet {
        report.warnings().iter().for_each(|remark| print_notice(&printable(remark)));
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl BenchArguments {
    fn plan(&self, target: Target, endpoint: Endpoint) -> anyhow::Result<LoadPlan> {
        let mut headers = self.header.clone();
        if let Some(token) = self.token.token()? {
            headers.push((AUTHORIZATION, KeyTemplate::literal(format!("Bearer {token}"))));
        }
        let asked = if self.grpc {
            PlannedRequest::Grpc(Arc::new(self.grpc_request(&target)?))
        } else {
            let path = KeyTemplate::literal(target.prefix.as_str());
            PlannedRequest::Http(Arc::new(match &self.get {
                Some(get) => HttpRequest::get(&path.push_template(get), &target.authority, &headers),
                None => HttpRequest::check(&path.push_text("/v1/check"), &target.authority, &headers, self.body()),
            }))
        };
        Ok(LoadPlan { target, endpoint, asked, options: self.load.clone() })
    }

    /// One of the target's addresses, with TLS if the target has it.
    fn endpoint(&self, target: &Target, address: SocketAddr) -> anyhow::Result<Endpoint> {
        if !target.is_tls {
            return Ok(Endpoint::plain(address));
        }
        Endpoint::tls(address, &target.host, self.tls.config()?, self.grpc)
            .with_context(|| format!("the target {:?} has no host name that a certificate could have", target.url))
    }

    /// What `/v1/check` takes, in JSON.
    fn body(&self) -> KeyTemplate {
        let quoted = |text: &str| Value::from(text).to_string();
        // A part of a text in JSON is the whole without its quotes.
        let part = |text: &str| {
            let whole = quoted(text);
            whole[1..whole.len() - 1].to_owned()
        };
        let mut body = KeyTemplate::literal("{");
        if let Some(domain) = &self.domain {
            body = body.push_text(&format!("\"domain\":{},", quoted(domain)));
        }
        body = body.push_text("\"attributes\":{");
        for (place, (name, value)) in self.attributes.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            body = body
                .push_text(&format!("{comma}{}:\"", quoted(name)))
                .push_template(&value.map_text(part))
                .push_text("\"");
        }
        let cost = if self.cost == 1 { String::new() } else { format!(",\"cost\":{}", self.cost) };
        body.push_text(&format!("}}{cost}}}"))
    }

    fn grpc_request(&self, target: &Target) -> anyhow::Result<GrpcRequest> {
        let Target { url, prefix, .. } = target;
        if !prefix.is_empty() {
            bail!("the target {url:?} has the path {prefix:?}, and gRPC has paths of its own: give a host and a port");
        }
        let domain = self.domain.as_deref().unwrap_or_default();
        let request = GrpcRequest::new(target, domain, &self.attributes, self.cost);
        let request = request.with_context(|| format!("the target {url:?} is not a URL"))?;
        Ok(match self.token.token()? {
            Some(token) => request.with_token(&token).context("the API token cannot be sent")?,
            None => request,
        })
    }

    fn has_key(&self) -> bool {
        let asked = match &self.get {
            Some(path) => path.has_key(),
            None => self.attributes.iter().any(|(_, value)| value.has_key()),
        };
        asked || self.header.iter().any(|(_, value)| value.has_key())
    }
}
