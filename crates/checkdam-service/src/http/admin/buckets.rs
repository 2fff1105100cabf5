//! Admin API: inspects, resets and refunds the buckets of a request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;

use super::Admin;
use super::rules::{AdminErrorResponses, AdminResult};
use crate::http::openapi::example;
use crate::http::v1;
use crate::http::wire::{Answer, CheckBody, ExplainAnswer};

/// Says which rules apply to a request and where its buckets stand, charging nothing.
#[utoipa::path(post, path = "/admin/v1/inspect", tag = "buckets",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}})),
    responses((status = 200, description = "Which rules match it, and why", body = ExplainAnswer<'_>,
        example = json!(example::explained())), AdminErrorResponses))]
pub(super) async fn inspect(State(admin): State<Arc<Admin>>, body: Body) -> AdminResult {
    v1::explain(State(Arc::clone(&admin.app)), body).await
}

/// Forgets what is owed to every limit that applies to a request.
#[utoipa::path(post, path = "/admin/v1/reset", tag = "buckets",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}})),
    responses((status = 200, description = "Where the request stands afterwards", body = Answer,
        example = json!(example::answer())), AdminErrorResponses))]
pub(super) async fn reset_bucket(State(admin): State<Arc<Admin>>, body: Body) -> AdminResult {
    v1::reset(State(Arc::clone(&admin.app)), body).await
}

/// Gives back a request's cost to every limit that applies to it, at most what is owed.
#[utoipa::path(post, path = "/admin/v1/refund", tag = "buckets",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}, "cost": 1})),
    responses((status = 200, description = "Where the request stands afterwards", body = Answer,
        example = json!(example::answer())), AdminErrorResponses))]
pub(super) async fn refund_bucket(State(admin): State<Arc<Admin>>, body: Body) -> AdminResult {
    v1::refund(State(Arc::clone(&admin.app)), body).await
}
