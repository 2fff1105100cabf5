//! Whether the process lives and whether it wants requests.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// The state of the process.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `live`, `ready` or `draining`.
    #[schema(value_type = String, examples("ready"))]
    status: &'static str,
}

/// Answers 200 as long as the process lives.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It lives", body = Health)))]
pub(super) async fn livez() -> Response<Body> {
    health(StatusCode::OK, "live")
}

/// Answers 200 while the server wants requests, and 503 once it is going away.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "It wants requests", body = Health),
    (status = 503, description = "It is going away", body = Health, example = json!({"status": "draining"})),
))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response<Body> {
    if app.is_leaving() { health(StatusCode::SERVICE_UNAVAILABLE, "draining") } else { health(StatusCode::OK, "ready") }
}

fn health(status: StatusCode, text: &'static str) -> Response<Body> {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, super::wire::json(&Health { status: text })).into_response()
}
