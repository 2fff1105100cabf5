//! Pool of idle connections to one upstream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use crate::lock;

/// How long a connection rests before it is closed.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// The most connections that rest at a time, for each upstream.
pub(crate) const RESTING_MAX: usize = 256;
/// How often those are closed that rest for too long or were closed from afar.
const SWEEP: Duration = Duration::from_secs(5);

/// The connections that rest, the last used last.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<IdleConnection>>);

struct IdleConnection {
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    /// The connection that was used last, if it can still be used.
    pub(crate) fn take(&self) -> Option<Box<Connection>> {
        loop {
            let IdleConnection { mut connection, since } = lock(&self.0).pop()?;
            if since.elapsed() < IDLE && connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last response was complete.
    pub(super) fn put(&self, connection: Box<Connection>) {
        let mut resting = lock(&self.0);
        if connection.unread.is_empty() && resting.len() < RESTING_MAX {
            resting.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    /// Closes connections that are of no use any more, as long as there is a pool.
    pub(crate) fn sweep(self: &Arc<Self>) {
        let swept = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(pool) = swept.upgrade() else { return };
                let is_usable =
                    |resting: &mut IdleConnection| resting.since.elapsed() < IDLE && resting.connection.is_reusable();
                lock(&pool.0).retain_mut(is_usable);
            }
        });
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pool").field("resting", &lock(&self.0).len()).finish()
    }
}
