//! The HTTP API: JSON in, JSON and rate-limit headers out.
//!
//! Handlers parse, call the app and write the response; they decide nothing
//! themselves.

mod admin;
mod api_access;
mod api_explorer;
mod auth;
mod dashboard;
mod envoy_json;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod metrics;
mod openapi;
mod problem;
mod same_origin;
mod startup;
mod v1;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use checkdam_net::{Listener, ListenerTraits, Protocol, Server, SheddingListener, SheddingPolicy};

pub use self::admin::{Admin, LiveEvents, RuleSource};
pub use self::problem::Problem;
use self::same_origin::{AllowedHosts, host_middleware, same_origin_middleware};
pub use self::startup::respond_until_opened;
use self::v1::FastPath;
pub use self::wire::{STANDING, denial_response, explain, mode_name, rate_limit_headers};
use crate::access::ListenerAccess;
use crate::app::App;
use crate::client_identity::ClientIdentity;
use crate::grpc::EnvoyRateLimits;
use crate::trace::Traced;

/// A listener for requests over HTTP.
pub type HttpServer = Server<Traced<FastPath>>;
/// A listener for operators.
pub type AdminServer = Server<Traced<Router>>;

/// Sheds JSON requests. `auth` answers proxies in their own format.
const SHEDDING: SheddingPolicy = SheddingPolicy {
    listener: SheddingListener::Http,
    decides: |path| (path.starts_with("/v1/") && !path.starts_with(auth::PATH)) || path == "/json",
    response: || Problem::overloaded().into_response(),
};

pub fn server(
    listener: Listener,
    app: Arc<App>,
    identity: Arc<ClientIdentity>,
    rate_limits: Arc<EnvoyRateLimits>,
    allowed_hosts: &[String],
    access: &Arc<ListenerAccess>,
) -> HttpServer {
    let hosts = Arc::new(AllowedHosts::new(listener.address().ok(), listener.is_tls(), allowed_hosts));
    let others = router(Arc::clone(&app), identity, rate_limits, &hosts, access);
    let (state, tracer) = (Arc::clone(app.server()), Arc::clone(app.tracer()));
    let kind = ListenerTraits {
        name: "http",
        protocol: Protocol::Http,
        shedding: Some(SHEDDING),
        health_paths: &health::PATHS,
    };
    let access = Arc::clone(access);
    Server::new(listener, state, Traced::new(tracer, FastPath { app, hosts, access, others }), kind)
}

pub fn admin_server(listener: Listener, admin: Arc<Admin>) -> AdminServer {
    let (state, tracer) = (Arc::clone(admin.app.server()), Arc::clone(admin.app.tracer()));
    let kind = ListenerTraits { name: "admin", protocol: Protocol::Http, shedding: None, health_paths: &[] };
    let hosts = AllowedHosts::of_admin(listener.address().ok(), listener.is_tls(), admin.authenticates());
    Server::new(listener, state, Traced::new(tracer, admin::router(admin, Arc::new(hosts))), kind)
}

fn router(
    app: Arc<App>,
    identity: Arc<ClientIdentity>,
    rate_limits: Arc<EnvoyRateLimits>,
    hosts: &Arc<AllowedHosts>,
    access: &Arc<ListenerAccess>,
) -> Router {
    let auth = auth::ForwardAuth::new(Arc::clone(&app), identity, Arc::clone(hosts), Arc::clone(access));
    let auth = Arc::new(auth);
    let for_proxies = Router::new().route(auth::PATH, any(auth::auth)).route("/v1/auth/{options}", any(auth::auth));
    let privileged = Router::new()
        .route("/v1/refund", post(v1::refund))
        .route("/v1/reset", post(v1::reset))
        .route_layer(from_fn_with_state(Arc::clone(access), api_access::require_privileged));
    let deciding = Router::new()
        .merge(privileged)
        .route("/json", post(envoy_json::decide).with_state((rate_limits, Arc::clone(access))))
        .route(v1::CHECK, post(v1::check))
        .route("/v1/check/batch", post(v1::batch))
        .route("/v1/record", post(v1::record))
        .route("/v1/peek", post(v1::peek))
        .route("/v1/explain", post(v1::explain))
        .route_layer(from_fn_with_state(Arc::clone(hosts), same_origin_middleware));
    let metrics = get(metrics::metrics).with_state(Arc::new(metrics::Scraper::new(Arc::clone(&app))));
    let metrics =
        Router::new().route("/metrics", metrics).route_layer(from_fn_with_state(Arc::clone(hosts), host_middleware));
    let with_token = Router::new()
        .merge(deciding)
        .merge(metrics)
        .route_layer(from_fn_with_state(Arc::clone(access), api_access::require_api_token));
    Router::new()
        .merge(with_token)
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/healthz", get(health::readyz))
        .route("/healthcheck", get(health::readyz))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(api_explorer::page))
        .route("/docs", get(api_explorer::page))
        .route("/docs/{file}", get(api_explorer::file))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(app)
        .merge(for_proxies.with_state(auth))
}
