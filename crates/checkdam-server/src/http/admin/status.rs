//! Admin API: status of this node.

use std::sync::Arc;

use axum::extract::State;
use checkdam::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::rules::{AdminErrorResponses, AdminResult, json_response};
use super::{Admin, RuleSource};
use crate::audit::AuditCounts;
use crate::store::StoreStatus;
use crate::telemetry::Unseen;
use crate::warnings::Warning;

/// The rules with the most denials that are shown.
const DENIALS_SHOWN: usize = 100;

/// The maximum number of rules shown whose attributes no request had.
const UNSEEN_SHOWN: usize = 100;

/// How a node goes.
#[derive(Serialize, ToSchema)]
pub(super) struct StatusAnswer {
    /// The program's version.
    version: &'static str,
    /// Who answers.
    node: String,
    /// For how long it has run.
    uptime_s: u64,
    rules: RulesStatus,
    store: StoreStatus,
    /// Null if violations are not recorded.
    audit: Option<AuditStatus>,
    load: LoadStatus,
    /// What an operator should look at; nothing if all is well.
    warnings: Vec<Warning>,
    /// Rules that need an attribute which no request of the last hour had, at most 100.
    unseen_attributes: Vec<Unseen>,
}

/// The rules in force.
#[derive(Serialize, ToSchema)]
struct RulesStatus {
    /// `database` or `file`.
    source: &'static str,
    /// Which.
    from: String,
    /// The version in force; 0 for a file.
    version: u64,
    /// How many rules there are.
    count: usize,
    overrides: usize,
    bans: usize,
    /// Since when they are in force.
    loaded_at: Option<String>,
    /// Whether the database answered last; null for a file.
    connected: Option<bool>,
    /// Why something newer is not in force.
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
    /// How many requests were turned away with 503 since the start.
    shed: u64,
}

/// Says how this node goes.
#[utoipa::path(get, path = "/admin/v1/status", tag = "status",
    responses((status = 200, description = "How it goes", body = StatusAnswer), AdminErrorResponses))]
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
        warnings: admin.app.warnings().all(),
        unseen_attributes: admin.app.telemetry().attributes().unseen().into_iter().take(UNSEEN_SHOWN).collect(),
    }))
}

fn rules(admin: &Admin) -> RulesStatus {
    let snapshot = admin.app.rule_snapshot();
    let (count, overrides, bans) = (snapshot.listed_rules().count(), snapshot.overrides.len(), snapshot.bans.len());
    match &*admin.rules {
        RuleSource::File(path) => RulesStatus {
            source: "file",
            from: path.clone(),
            version: 0,
            count,
            overrides,
            bans,
            loaded_at: Some(rfc3339(admin.app.reload_status().loaded_unix_ms() / 1_000)),
            connected: None,
            error: admin.app.reload_status().error(),
        },
        RuleSource::Database(follower) => {
            let status = follower.status();
            RulesStatus {
                source: "database",
                from: admin.database.clone(),
                version: status.revision.version,
                count,
                overrides,
                bans,
                loaded_at: Some(rfc3339(status.loaded_unix_ms / 1_000)),
                connected: Some(status.is_connected),
                error: status.error,
            }
        }
    }
}
