//! The HTTP API: JSON in, JSON and rate-limit headers out.
//!
//! Handlers parse, call the app and write the response; they decide nothing
//! themselves.

mod admin;
mod api_explorer;
mod auth;
mod dashboard;
mod envoy_json;
mod fast_path;
mod health;
mod metrics;
mod openapi;
mod problem;
mod request_body;
mod same_origin;
mod startup;
mod v1;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use checkdam_net::{Listener, ListenerTraits, LoadShedding, Protocol, Server, SheddingListener};

pub(crate) use self::admin::{Admin, LiveEvents, RuleSource};
use self::fast_path::FastPath;
pub(crate) use self::problem::Problem;
use self::same_origin::{AllowedHosts, same_origin_middleware};
pub(crate) use self::startup::respond_until_opened;
pub(crate) use self::wire::{STANDING, denial_response, explain, mode_name, rate_limit_headers};
use crate::app::App;
use crate::client_identity::ClientIdentity;
use crate::grpc::EnvoyRateLimits;
use crate::trace::Traced;

/// A listener for requests over HTTP.
pub(crate) type HttpServer = Server<Traced<FastPath>>;
/// A listener for operators.
pub(crate) type AdminServer = Server<Traced<Router>>;

/// Sheds JSON requests. `auth` answers proxies in their own format.
const SHEDDING: LoadShedding = LoadShedding {
    listener: SheddingListener::Http,
    decides: |path| (path.starts_with("/v1/") && !path.starts_with(auth::PATH)) || path == "/json",
    response: || Problem::overloaded().into_response(),
};

/// Answers requests over HTTP.
pub(crate) fn server(
    listener: Listener,
    app: Arc<App>,
    identity: Arc<ClientIdentity>,
    rate_limits: Arc<EnvoyRateLimits>,
    allowed_hosts: &[String],
) -> HttpServer {
    let hosts = Arc::new(AllowedHosts::new(listener.address().ok(), allowed_hosts));
    let others = router(Arc::clone(&app), identity, rate_limits, &hosts);
    let (state, tracer) = (Arc::clone(app.server()), Arc::clone(app.tracer()));
    let kind = ListenerTraits {
        name: "http",
        protocol: Protocol::Http,
        shedding: Some(SHEDDING),
        health_paths: &health::PATHS,
    };
    Server::new(listener, state, Traced::new(tracer, FastPath::new(app, hosts, others)), kind)
}

/// Answers operators.
pub(crate) fn admin_server(listener: Listener, admin: Arc<Admin>) -> AdminServer {
    let (state, tracer) = (Arc::clone(admin.app.server()), Arc::clone(admin.app.tracer()));
    let kind = ListenerTraits { name: "admin", protocol: Protocol::Http, shedding: None, health_paths: &[] };
    Server::new(listener, state, Traced::new(tracer, admin::router(admin)), kind)
}

/// Reads the body of a check, for the fuzzers.
pub(crate) fn read_check_body(body: &[u8]) -> Result<(), String> {
    wire::parse(body).map(drop).map_err(|problem| problem.to_json())
}

/// Every path of the listener.
fn router(
    app: Arc<App>,
    identity: Arc<ClientIdentity>,
    rate_limits: Arc<EnvoyRateLimits>,
    hosts: &Arc<AllowedHosts>,
) -> Router {
    let auth = Arc::new(auth::ForwardAuth::new(Arc::clone(&app), identity, Arc::clone(hosts)));
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
        .route("/metrics", get(metrics::metrics).with_state(Arc::new(metrics::Scraper::new(Arc::clone(&app)))))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(api_explorer::page))
        .route("/docs", get(api_explorer::page))
        .route("/docs/{file}", get(api_explorer::file))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(app)
        .merge(for_proxies.with_state(auth))
}
