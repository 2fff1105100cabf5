//! Active health checks of upstreams.

use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use tokio::time::MissedTickBehavior;

use super::forwarder::Forwarder;
use super::upstreams::Upstream;

/// Asks an upstream for a path again and again: an answer below 400 means that
/// it is well.
pub(super) async fn check_periodically(
    forwarder: Arc<Forwarder>,
    upstream: Arc<Upstream>,
    path: PathAndQuery,
    every: Duration,
) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let is_well = forwarder.is_healthy(&upstream, &path).await;
        upstream.record_health(is_well);
    }
}
