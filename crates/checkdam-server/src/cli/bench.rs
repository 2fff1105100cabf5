//! `checkdam bench`: generates load for your own deployment and reports throughput
//! and latency.

mod arguments;
mod probe;
mod progress;
mod text_report;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use serde_json::Value;

pub(crate) use self::arguments::BenchArguments;
use self::progress::ProgressPrinter;
use super::interrupt::stop_on_interrupt;
use super::table::printable;
use super::{SERVER_DEFAULT, print, print_notice, print_value};
use crate::loadgen::{
    self, GrpcRequest, HttpRequest, KeyDistribution, KeyTemplate, LoadLimits, LoadPlan, PlannedRequest, Target,
};

/// The gRPC listener of a server on this machine.
const GRPC_DEFAULT: &str = "http://127.0.0.1:8081";

/// Loads, and prints what was measured.
pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let url = arguments.url.as_deref().unwrap_or(if arguments.grpc { GRPC_DEFAULT } else { SERVER_DEFAULT });
    let target = Target::resolve(url, arguments.target_is_mine)?;
    let address = arguments.probe(&target)?;
    let plan = arguments.plan(target, address)?;
    if !arguments.quiet && !arguments.has_key() && plan.spread != KeyDistribution::One {
        print_notice("the requests contain no {key}, so all are the same");
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&is_stopped)?;
    let mut printer = ProgressPrinter::new(arguments.quiet, plan.bounds.duration);
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
    fn plan(&self, target: Target, address: SocketAddr) -> anyhow::Result<LoadPlan> {
        let asked = if self.grpc {
            PlannedRequest::Grpc(Arc::new(self.grpc_request(&target)?))
        } else {
            let path = KeyTemplate::literal(target.prefix.as_str());
            PlannedRequest::Http(Arc::new(match &self.get {
                Some(get) => HttpRequest::get(&path.push_template(get), &target.authority, &self.header),
                None => HttpRequest::check(&path.push_text("/v1/check"), &target.authority, &self.header, self.body()),
            }))
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(LoadPlan {
            target,
            address,
            asked,
            lanes: self.connections,
            threads: self.threads.unwrap_or((cores as u64 / 2).max(1)),
            keys: self.keys,
            spread: self.spread,
            seed: self.seed,
            bounds: LoadLimits {
                warmup: self.warmup,
                duration: self.duration,
                requests_max: self.requests,
                rate_per_s: self.rate,
                timeout: self.timeout,
            },
        })
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
        let request = GrpcRequest::new(&target.authority, domain, &self.attributes, self.cost);
        request.with_context(|| format!("the target {url:?} is not a URL"))
    }

    fn has_key(&self) -> bool {
        let asked = match &self.get {
            Some(path) => path.has_key(),
            None => self.attributes.iter().any(|(_, value)| value.has_key()),
        };
        asked || self.header.iter().any(|(_, value)| value.has_key())
    }
}
