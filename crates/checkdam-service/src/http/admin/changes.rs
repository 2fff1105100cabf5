//! Admin API: the change log, which says who edited what and when.

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
use crate::rulebook::{Change, ChangeFilter};

/// A page of the change log, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct ChangesAnswer {
    changes: Vec<Change>,
    /// What to give as `before` for the next page; null at the end.
    next: Option<i64>,
}

/// Lists edits of rules, overrides and bans, newest first.
///
/// Edits by the admin API and by the command line are recorded; those by other programs, in SQL, are not.
#[utoipa::path(get, path = "/admin/v1/changes", operation_id = "list_changes", tag = "changes",
    params(("actor" = Option<String>, Query, description = "By this operator"),
        ("action" = Option<String>, Query, description = "`add`, `change`, `remove`, `import` or `seed`"),
        ("kind" = Option<String>, Query, description = "Of a `rule`, `override`, `ban`, or of the `rulebook` (imports)"),
        ("name" = Option<String>, Query, description = "Of the rule of this name, or its overrides"),
        ("subject" = Option<String>, Query, description = "Of this subject's overrides or bans"),
        ("since" = Option<String>, Query, description = "At or after: RFC 3339, or seconds since 1970"),
        ("until" = Option<String>, Query, description = "Before: the same"),
        ("limit" = Option<usize>, Query, description = "How many, at most 1000"),
        ("before" = Option<String>, Query, description = "Where the last page ended")),
    responses((status = 200, description = "A page of the change log", body = ChangesAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let known = ["actor", "action", "kind", "name", "subject", "since", "until", "limit", "before"];
    let query = QueryParameters::read(&uri, &known)?;
    let limit = query.limit()?;
    let filter = ChangeFilter {
        actor: query.filter("actor")?,
        action: query.filter("action")?,
        kind: query.filter("kind")?,
        name: query.filter("name")?,
        subject: query.filter("subject")?,
        since_unix_ms: query.time_ms("since")?,
        until_unix_ms: query.time_ms("until")?,
        before_id: query.before_id()?,
        limit: limit as u32,
    };
    let Some(rulebook) = &admin.rulebook else {
        return Err(ProblemKind::DatabaseUnavailable.problem("changes are not recorded: there is no database"));
    };
    let found = rulebook.changes(&filter).await.map_err(rulebook_problem)?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.id);
    Ok(json_response(&ChangesAnswer { changes: found, next }))
}
