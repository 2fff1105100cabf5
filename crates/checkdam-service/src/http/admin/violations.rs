//! Admin API: violations, by rule, subject and time.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::edit_requests::rulebook_problem;
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, json_response};
use crate::http::problem::ProblemKind;
use crate::rulebook::{Violation, ViolationFilter};

/// A page of violations, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ViolationsAnswer {
    violations: Vec<Violation>,
    /// What to give as `before` for the next page; null at the end.
    next: Option<i64>,
}

/// Lists violations, newest first.
#[utoipa::path(get, path = "/admin/v1/violations", operation_id = "list_violations", tag = "violations",
    params(("user" = Option<String>, Query, description = "Of this user"),
        ("ip" = Option<String>, Query, description = "From this address"),
        ("rule" = Option<String>, Query, description = "Of this rule; `ban` for banned subjects"),
        ("subject" = Option<String>, Query, description = "Of this subject, such as `user:42`"),
        ("since" = Option<String>, Query, description = "At or after: RFC 3339, or seconds since 1970"),
        ("until" = Option<String>, Query, description = "Before: the same"),
        ("limit" = Option<usize>, Query, description = "How many, at most 1000"),
        ("before" = Option<String>, Query, description = "Where the last page ended")),
    responses((status = 200, description = "A page of violations", body = ViolationsAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["user", "ip", "rule", "subject", "since", "until", "limit", "before"])?;
    let limit = query.limit()?;
    let filter = ViolationFilter {
        user: query.filter("user")?,
        ip: query.filter("ip")?,
        rule: query.filter("rule")?,
        since_unix_ms: query.time_ms("since")?,
        until_unix_ms: query.time_ms("until")?,
        subject: query.filter("subject")?,
        before_id: query.before_id()?,
        limit: limit as u32,
    };
    let Some(rulebook) = &admin.rulebook else {
        return Err(ProblemKind::DatabaseUnavailable.problem("violations are not recorded: there is no database"));
    };
    let found = rulebook.violations(&filter).await.map_err(rulebook_problem)?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.id);
    Ok(json_response(&ViolationsAnswer { violations: found, next }))
}
