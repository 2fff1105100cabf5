//! Accept loop and graceful shutdown of a listener.
//!
//! Shutdown has three steps. First the server reports not ready but keeps answering, and
//! every response closes its connection, so that no client sends into a connection that is
//! being closed. Then it stops accepting and closes idle connections. Then it waits for
//! requests in flight, until the deadline.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

use super::backlog_drain::BacklogDrain;
use super::connections::{Connections, ListenerTraits};
use super::load_shedding;
use super::options::{ConnectionOptions, ShutdownOptions};
use super::queueing_delay::{Wakeups, record_wakeups};
use super::responder::Responder;
use super::shared_state::ServerState;
use super::tls::ListenerTls;

/// The pause after `accept` fails, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often failures of `accept` are logged.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// How often filling the backlog is tried. Each attempt that fails has accepted a
/// client.
const TAKE_TRIES: usize = 8;

/// A listening socket, and the options of its connections.
pub struct Listener {
    socket: StdTcpListener,
    options: ConnectionOptions,
    /// The runtime that serves the connections.
    serving: Handle,
    tls: Option<Arc<ListenerTls>>,
}

impl Listener {
    /// Its connections are served by that runtime.
    pub fn new(listener: TcpListener, options: &ConnectionOptions, serving: &Handle) -> std::io::Result<Self> {
        Ok(Self { socket: listener.into_std()?, options: options.clone(), serving: serving.clone(), tls: None })
    }

    /// The same with TLS, if it is given.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<ListenerTls>>) -> Self {
        Self { tls, ..self }
    }

    /// Whether its connections use TLS.
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The address it listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A listener whose connections are answered.
pub struct Server<R> {
    socket: StdTcpListener,
    connections: Arc<Connections<R>>,
    state: Arc<ServerState>,
    /// Its name in the log.
    name: &'static str,
    is_tls: bool,
}

impl<R: Responder> Server<R> {
    /// Answers the listener's requests by a responder.
    pub fn new(listener: Listener, state: Arc<ServerState>, responder: R, kind: ListenerTraits) -> Self {
        let Listener { socket, options, serving, tls } = listener;
        let is_tls = tls.is_some();
        let connections = Connections::new(Arc::clone(&state), responder, kind, &options, (serving, tls.clone()));
        state.add_listener(kind.name, connections.watch_count(), tls.as_ref());
        Self { socket, connections: Arc::new(connections), state, name: kind.name, is_tls }
    }

    /// The address it listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The scheme of its URLs.
    pub const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Serves until `stop` has a message, then shuts down as `shutdown` says, or at once
    /// after another message.
    pub async fn run(self, mut stop: mpsc::Receiver<()>, shutdown: ShutdownOptions) {
        let Self { socket, connections, state, name: listener, is_tls: _ } = self;
        let accepting = match Acceptor::new(socket, Arc::clone(&connections)) {
            Ok(accepting) => accepting,
            Err(error) => return tracing::error!(listener, %error, "cannot poll the listener for new connections"),
        };
        tokio::select! {
            _ = stop.recv() => {}
            () = accepting.run() => {}
        }
        state.begin_shutdown();
        tracing::info!(listener, connections = connections.count(), "shutdown: not ready, still serving new requests");
        tokio::select! {
            () = accepting.run() => {}
            () = connections.until_quiet(), if shutdown.ends_when_idle() => {}
            () = tokio::time::sleep(shutdown.notice) => {}
            _ = stop.recv() => return,
        }
        accepting.drain_and_close().await;
        tokio::select! {
            () = connections.until_none_open() => return,
            () = tokio::time::sleep(shutdown.drain) => {}
            _ = stop.recv() => {}
        }
        tracing::warn!(listener, connections = connections.count(), "drain timeout: closing the remaining connections");
    }
}

/// A socket whose connections are accepted.
struct Acceptor<R> {
    listener: TcpListener,
    connections: Arc<Connections<R>>,
}

impl<R: Responder> Acceptor<R> {
    fn new(socket: StdTcpListener, connections: Arc<Connections<R>>) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(socket)?, connections })
    }

    async fn run(&self) {
        let wakeups = Arc::new(Wakeups::new());
        record_wakeups(Arc::clone(&wakeups), self.accept_all(&wakeups)).await;
    }

    async fn accept_all(&self, wakeups: &Wakeups) {
        let mut failures = AcceptFailures::default();
        // Since when there may be connections in the accept queue: the one that is accepted
        // next came later.
        let mut queued_since = load_shedding::now();
        loop {
            let before = wakeups.waiting_since();
            let slot = self.connections.slot().await;
            if wakeups.waiting_since() != before {
                // While all permits are taken the queue is not polled.
                queued_since = load_shedding::now();
            }
            let mut was_empty = false;
            let accepted = poll_fn(|context| {
                let accepted = self.listener.poll_accept(context);
                // Without budget the runtime makes this task yield, whatever the queue holds.
                was_empty |= accepted.is_pending() && has_budget_remaining();
                accepted
            })
            .await;
            if was_empty {
                queued_since = wakeups.waiting_since();
            }
            match accepted {
                Ok((stream, peer)) => {
                    if let Ok(stream) = stream.into_std() {
                        self.connections.accept(stream, peer.ip(), slot, queued_since);
                    }
                }
                Err(error) if is_client_error(&error) => {}
                Err(error) => {
                    failures.record(&error);
                    self.connections.close_idle();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Accepts the connections in the backlog, so that none is reset, then stops
    /// accepting and closes idle connections.
    async fn drain_and_close(self) {
        let Self { listener, connections } = self;
        // The system is called directly: the runtime may not have been notified yet.
        if let Ok(listener) = listener.into_std() {
            let places = BacklogDrain::shrink(&listener);
            accept_pending(&listener, &connections);
            let mut taken = None;
            for _ in 0..TAKE_TRIES {
                let Some(places) = &places else { break };
                taken = places.fill().await;
                if taken.is_some() {
                    break;
                }
                accept_pending(&listener, &connections);
            }
            drop((listener, taken));
        }
        connections.close();
    }
}

/// Failures of `accept`, for the log: without file descriptors every one fails.
#[derive(Debug, Default)]
struct AcceptFailures {
    logged: Option<Instant>,
    /// How many were not logged since then.
    unlogged: u64,
}

impl AcceptFailures {
    fn record(&mut self, error: &std::io::Error) {
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_EVERY) {
            self.unlogged += 1;
            return;
        }
        let before = std::mem::take(&mut self.unlogged);
        tracing::warn!(%error, before, "cannot accept a connection: raise the limit of open files if it is reached");
        self.logged = Some(Instant::now());
    }
}

fn accept_pending<R: Responder>(listener: &StdTcpListener, connections: &Arc<Connections<R>>) {
    while let (Some(slot), Ok((stream, peer))) = (connections.try_slot(), listener.accept()) {
        if stream.set_nonblocking(true).is_ok() {
            connections.accept(stream, peer.ip(), slot, load_shedding::now());
        }
    }
}

fn is_client_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
