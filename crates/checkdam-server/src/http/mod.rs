//! The HTTP door: JSON in, JSON and rate-limit headers out.
//!
//! Handlers parse, ask the app and write; they decide nothing themselves.

mod admin;
mod api_explorer;
mod auth;
mod body;
mod checks;
mod connections;
mod dashboard;
mod deadline;
mod decide;
mod foreign;
mod framing;
mod health;
mod json;
mod last_places;
mod metrics;
mod openapi;
mod opening;
mod origin;
mod peers;
mod problem;
mod responder;
mod server;
mod shedding;
mod wakeups;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};

pub(crate) use self::admin::{Admin, Live, RuleSource};
pub(crate) use self::checks::Checks;
pub(crate) use self::connections::UnderWay;
pub(crate) use self::foreign::Hosts;
use self::foreign::refuse_foreign;
pub(crate) use self::framing::{Fault, chunk_size, content_length};
pub(crate) use self::metrics::Texts;
pub(crate) use self::opening::answering;
pub(crate) use self::origin::{
    ATTRIBUTES as ORIGIN_ATTRIBUTES, Asked, Origin, OriginError, Target, address_text, is_of_proxies,
};
pub(crate) use self::problem::Problem;
pub(crate) use self::responder::{Answered, Arrival, Responder, route};
pub(crate) use self::server::{Listener, Server};
pub(crate) use self::wire::{STANDING, explain, mode_name, refuse, standing};
use crate::app::App;
use crate::grpc::RateLimits;

/// Reads the body of a check, for the fuzzers.
pub(crate) fn read_check_body(body: &[u8]) -> Result<(), String> {
    wire::parse(body).map(drop).map_err(|problem| problem.to_json())
}

/// Every path of the door.
fn router(app: Arc<App>, origin: Arc<Origin>, rate_limits: Arc<RateLimits>, hosts: &Arc<Hosts>) -> Router {
    let auth = Arc::new(auth::Auth::new(Arc::clone(&app), origin, Arc::clone(hosts)));
    let for_proxies = Router::new().route(auth::PATH, any(auth::auth)).route("/v1/auth/{options}", any(auth::auth));
    let deciding = Router::new()
        .route("/json", post(json::decide).with_state(rate_limits))
        .route(decide::CHECK, post(decide::check))
        .route("/v1/check/batch", post(decide::batch))
        .route("/v1/peek", post(decide::peek))
        .route("/v1/refund", post(decide::refund))
        .route("/v1/reset", post(decide::reset))
        .route("/v1/explain", post(decide::explain))
        .route_layer(from_fn_with_state(Arc::clone(hosts), refuse_foreign));
    Router::new()
        .merge(deciding)
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/healthz", get(health::readyz))
        .route("/healthcheck", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(api_explorer::html))
        .route("/docs", get(api_explorer::html))
        .route("/docs/page.js", get(api_explorer::script))
        .route("/docs/page.css", get(api_explorer::style))
        .route("/docs/icon.svg", get(api_explorer::icon))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(app)
        .merge(for_proxies.with_state(auth))
}
