//! Pool of idle connections to one upstream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;

/// How long a connection rests before it is closed.
pub(in crate::proxy) const IDLE: Duration = Duration::from_secs(30);
/// The most connections that rest at a time, for each upstream.
pub(in crate::proxy) const RESTING_MAX: usize = 256;
/// How often those are closed that rest for too long or were closed from afar.
const SWEEP: Duration = Duration::from_secs(5);

/// The connections that rest, the last used last.
#[derive(Default)]
pub(in crate::proxy) struct Pool(Mutex<Vec<IdleConnection>>);

struct IdleConnection {
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    /// The connection that was used last, if it can still be used.
    pub(in crate::proxy) fn take(&self) -> Option<Box<Connection>> {
        loop {
            let IdleConnection { mut connection, since } = self.idle().pop()?;
            if since.elapsed() < IDLE && connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last response was complete.
    pub(super) fn put(&self, connection: Box<Connection>) {
        let mut resting = self.idle();
        if connection.unread.is_empty() && resting.len() < RESTING_MAX {
            resting.push(IdleConnection { connection, since: Instant::now() });
        }
    }

    /// Closes connections that are of no use any more, as long as there is a pool.
    pub(in crate::proxy) fn sweep(self: &Arc<Self>) {
        let swept = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(pool) = swept.upgrade() else { return };
                let is_usable =
                    |resting: &mut IdleConnection| resting.since.elapsed() < IDLE && resting.connection.is_reusable();
                pool.idle().retain_mut(is_usable);
            }
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        // A panic with the lock held leaves nothing half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Pool").field("resting", &self.idle().len()).finish()
    }
}
