//! `POST /v1/check` by axum: the body is read as JSON, the answer is checkdam's,
//! byte for byte as long. checkdam's headers about limits are not imitated.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use super::Limitador;

#[derive(Deserialize)]
struct Ask {
    attributes: HashMap<String, String>,
}

#[derive(Serialize)]
struct TierDecisions {
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_ms: u64,
    reset_after_ms: u64,
    violated: Option<&'static str>,
    decided_by: &'static str,
    tiers: [Tier; 1],
}

#[derive(Serialize)]
struct Tier {
    rule: &'static str,
    scope: &'static str,
    subject: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_ms: u64,
    reset_after_ms: u64,
}

fn answer(user: &str, allowed: bool) -> Json<TierDecisions> {
    let (limit, remaining) = (1_000_000_000, 999_999_999);
    let tier = Tier {
        rule: "per-user",
        scope: "user",
        subject: format!("user:{user}"),
        allowed,
        limit,
        remaining,
        retry_after_ms: 0,
        reset_after_ms: 1,
    };
    Json(TierDecisions {
        allowed,
        limit,
        remaining,
        retry_after_ms: 0,
        reset_after_ms: 1,
        violated: None,
        decided_by: "memory",
        tiers: [tier],
    })
}

fn user(ask: &Ask) -> &str {
    ask.attributes.get("user").map_or("", String::as_str)
}

pub(super) async fn serve_bare(address: SocketAddr) {
    serve(
        address,
        Router::new().route("/v1/check", post(|Json(ask): Json<Ask>| async move { answer(user(&ask), true) })),
    )
    .await;
}

pub(super) async fn serve_limited(address: SocketAddr, limitador: Limitador) {
    let check = |State(limitador): State<Arc<Limitador>>, Json(ask): Json<Ask>| async move {
        let allowed = limitador.check(ask.attributes.clone()).await;
        answer(user(&ask), allowed)
    };
    serve(address, Router::new().route("/v1/check", post(check)).with_state(Arc::new(limitador))).await;
}

async fn serve(address: SocketAddr, router: Router) {
    let listener = TcpListener::bind(address).await.unwrap_or_else(|error| panic!("cannot listen: {error}"));
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await.unwrap_or_else(|error| panic!("{error}"));
}
