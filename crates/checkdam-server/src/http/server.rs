//! Accepts connections and lets them go in order.
//!
//! Going away has three steps. First the server answers on, unready, and every
//! answer closes its connection, so that no client sends into a connection
//! that is being closed. Then it accepts no more and closes what rests. Then it
//! waits for what is under way, until the deadline.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::admin::Admin;
use super::checks::Checks;
use super::connections::{Connections, Protocol};
use super::foreign::Hosts;
use super::last_places::LastPlaces;
use super::origin::Origin;
use super::responder::Responder;
use super::shedding::Shedding;
use crate::app::App;
use crate::config::LeaveOptions;
use crate::grpc::RateLimits;

/// The pause after the system refuses a connection, for want of descriptors
/// for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the last places of the queue are tried for. Each try that fails has
/// let somebody in.
const TAKE_TRIES: usize = 8;

/// A door's name for the log, what is spoken there, and whom it turns away.
type Kind = (&'static str, Protocol, Option<Shedding>);

/// The HTTP door, open.
pub(crate) struct Server<R = Router> {
    listener: TcpListener,
    connections: Connections<R>,
    app: Arc<App>,
    /// Which it is, for the log.
    door: &'static str,
}

impl Server<Checks> {
    /// The door for requests.
    pub(crate) fn new(
        listener: TcpListener,
        app: Arc<App>,
        origin: Arc<Origin>,
        rate_limits: Arc<RateLimits>,
        allowed_hosts: &[String],
    ) -> Self {
        let hosts = Arc::new(Hosts::new(listener.local_addr().ok(), allowed_hosts));
        let others = super::router(Arc::clone(&app), origin, rate_limits, &hosts);
        let checks = Checks::new(Arc::clone(&app), hosts, others);
        Self::open(listener, app, checks, ("http", Protocol::Http, Some(Shedding::HTTP)))
    }
}

impl Server {
    /// The door for operators.
    pub(crate) fn for_admin(listener: TcpListener, admin: Arc<Admin>) -> Self {
        let (app, router) = (Arc::clone(&admin.app), super::admin::router(admin));
        Self::open(listener, app, router, ("admin", Protocol::Http, None))
    }
}

impl<R: Responder> Server<R> {
    /// The door for gRPC.
    pub(crate) fn for_grpc(listener: TcpListener, app: Arc<App>, responder: R) -> Self {
        Self::open(listener, app, responder, ("grpc", Protocol::Grpc, Some(Shedding::GRPC)))
    }

    /// A door behind which somebody else answers.
    pub(crate) fn with(listener: TcpListener, app: Arc<App>, responder: R) -> Self {
        // Turning away is its own: it knows what to do with the bodies.
        Self::open(listener, app, responder, ("proxy", Protocol::Http, None))
    }

    fn open(listener: TcpListener, app: Arc<App>, responder: R, (door, protocol, shedding): Kind) -> Self {
        let connections = Connections::new(Arc::clone(&app), responder, (protocol, shedding));
        app.opened(door, connections.counted());
        Self { listener, connections, app, door }
    }

    /// Where the door is.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` says so, then goes away as `leave` says, or at
    /// once if `stop` says so again.
    pub(crate) async fn run(self, mut stop: mpsc::Receiver<()>, leave: LeaveOptions) {
        tokio::select! {
            _ = stop.recv() => {}
            () = self.accept() => {}
        }
        self.app.leave();
        let (door, connections) = (self.door, self.connections.count());
        tracing::info!(door, connections, "going away: unready, answering what still comes");
        tokio::select! {
            () = self.accept() => {}
            () = self.connections.quiet(), if leave.ends_when_quiet() => {}
            () = tokio::time::sleep(leave.notice) => {}
            _ = stop.recv() => return,
        }
        let connections = self.close().await;
        tokio::select! {
            () = connections.none() => return,
            () = tokio::time::sleep(leave.drain) => {}
            _ = stop.recv() => {}
        }
        tracing::warn!(door, connections = connections.count(), "not all connections ended in time: they are cut");
    }

    async fn accept(&self) {
        loop {
            let slot = self.connections.slot().await;
            match self.listener.accept().await {
                Ok((stream, peer)) => self.connections.serve(stream, peer.ip(), slot),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes in whoever has connected already, so that nobody is cut off,
    /// accepts no more, and closes what rests.
    async fn close(self) -> Connections<R> {
        let Self { listener, connections, .. } = self;
        // The system is asked directly: the runtime may not know yet who waits.
        if let Ok(listener) = listener.into_std() {
            let places = LastPlaces::of(&listener);
            take_in(&listener, &connections);
            let mut taken = None;
            for _ in 0..TAKE_TRIES {
                let Some(places) = &places else { break };
                taken = places.take().await;
                if taken.is_some() {
                    break;
                }
                take_in(&listener, &connections);
            }
            drop((listener, taken));
        }
        connections.close();
        connections
    }
}

fn take_in<R: Responder>(listener: &std::net::TcpListener, connections: &Connections<R>) {
    while let (Some(slot), Ok((stream, peer))) = (connections.slot_now(), listener.accept()) {
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            connections.serve(stream, peer.ip(), slot);
        }
    }
}

fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
