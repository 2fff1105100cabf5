//! Admin API: status of this node, and the nodes that share its store.

use std::sync::Arc;

use axum::extract::State;
use checkdam::time::rfc3339;
use checkdam_net::ListenerTls;
use serde::Serialize;
use utoipa::ToSchema;

use super::rules::{AdminErrorResponses, AdminResult, json_response};
use super::{Admin, RuleSource};
use crate::audit::AuditCounts;
use crate::nodes::NodeView;
use crate::operator_warnings::Warning;
use crate::store::StoreStatus;
use crate::telemetry::Unseen;

/// The rules with the most denials that are shown.
const DENIALS_SHOWN: usize = 100;

/// The maximum number of rules shown whose attributes no request had.
const UNSEEN_SHOWN: usize = 100;

/// The status of a node.
#[derive(Serialize, ToSchema)]
pub(super) struct StatusAnswer {
    /// The program's version.
    version: &'static str,
    /// The node that answers.
    node: String,
    /// For how long it has run.
    uptime_s: u64,
    rules: RulesStatus,
    store: StoreStatus,
    /// Null if violations are not recorded.
    audit: Option<AuditStatus>,
    load: LoadStatus,
    /// The certificates of listeners with TLS.
    tls: Vec<TlsStatus>,
    /// What an operator should look at; nothing if all is well.
    warnings: Vec<Warning>,
    /// Rules that need an attribute which no request of the last hour had, at most 100.
    unseen_attributes: Vec<Unseen>,
}

/// The active rules.
#[derive(Serialize, ToSchema)]
struct RulesStatus {
    /// `database` or `file`.
    source: &'static str,
    /// Which.
    from: String,
    /// The active version; 0 for a file.
    version: u64,
    /// How many rules there are.
    count: usize,
    overrides: usize,
    bans: usize,
    /// Since when they are active.
    loaded_at: Option<String>,
    /// Whether the database answered last; null for a file.
    connected: Option<bool>,
    /// Why something newer is not active.
    error: Option<String>,
}

/// The record of violations.
#[derive(Serialize, ToSchema)]
struct AuditStatus {
    #[serde(flatten)]
    counts: AuditCounts,
    /// The rules that denied most since the start.
    denials_by_rule: Vec<RuleDenials>,
}

/// How often a rule denied.
#[derive(Serialize, ToSchema)]
struct RuleDenials {
    rule: String,
    denied: u64,
}

/// How much there is to do.
#[derive(Serialize, ToSchema)]
struct LoadStatus {
    /// How many requests are being decided.
    in_flight: usize,
    /// The longest that a request waited for its turn in the last second; 0 if no wait is shed.
    late_ms: u64,
    /// How many requests were shed with 503 since the start.
    shed: u64,
}

/// The certificate of a listener.
#[derive(Serialize, ToSchema)]
struct TlsStatus {
    /// `http`, `grpc`, `admin` or `proxy`.
    listener: &'static str,
    /// The file of the certificate.
    certificate: String,
    /// When it, or one of its chain, expires; null if that cannot be parsed.
    expires_at: Option<String>,
    /// In how many days; negative if it has expired.
    days_left: Option<i64>,
    /// Whether clients must present a certificate.
    verifies_clients: bool,
    /// How many handshakes have failed since the start.
    handshake_failures: u64,
    /// Why newer files are not active, if they are not.
    error: Option<String>,
}

/// Shows the status of this node.
#[utoipa::path(get, path = "/admin/v1/status", tag = "status",
    responses((status = 200, description = "The status", body = StatusAnswer), AdminErrorResponses))]
pub(super) async fn status(State(admin): State<Arc<Admin>>) -> AdminResult {
    let audit = admin.app.audit().map(|audit| {
        let denials = audit.denials_by_rule().into_iter().take(DENIALS_SHOWN);
        let denials_by_rule = denials.map(|(rule, denied)| RuleDenials { rule, denied }).collect();
        AuditStatus { counts: audit.counts(), denials_by_rule }
    });
    let overload = admin.app.overload();
    Ok(json_response(&StatusAnswer {
        version: env!("CARGO_PKG_VERSION"),
        node: admin.nodes.name().to_owned(),
        uptime_s: admin.nodes.uptime_s(),
        rules: rules(&admin),
        store: admin.app.limiter().store().status(&admin.store),
        audit,
        load: LoadStatus {
            in_flight: overload.in_flight(),
            late_ms: overload.max_wait_ms(),
            shed: overload.shed_total(),
        },
        tls: admin.app.server().tls().iter().map(|tls| tls_status(tls)).collect(),
        warnings: admin.app.warnings().all(),
        unseen_attributes: admin.app.telemetry().attributes().unseen().into_iter().take(UNSEEN_SHOWN).collect(),
    }))
}

fn tls_status(tls: &ListenerTls) -> TlsStatus {
    TlsStatus {
        listener: tls.listener(),
        certificate: tls.certificate_file().display().to_string(),
        expires_at: tls.expires_unix_s().map(rfc3339),
        days_left: tls.days_left(),
        verifies_clients: tls.verifies_clients(),
        handshake_failures: tls.failures().map(|(_, count)| count).sum(),
        error: tls.reload_error(),
    }
}

fn rules(admin: &Admin) -> RulesStatus {
    let (snapshot, reload) = (admin.app.rule_snapshot(), admin.app.reload_status());
    let (source, from, version, loaded_unix_ms, connected, error) = match &*admin.rules {
        RuleSource::File(path) => ("file", path.clone(), 0, reload.loaded_unix_ms(), None, reload.error()),
        RuleSource::Database(follower) => {
            let status = follower.status();
            let (version, connected) = (status.revision.version, Some(status.is_connected));
            ("database", admin.database.clone(), version, status.loaded_unix_ms, connected, status.error)
        }
    };
    RulesStatus {
        source,
        from,
        version,
        count: snapshot.listed_rules().count(),
        overrides: snapshot.overrides.len(),
        bans: snapshot.bans.len(),
        loaded_at: Some(rfc3339(loaded_unix_ms / 1_000)),
        connected,
        error,
    }
}

/// Every node that can be seen.
#[derive(Serialize, ToSchema)]
pub(super) struct NodesAnswer {
    /// This one first, then by name.
    nodes: Vec<NodeView>,
    /// Whether other nodes can be seen.
    shared: bool,
    /// Why not, and what to do about it.
    hint: Option<String>,
}

/// Lists the nodes that share a store.
#[utoipa::path(get, path = "/admin/v1/nodes", operation_id = "list_nodes", tag = "status",
    responses((status = 200, description = "The nodes", body = NodesAnswer), AdminErrorResponses))]
pub(super) async fn nodes(State(admin): State<Arc<Admin>>) -> AdminResult {
    let nodes = admin.nodes.all();
    Ok(json_response(&NodesAnswer { nodes, shared: admin.nodes.is_shared(), hint: admin.nodes.hint() }))
}
