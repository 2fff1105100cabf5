//! Active health checks of upstreams.

use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use tokio::time::MissedTickBehavior;

use super::forwarder::Forwarder;
use super::upstreams::Upstream;

/// Requests a path of an upstream periodically: a status below 400 means that it is
/// healthy.
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
