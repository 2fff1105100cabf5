//! Admin API: overrides.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use checkdam::{Override, OverrideSpec};
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::edit_requests::{
    ExpectedVersion, Pending, editable, etag, read_item, respond_when_active, rulebook_problem,
};
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, Page, json_response, page};
use crate::access::Caller;
use crate::http::problem::Problem;
use crate::rulebook::StoredSpec;

/// A page of overrides.
#[derive(Serialize, ToSchema)]
pub(super) struct OverridesAnswer {
    /// The version of the rulebook that is active here.
    version: u64,
    /// How many there are in all, as far as they are searched for.
    total: usize,
    #[schema(value_type = Vec<OverrideSpec>)]
    overrides: Vec<StoredSpec<OverrideSpec>>,
    /// What to give as `after` for the next page; null at the end.
    next: Option<String>,
}

/// Lists the active overrides.
#[utoipa::path(get, path = "/admin/v1/overrides", operation_id = "list_overrides", tag = "rules",
    params(("rule" = Option<String>, Query, description = "Of this rule only"),
        ("search" = Option<String>, Query, description = "Part of a subject, rule or description"),
        ("limit" = Option<usize>, Query, description = "How many, at most 1000"),
        ("after" = Option<String>, Query, description = "Where the last page ended")),
    responses((status = 200, description = "A page of overrides", body = OverridesAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["rule", "search", "limit", "after"])?;
    let snapshot = admin.app.rule_snapshot();
    let (rule, search) = (query.text("rule"), query.text("search").unwrap_or_default());
    let is_wanted = |one: &Override| {
        rule.is_none_or(|rule| one.rule == rule) && {
            let texts = [one.subject.text(), &one.rule, &one.description];
            texts.into_iter().any(|text| text.contains(search))
        }
    };
    let name = |one: &Override| format!("{} {}", one.rule, one.subject.text());
    let Page { total, rows, next } = page(&query, &snapshot.overrides, name, is_wanted)?;
    Ok(json_response(&OverridesAnswer { version: snapshot.revision.version, total, overrides: rows, next }))
}

/// Adds an override, or replaces the one of the same rule and subject.
#[utoipa::path(put, path = "/admin/v1/overrides", operation_id = "put_override", tag = "rules", request_body = OverrideSpec,
    responses((status = 200, description = "It is active", body = OverrideSpec),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        AdminErrorResponses))]
pub(super) async fn put(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> AdminResult {
    let rulebook = editable(&admin, &caller)?;
    let one = read_item::<OverrideSpec, Override>(body).await?;
    let snapshot = admin.app.rule_snapshot();
    let exists =
        snapshot.overrides.iter().any(|stored| stored.item.rule == one.rule && stored.item.subject == one.subject);
    let expected = ExpectedVersion::read(&headers)?.check(exists)?;
    let stored = rulebook.put_override(one, expected).await.map_err(rulebook_problem)?;
    let row = || ([etag(stored.version)], json_response(&StoredSpec::<OverrideSpec>::from(&stored))).into_response();
    Ok(respond_when_active(&admin, row).await)
}

/// Removes an override.
#[utoipa::path(delete, path = "/admin/v1/overrides", operation_id = "remove_override", tag = "rules",
    params(("rule" = String, Query, description = "The rule's name"), ("subject" = String, Query, description = "Whose")),
    responses((status = 204, description = "It is no longer active"),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> AdminResult {
    let query = QueryParameters::read(&uri, &["rule", "subject"])?;
    let rulebook = editable(&admin, &caller)?;
    let (rule, subject) = (query.required("rule")?, query.required("subject")?);
    let is_meant = |one: &Override| one.rule == rule && one.subject.text() == subject;
    let exists = admin.app.rule_snapshot().overrides.iter().any(|stored| is_meant(&stored.item));
    let expected = ExpectedVersion::read(&headers)?.check(exists)?;
    rulebook.remove_override(rule, subject, expected).await.map_err(rulebook_problem)?;
    Ok(respond_when_active(&admin, || StatusCode::NO_CONTENT.into_response()).await)
}
