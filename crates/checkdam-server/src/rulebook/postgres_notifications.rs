//! Subscribes to PostgreSQL's `LISTEN`/`NOTIFY` for changes, and reconnects after
//! errors.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;

/// What the triggers call it.
const CHANNEL: &str = "checkdam_rules";
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Notifies `hint` of every change until it is aborted. What it misses while it
/// is cut off, polling finds.
pub(super) async fn listen(server: PgConnectOptions, hint: Arc<Notify>) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Err(error) = listen_until_lost(&server, &hint, &mut pause).await {
            tracing::debug!(reason = super::database::reason(&error), "no change notifications; polling instead");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens until the connection is lost.
async fn listen_until_lost(server: &PgConnectOptions, hint: &Notify, pause: &mut Duration) -> Result<(), sqlx::Error> {
    // A pool of its own: a listener keeps its connection, and must not keep it from others.
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_LIMIT);
    let pool = pool.max_lifetime(None).idle_timeout(None).connect_lazy_with(server.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    *pause = PAUSE_MIN;
    // Changes before the subscription were not notified.
    hint.notify_one();
    while listener.try_recv().await?.is_some() {
        hint.notify_one();
    }
    Ok(())
}
