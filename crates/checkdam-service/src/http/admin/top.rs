//! Admin API: the subjects with most allowed and most denied requests.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, json_response, rule_not_found};
use crate::http::problem::Problem;
use crate::telemetry::{TopOf, TopWindow};

/// The default number of subjects.
const SUBJECTS_DEFAULT: usize = 20;
/// The most subjects of a list.
const SUBJECTS_MAX: usize = 100;

/// The most frequent subjects, most frequent first.
#[derive(Serialize, ToSchema)]
pub(super) struct TopAnswer {
    /// `limited` or `allowed`.
    kind: &'static str,
    /// `minute` or `hour`.
    window: &'static str,
    /// `cluster` if the nodes that share a Redis are added up, else `node`.
    scope: &'static str,
    /// How many nodes are added up.
    nodes: usize,
    /// How many were counted, also of those that are not listed, once for each
    /// rule that let them pass or denied them and whose key names an attribute.
    total: u64,
    /// A subject that is not listed, of whatever rule, has at most this count.
    missing_at_most: u64,
    subjects: Vec<SubjectAnswer>,
    /// Why other nodes are not added up, and what to do about it; null if they
    /// are, or if there can be none.
    hint: Option<String>,
}

/// One of them.
#[derive(Serialize, ToSchema)]
struct SubjectAnswer {
    /// The rule that let it pass or denied it; `ban` for banned subjects.
    rule: String,
    /// The subject, such as `user:42`.
    subject: String,
    /// How many requests, at most.
    count: u64,
    /// The error bound of the count, which is never too low.
    too_high_by: u64,
}

/// Lists the subjects with most allowed or most denied requests.
#[utoipa::path(get, path = "/admin/v1/top", operation_id = "list_top_subjects", tag = "traffic",
    params(("kind" = Option<String>, Query, description = "`limited` (if left out) or `allowed`"),
        ("window" = Option<String>, Query, description = "The last `minute` (if left out) or `hour`"),
        ("limit" = Option<usize>, Query, description = "How many, at most 100; 20 if left out"),
        ("rule" = Option<String>, Query, description = "Of this rule only; `ban` for banned subjects")),
    responses((status = 200, description = "The most frequent subjects", body = TopAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["kind", "window", "limit", "rule"])?;
    let (kind, kind_name) = query.choice("kind", &[("limited", TopOf::Limited), ("allowed", TopOf::Allowed)])?;
    let (span, window) = query.choice("window", &[("minute", TopWindow::Minute), ("hour", TopWindow::Hour)])?;
    let limit = query.limit_within(SUBJECTS_DEFAULT, SUBJECTS_MAX)?;
    let rule = query.filter("rule")?;
    let (nodes, of_rule) = (Arc::clone(&admin.nodes), rule.clone());
    let ranking = tokio::task::spawn_blocking(move || nodes.ranked(kind, span, of_rule.as_deref()));
    let Ok((mut ranked, nodes)) = ranking.await else {
        return Err(Problem::busy("this node is shutting down: use another"));
    };
    if let Some(rule) = rule.filter(|rule| ranked.names.is_empty() && !admin.has_rule(rule)) {
        return Err(rule_not_found(&rule));
    }
    ranked.truncate(limit);
    let subjects = ranked.names.into_iter().map(|(name, count)| SubjectAnswer {
        rule: name.rule,
        subject: name.subject,
        count: count.count,
        too_high_by: count.too_high_by,
    });
    Ok(json_response(&TopAnswer {
        kind: kind_name,
        window,
        scope: if admin.nodes.has_all_subjects() { "cluster" } else { "node" },
        nodes,
        total: ranked.total,
        missing_at_most: ranked.missing_at_most,
        subjects: subjects.collect(),
        hint: admin.nodes.subjects_hint(),
    }))
}
