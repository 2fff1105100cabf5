//! Admin API: bans.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use checkdam::{Ban, BanSpec};
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

/// A page of bans.
#[derive(Serialize, ToSchema)]
pub(super) struct BansAnswer {
    /// The version of the rulebook that is active here.
    version: u64,
    /// How many there are in all, as far as they are searched for.
    total: usize,
    #[schema(value_type = Vec<BanSpec>)]
    bans: Vec<StoredSpec<BanSpec>>,
    /// What to give as `after` for the next page; null at the end.
    next: Option<String>,
}

/// Lists the bans, ended ones too.
#[utoipa::path(get, path = "/admin/v1/bans", operation_id = "list_bans", tag = "rules",
    params(("search" = Option<String>, Query, description = "Part of a subject or reason"),
        ("limit" = Option<usize>, Query, description = "How many, at most 1000"),
        ("after" = Option<String>, Query, description = "Where the last page ended")),
    responses((status = 200, description = "A page of bans", body = BansAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["search", "limit", "after"])?;
    let snapshot = admin.app.rule_snapshot();
    let search = query.text("search").unwrap_or_default();
    let is_wanted = |ban: &Ban| ban.subject().contains(search) || ban.reason.contains(search);
    let Page { total, rows, next } = page(&query, &snapshot.bans, Ban::subject, is_wanted)?;
    Ok(json_response(&BansAnswer { version: snapshot.revision.version, total, bans: rows, next }))
}

/// Bans a subject, or changes its ban.
#[utoipa::path(put, path = "/admin/v1/bans", operation_id = "put_ban", tag = "rules", request_body = BanSpec,
    responses((status = 200, description = "It is active", body = BanSpec),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        AdminErrorResponses))]
pub(super) async fn put(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> AdminResult {
    let rulebook = editable(&admin, &caller)?;
    let ban = read_item::<BanSpec, Ban>(body).await?;
    let snapshot = admin.app.rule_snapshot();
    let exists = snapshot.bans.iter().any(|stored| stored.item.subject() == ban.subject());
    let expected = ExpectedVersion::read(&headers)?.check(exists)?;
    let stored = rulebook.put_ban(ban, expected).await.map_err(rulebook_problem)?;
    let row = || ([etag(stored.version)], json_response(&StoredSpec::<BanSpec>::from(&stored))).into_response();
    Ok(respond_when_active(&admin, row).await)
}

/// Lifts a ban.
#[utoipa::path(delete, path = "/admin/v1/bans", operation_id = "remove_ban", tag = "rules",
    params(("subject" = String, Query, description = "Whose")),
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
    let query = QueryParameters::read(&uri, &["subject"])?;
    let rulebook = editable(&admin, &caller)?;
    let subject = query.required("subject")?;
    let exists = admin.app.rule_snapshot().bans.iter().any(|stored| stored.item.subject() == subject);
    let expected = ExpectedVersion::read(&headers)?.check(exists)?;
    rulebook.remove_ban(subject, expected).await.map_err(rulebook_problem)?;
    Ok(respond_when_active(&admin, || StatusCode::NO_CONTENT.into_response()).await)
}
