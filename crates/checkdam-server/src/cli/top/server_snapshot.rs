//! A snapshot of a server's state, from its admin API.

use axum::http::Uri;
use clap::ValueEnum;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cli::backend::ServerBackend;
use crate::cli::command_error::{CommandError, ErrorKind as FailureKind};
use crate::cli::table::printable;

/// The number of subjects requested: the maximum.
const SUBJECTS: usize = 100;

/// Which subjects are listed.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct TopQuery {
    /// Count denied (limited) or allowed requests
    #[arg(long, value_enum, default_value_t = TopOf::Limited)]
    pub(super) kind: TopOf,

    /// Time window
    #[arg(long, value_enum, default_value_t = TopWindow::Minute)]
    pub(super) window: TopWindow,

    /// Only subjects of this rule; "ban" for banned subjects
    #[arg(long, value_name = "NAME")]
    pub(super) rule: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TopOf {
    Limited,
    Allowed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TopWindow {
    Minute,
    Hour,
}

#[derive(Debug, Clone)]
pub(super) struct ServerSnapshot {
    pub(super) top: Top,
    pub(super) traffic: Traffic,
    pub(super) nodes: Nodes,
    pub(super) status: Status,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Top {
    pub(super) kind: String,
    pub(super) window: String,
    pub(super) nodes: usize,
    pub(super) total: u64,
    pub(super) missing_at_most: u64,
    pub(super) subjects: Vec<Subject>,
    #[serde(default)]
    pub(super) hint: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Subject {
    pub(super) rule: String,
    pub(super) subject: String,
    pub(super) count: u64,
    pub(super) too_high_by: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Traffic {
    pub(super) total: Series,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) limited: Vec<u64>,
    pub(super) shadow: Vec<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    pub(super) hint: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Node {
    pub(super) node: String,
    pub(super) is_self: bool,
    pub(super) version: String,
    pub(super) uptime_s: u64,
    pub(super) rules_version: u64,
    pub(super) requests_per_s: f64,
    pub(super) limited_per_s: f64,
    pub(super) ready: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) node: String,
    pub(super) rules: Rules,
    pub(super) store: Store,
    pub(super) audit: Option<Audit>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Rules {
    pub(super) count: usize,
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Store {
    pub(super) kind: String,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) not_asked: u64,
    pub(super) is_open: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Audit {
    pub(super) written: u64,
    pub(super) dropped: u64,
    pub(super) waiting: u64,
}

impl TopQuery {
    /// The requested paths, and their names in JSON.
    pub(super) fn paths(&self) -> [(&'static str, String); 4] {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let names = [("kind", self.kind.to_possible_value()), ("window", self.window.to_possible_value())];
        query.extend_pairs(names.iter().filter_map(|(name, value)| Some((name, value.as_ref()?.get_name()))));
        query.append_pair("limit", &SUBJECTS.to_string());
        if let Some(rule) = &self.rule {
            query.append_pair("rule", rule);
        }
        [
            ("top", format!("/admin/v1/top?{}", query.finish())),
            ("traffic", "/admin/v1/traffic".to_owned()),
            ("nodes", "/admin/v1/nodes".to_owned()),
            ("status", "/admin/v1/status".to_owned()),
        ]
    }
}

impl ServerSnapshot {
    pub(super) fn fetch(backend: &ServerBackend, query: &TopQuery) -> Result<Self, CommandError> {
        let [top, traffic, nodes, status] = query.paths().map(|(_, path)| path);
        Ok(Self {
            top: fetch_path(backend, &top)?,
            traffic: fetch_path(backend, &traffic)?,
            nodes: fetch_path(backend, &nodes)?,
            status: fetch_path(backend, &status)?,
        })
    }

    /// What the list is of, in a line.
    pub(super) fn summary(&self) -> String {
        let Top { kind, window, nodes, total, missing_at_most, .. } = &self.top;
        let nodes = if *nodes == 1 { self.status.node.clone() } else { format!("{nodes} nodes") };
        let missing = match missing_at_most {
            0 if *total == 0 => "; rules with one bucket for all requests, such as `global`, are not listed".to_owned(),
            0 => String::new(),
            count => format!("; unlisted subjects: at most {count} each"),
        };
        let kind = if kind == "limited" { "denied" } else { kind };
        format!("most {kind} in the last {window}, {}: {total} in total{missing}", printable(&nodes))
    }

    /// The state of the store, the rules and the audit log; and whether all are healthy.
    pub(super) fn health(&self) -> (String, bool) {
        let Status { rules, store, audit, .. } = &self.status;
        let failed = store.unknown + store.refused + store.not_asked;
        let breaker = if store.is_open { ", breaker open" } else { "" };
        let mut parts = vec![format!("store {}{breaker}, {failed} failed", store.kind)];
        parts.push(match &rules.error {
            Some(error) => format!("rules {}: {}", rules.count, printable(error)),
            None => format!("rules {}", rules.count),
        });
        parts.push(match audit {
            Some(Audit { written, dropped, waiting }) => {
                format!("audit {written} written, {waiting} waiting, {dropped} dropped")
            }
            None => "audit off".to_owned(),
        });
        let is_well = !store.is_open && rules.error.is_none() && audit.as_ref().is_none_or(|audit| audit.dropped == 0);
        (parts.join("  ·  "), is_well)
    }
}

fn fetch_path<T: DeserializeOwned>(backend: &ServerBackend, path: &str) -> Result<T, CommandError> {
    let value = backend.get(path)?;
    T::deserialize(value).map_err(|_| {
        let path = path.parse::<Uri>().map(|uri| uri.path().to_owned()).unwrap_or_default();
        let reason = format!("cannot parse the response of {path}: does the server have another version?");
        CommandError::new(FailureKind::Unavailable, reason)
    })
}
