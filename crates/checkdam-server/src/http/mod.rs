//! The HTTP door: JSON in, JSON and rate-limit headers out.
//!
//! Handlers parse, ask the app and write; they decide nothing themselves.

mod admin;
mod api_explorer;
mod auth;
mod backlog_drain;
mod client_identity;
mod connection_timeouts;
mod connections;
mod dashboard;
mod envoy_json;
mod fast_path;
mod health;
mod load_shedding;
mod metrics;
mod openapi;
mod peer_connections;
mod problem;
mod queueing_delay;
mod request_body;
mod request_framing;
mod responder;
mod same_origin;
mod server;
mod startup;
mod v1;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};

pub(crate) use self::admin::{Admin, LiveEvents, RuleSource};
pub(crate) use self::client_identity::{
    ATTRIBUTES as ORIGIN_ATTRIBUTES, ClientIdentity, DescribedRequest, IdentityError, RequestTarget, address_text,
    is_proxy_header,
};
pub(crate) use self::connections::InFlightRequest;
pub(crate) use self::fast_path::FastPath;
pub(crate) use self::metrics::ScrapeCache;
pub(crate) use self::problem::Problem;
pub(crate) use self::request_framing::{FramingFault, chunk_size, content_length};
pub(crate) use self::responder::{RequestArrival, Responder, ResponderResponse, route};
pub(crate) use self::same_origin::AllowedHosts;
use self::same_origin::same_origin_middleware;
pub(crate) use self::server::{Listener, Server};
pub(crate) use self::startup::respond_until_opened;
pub(crate) use self::wire::{STANDING, denial_response, explain, mode_name, rate_limit_headers};
use crate::app::App;
use crate::grpc::EnvoyRateLimits;

/// Reads the body of a check, for the fuzzers.
pub(crate) fn read_check_body(body: &[u8]) -> Result<(), String> {
    wire::parse(body).map(drop).map_err(|problem| problem.to_json())
}

/// Every path of the door.
fn router(
    app: Arc<App>,
    origin: Arc<ClientIdentity>,
    rate_limits: Arc<EnvoyRateLimits>,
    hosts: &Arc<AllowedHosts>,
) -> Router {
    let auth = Arc::new(auth::ForwardAuth::new(Arc::clone(&app), origin, Arc::clone(hosts)));
    let for_proxies = Router::new().route(auth::PATH, any(auth::auth)).route("/v1/auth/{options}", any(auth::auth));
    let deciding = Router::new()
        .route("/json", post(envoy_json::decide).with_state(rate_limits))
        .route(v1::CHECK, post(v1::check))
        .route("/v1/check/batch", post(v1::batch))
        .route("/v1/peek", post(v1::peek))
        .route("/v1/refund", post(v1::refund))
        .route("/v1/reset", post(v1::reset))
        .route("/v1/explain", post(v1::explain))
        .route_layer(from_fn_with_state(Arc::clone(hosts), same_origin_middleware));
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
