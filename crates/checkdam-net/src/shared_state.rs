//! State that the listeners of a process share: load, connections, and shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::load_shedding::LoadShedding;
use super::options::OverloadOptions;
use super::tls::ListenerTls;

/// What the listeners of a process share.
#[derive(Debug)]
pub struct ServerState {
    overload: LoadShedding,
    is_shutting_down: AtomicBool,
    /// The names of the listeners, and how many connections each has.
    connections: Mutex<Vec<(&'static str, watch::Receiver<usize>)>>,
    /// TLS of the listeners that have it.
    tls: Mutex<Vec<Arc<ListenerTls>>>,
}

impl ServerState {
    /// The state of a process without listeners.
    pub fn new(options: OverloadOptions) -> Self {
        Self {
            overload: LoadShedding::new(options),
            is_shutting_down: AtomicBool::new(false),
            connections: Mutex::default(),
            tls: Mutex::default(),
        }
    }

    /// Queueing delay and load shedding.
    pub const fn overload(&self) -> &LoadShedding {
        &self.overload
    }

    /// Logs episodes of load shedding, for as long as the program runs.
    pub async fn log_overload(self: Arc<Self>) {
        self.overload.log_episodes().await;
    }

    /// Begins the shutdown: requests are still answered, and each response asks its
    /// client to close the connection.
    pub(crate) fn begin_shutdown(&self) {
        self.is_shutting_down.store(true, Ordering::Relaxed);
    }

    /// Whether the process shuts down.
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Relaxed)
    }

    /// Adds a listener.
    pub(crate) fn add_listener(
        &self,
        listener: &'static str,
        connections: watch::Receiver<usize>,
        tls: Option<&Arc<ListenerTls>>,
    ) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push((listener, connections));
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).extend(tls.cloned());
    }

    /// TLS of each listener that has it.
    pub fn tls(&self) -> Vec<Arc<ListenerTls>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections each listener has.
    pub fn connections(&self) -> Vec<(&'static str, usize)> {
        let listeners = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().map(|(listener, connections)| (*listener, *connections.borrow())).collect()
    }
}
