//! Admin API: traffic of the last minute, quarter of an hour and day.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, json_response, rule_not_found};
use crate::telemetry::{TrafficSeries, TrafficWindow};

/// The rules that are shown by themselves.
const RULES_SHOWN: usize = 20;

/// What passed on this node, point by point, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct TrafficAnswer {
    /// `minute`, `quarter` or `day`.
    window: &'static str,
    /// How long a point lasts.
    step_s: u64,
    /// When the last point ends, in Unix seconds; it may still be running.
    end: u64,
    /// Every request once.
    total: TrafficSeries,
    /// The busiest rules, busiest first, or the one that was asked for.
    rules: Vec<RuleTraffic>,
}

/// The counts of a rule.
#[derive(Serialize, ToSchema)]
struct RuleTraffic {
    /// The rule; `other` for those that are not counted by themselves.
    rule: String,
    #[serde(flatten)]
    series: TrafficSeries,
}

/// Shows what passed on this node.
#[utoipa::path(get, path = "/admin/v1/traffic", operation_id = "show_traffic", tag = "traffic",
    params(("window" = Option<String>, Query,
            description = "`minute` (if left out; 60 points of 1 s), `quarter` (90 of 10 s) or `day` (288 of 5 min)"),
        ("rule" = Option<String>, Query, description = "This rule instead of the busiest")),
    responses((status = 200, description = "What passed", body = TrafficAnswer), AdminErrorResponses))]
pub(super) async fn show(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["window", "rule"])?;
    let windows = [("minute", TrafficWindow::Minute), ("quarter", TrafficWindow::Quarter), ("day", TrafficWindow::Day)];
    let (window, name) = query.choice("window", &windows)?;
    let traffic = admin.app.telemetry().traffic();
    let history = match query.filter("rule")? {
        Some(rule) => {
            let history = traffic.rule_history(window, &rule);
            if !history.is_known && !admin.has_rule(&rule) {
                return Err(rule_not_found(&rule));
            }
            history
        }
        None => traffic.history(window, RULES_SHOWN),
    };
    let rules = history.rules.into_iter().map(|(rule, series)| RuleTraffic { rule, series });
    Ok(json_response(&TrafficAnswer {
        window: name,
        step_s: window.step_s(),
        end: history.end_s,
        total: history.total,
        rules: rules.collect(),
    }))
}
