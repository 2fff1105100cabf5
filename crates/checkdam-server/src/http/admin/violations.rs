//! Admin API: violations, by rule, subject and time.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use checkdam::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::edit_requests::rulebook_problem;
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, json_response};
use crate::http::problem::{Problem, truncated};
use crate::rulebook::{StoredViolation, ViolationFilter};

/// A page of violations, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ViolationsAnswer {
    violations: Vec<ViolationAnswer>,
    /// What to give as `before` for the next page; null at the end.
    next: Option<i64>,
}

/// One denied request.
#[derive(Serialize, ToSchema)]
struct ViolationAnswer {
    /// Its number.
    id: i64,
    /// The bucket that was empty.
    bucket_key: String,
    /// Who it was, as far as the request said.
    user_id: Option<String>,
    ip_address: Option<String>,
    endpoint: Option<String>,
    method: Option<String>,
    tenant: Option<String>,
    /// When.
    requested_at: String,
    /// The same in milliseconds since 1970.
    requested_at_ms: i64,
    /// What was left in the bucket.
    tokens_at_time: f64,
    /// The rule's row, if it is still there.
    rule_id: Option<i64>,
    /// The rule's name; `ban` for banned subjects.
    rule: Option<String>,
    /// Whose bucket it was.
    subject: Option<String>,
    /// What the request asked for.
    cost: i64,
    /// The limit, such as `10/s burst 50`.
    limit: Option<String>,
    /// How long it was to wait.
    retry_after_ms: Option<i64>,
    /// The node that denied it.
    node: Option<String>,
    /// What decided.
    decided_by: Option<String>,
}

impl From<StoredViolation> for ViolationAnswer {
    fn from(stored: StoredViolation) -> Self {
        let StoredViolation { id, rule_id, violation } = stored;
        let ms = violation.requested_unix_ms;
        let seconds = rfc3339(u64::try_from(ms / 1_000).unwrap_or_default());
        Self {
            id,
            rule_id,
            requested_at: format!("{}.{:03}Z", seconds.trim_end_matches('Z'), ms.rem_euclid(1_000)),
            requested_at_ms: ms,
            bucket_key: violation.bucket_key,
            user_id: violation.user_id,
            ip_address: violation.ip_address,
            endpoint: violation.endpoint,
            method: violation.method,
            tenant: violation.tenant,
            tokens_at_time: violation.tokens_at_time,
            rule: violation.rule_name,
            subject: violation.subject,
            cost: violation.cost,
            limit: violation.limit_text,
            retry_after_ms: violation.retry_after_ms,
            node: violation.node,
            decided_by: violation.decided_by,
        }
    }
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
        before_id: query.text("before").map(parse_cursor).transpose()?,
        limit: limit as u32,
    };
    let Some(rulebook) = &admin.rulebook else {
        return Err(Problem::unavailable("violations are not recorded: there is no database".to_owned()));
    };
    let found = rulebook.violations(&filter).await.map_err(rulebook_problem)?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.id);
    Ok(json_response(&ViolationsAnswer { violations: found.into_iter().map(Into::into).collect(), next }))
}

/// Reads where a page ended.
fn parse_cursor(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| {
        let detail = format!("before is {:?}: give what the last page called next", truncated(text));
        Problem::invalid("before".to_owned(), detail)
    })
}
