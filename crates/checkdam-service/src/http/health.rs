//! Liveness and readiness endpoints.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::readiness::Readiness;

/// The message while the active rules may not be the newest. The reason is for
/// operators: the error may contain private details.
const NOT_THE_NEWEST: &str = "the active rules may not be the newest: see /admin/v1/status";

/// The paths that are answered apart from requests, so that they are answered in
/// time however much there is to do.
pub(super) const PATHS: [&str; 5] = ["/livez", "/readyz", "/healthz", "/healthcheck", "/metrics"];

/// The state of the process.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `live`, `ready`, `starting`, `store_away` or `draining`.
    #[schema(value_type = String, examples("ready"))]
    status: &'static str,
    /// What is to be known of it, if there is anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    detail: Option<&'static str>,
}

/// Answers 200 as long as the process lives.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It lives", body = Health)))]
pub(super) async fn livez() -> Response<Body> {
    alive_response()
}

/// Answers 200 while the server is ready for requests, and 503 while it is not.
///
/// It is not ready before its rules are active and during shutdown. Without its store it
/// follows the rules: it is not ready only if every rule that can deny has
/// `on_store_failure: closed`.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "Ready for requests", body = Health),
    (status = 503, description = "Startup, shutdown, or every rule is closed because the store is unavailable", body = Health,
        example = json!({"status": "draining"})),
))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response<Body> {
    let detail = app.reload_status().error().map(|_| NOT_THE_NEWEST);
    readiness_response(app.readiness(), detail)
}

pub(super) fn alive_response() -> Response<Body> {
    health_response(StatusCode::OK, &Health { status: "live", detail: None })
}

/// Whether it wants requests; `detail` is said if it does.
pub(super) fn readiness_response(readiness: Readiness, detail: Option<&'static str>) -> Response<Body> {
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let detail = match readiness {
        Readiness::Ready => detail,
        Readiness::StoreAway => Some("the store does not answer, and every rule is closed until it does"),
        Readiness::Starting => Some("no rules are active yet"),
        Readiness::Draining => None,
    };
    health_response(status, &Health { status: readiness.name(), detail })
}

fn health_response(status: StatusCode, said: &Health) -> Response<Body> {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, super::wire::json(said)).into_response()
}
