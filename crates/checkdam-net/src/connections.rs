//! The connections of a listener: serves, counts and closes them.
//!
//! Connections are accepted on the control runtime, which serves operators, health and
//! metrics, and served on the request runtime. A connection whose first request is for
//! health or metrics stays on the control runtime, so that it is answered under any load
//! of the request runtime. With TLS the request is known only after the handshake, so the
//! control runtime makes such a listener's handshakes too, up to a rate; beyond it the
//! request runtime makes them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream as StdTcpStream};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, StatusCode, Version};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::connection_timeouts::{CLIENT_CA_DRAIN, HEAD, RequestProgress, TimedConnection};
use super::load_shedding::SheddingPolicy;
use super::options::{ConnectionOptions, Protocol};
use super::peer_connections::{PeerConnection, PeerConnections, SEARCH_AGAIN};
use super::queueing_delay::record_wakeups;
use super::responder::{InFlightRequest, RequestArrival, Responder, ResponderResponse};
use super::shared_state::ServerState;
use super::tls::{ClientCaTrust, ListenerTls, START_MAX, ServerStream, TlsConnection};

/// The longest head of a request in bytes.
const HEAD_MAX: usize = 32 << 10;
/// The same for Envoy's calls, which may contain its own client's headers (60 KiB by
/// default), and which pass if they are rejected here.
const CALL_HEAD_MAX: u32 = 256 << 10;
/// How many calls may be reset before they were read, as all queued ones are while
/// this process is stalled: a lower limit would end the other calls too.
const RESETS_MAX: usize = 2 * STREAMS_MAX as usize;
/// The maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// How long no connection must be open for clients to count as gone: one that
/// connects for each request may be about to.
const QUIET: Duration = Duration::from_millis(100);

/// How long a connection that is to be closed may still send a request.
const LAST_CALL: Duration = Duration::from_millis(100);
/// The same if it makes room for waiting clients.
const LAST_CALL_FOR_ROOM: Duration = Duration::from_millis(20);
/// How long a TLS handshake may go on once the listener is closing.
const LAST_CALL_FOR_HANDSHAKE: Duration = Duration::from_secs(1);
/// How many TLS handshakes a second are made on the runtime for health. With the slowest
/// common key (RSA 4096, about 5 ms) these take half of one of its threads.
const CONTROL_HANDSHAKES_PER_S: u32 = 100;
/// Timeout of a graceful shutdown that makes room while no request is in flight.
/// HTTP/2 waits in it for the acknowledgement of a PING, which may never come.
const SHUTDOWN_FOR_ROOM: Duration = Duration::from_secs(1);

/// The connections of a listener.
pub(crate) struct Connections<R> {
    state: Arc<ServerState>,
    responder: R,
    kind: ListenerTraits,
    slots: Arc<Semaphore>,
    peers: Arc<PeerConnections>,
    open: Arc<watch::Sender<usize>>,
    closing: watch::Sender<bool>,
    /// The runtime that serves them.
    serving: Handle,
    tls: Option<Arc<ListenerTls>>,
    control_handshakes: Mutex<HandshakeBudget>,
}

/// The properties of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerTraits {
    /// Its name in logs and metrics.
    pub name: &'static str,
    /// The protocol of its clients.
    pub protocol: Protocol,
    /// Which requests it sheds.
    pub shedding: Option<SheddingPolicy>,
    /// Paths that are served on the other runtime, so that they are answered in time
    /// under any load.
    pub health_paths: &'static [&'static str],
}

/// The permit of one more connection.
pub(crate) struct ConnectionSlot(
    #[expect(dead_code, reason = "held, and given back by its drop")] OwnedSemaphorePermit,
);

/// A connection that was accepted and is not served yet.
struct AcceptedConnection {
    peer: IpAddr,
    at: Instant,
    progress: Arc<RequestProgress>,
    open: OpenConnection,
    trust: ClientCaTrust,
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    /// The listener closes.
    Shutdown,
    /// To make room for others.
    Room,
    /// The CA that verified its client was removed.
    ClientCa,
}

impl<R: Responder> Connections<R> {
    /// For a listener whose connections are served by that runtime.
    pub(crate) fn new(
        state: Arc<ServerState>,
        responder: R,
        kind: ListenerTraits,
        options: &ConnectionOptions,
        (serving, tls): (Handle, Option<Arc<ListenerTls>>),
    ) -> Self {
        Self {
            responder,
            state,
            kind,
            slots: Arc::new(Semaphore::new(options.max)),
            peers: Arc::new(PeerConnections::new(options.clone())),
            open: Arc::new(watch::Sender::new(0)),
            closing: watch::Sender::new(false),
            serving,
            tls,
            control_handshakes: Mutex::default(),
        }
    }

    /// Waits until one more connection is permitted. When hardly any is free, idle ones
    /// are closed.
    pub(crate) async fn slot(&self) -> ConnectionSlot {
        loop {
            self.make_room();
            match tokio::time::timeout(SEARCH_AGAIN, Arc::clone(&self.slots).acquire_owned()).await {
                Ok(Ok(slot)) => return ConnectionSlot(slot),
                // Only if the semaphore is closed, which it never is.
                Ok(Err(_)) => std::future::pending().await,
                // Others may be idle by now.
                Err(_) => {}
            }
        }
    }

    /// Closes idle connections if the listener is almost full.
    pub(crate) fn make_room(&self) {
        let (free, reserve) = (self.slots.available_permits(), self.peers.reserve());
        if free < reserve {
            self.peers.make_room(reserve - free);
        }
    }

    /// Closes idle connections: the system has no descriptor for one more.
    pub(crate) fn close_idle(&self) {
        self.peers.make_room(self.peers.reserve());
    }

    /// The permit of one more connection, if one is free.
    pub(crate) fn try_slot(&self) -> Option<ConnectionSlot> {
        Arc::clone(&self.slots).try_acquire_owned().ok().map(ConnectionSlot)
    }

    /// Serves a connection until its client or a shutdown closes it; closes it at once if
    /// its peer has too many. It may have been in the accept queue since `queued_since`.
    pub(crate) fn accept(
        self: &Arc<Self>,
        stream: StdTcpStream,
        peer: IpAddr,
        slot: ConnectionSlot,
        queued_since: u64,
    ) {
        let progress = Arc::new(match self.kind.protocol {
            Protocol::Http => RequestProgress::default(),
            Protocol::Grpc => RequestProgress::http2(),
        });
        let Some(member) = self.peers.add(peer, &progress) else { return };
        let open = OpenConnection::new(&self.open, slot, member);
        let trust = ClientCaTrust::default();
        let accepted = AcceptedConnection { peer, at: Instant::now(), progress, open, trust };
        if let Some(tls) = &self.tls {
            return self.accept_tls(tls, stream, accepted);
        }
        let mut start = [0; START_MAX];
        match stream.peek(&mut start) {
            // It ended.
            Ok(0) => {}
            // Its request arrived before it was accepted.
            Ok(length) => {
                if is_request(&start[..length]) {
                    accepted.progress.wakeups.first_waits_since(queued_since);
                }
                if is_probe(self.kind.health_paths, &start[..length]) {
                    let connections = Arc::clone(self);
                    tokio::spawn(record_wakeups(Arc::clone(&accepted.progress.wakeups), async move {
                        if let Ok(stream) = TcpStream::from_std(stream) {
                            connections.serve(ServerStream::Plain(stream), accepted, true).await;
                        }
                    }));
                } else {
                    self.hand_over(stream, accepted);
                }
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => {}
            Err(_) if !self.kind.health_paths.is_empty() => {
                let Ok(stream) = TcpStream::from_std(stream) else { return };
                let wakeups = Arc::clone(&accepted.progress.wakeups);
                tokio::spawn(record_wakeups(wakeups, Arc::clone(self).dispatch(stream, accepted)));
            }
            Err(_) => self.hand_over(stream, accepted),
        }
    }

    /// Serves a connection here if its request is for health, and hands it over
    /// otherwise.
    async fn dispatch(self: Arc<Self>, stream: TcpStream, accepted: AcceptedConnection) {
        let (mut start, mut closing) = ([0; START_MAX], self.closing.subscribe());
        let length = tokio::select! {
            peeked = tokio::time::timeout_at(accepted.at + HEAD, stream.peek(&mut start)) => match peeked {
                Ok(Ok(length)) if length > 0 => length,
                // It ended, or nothing came in time.
                _ => return,
            },
            // What has arrived by now is still answered.
            () = close_requested(&mut closing, &accepted.progress) => 0,
        };
        if is_probe(self.kind.health_paths, &start[..length]) {
            self.serve(ServerStream::Plain(stream), accepted, true).await;
        } else {
            if is_request(&start[..length]) {
                accepted.progress.wakeups.first_waits_since(accepted.progress.wakeups.waiting_since());
            }
            // It is registered with the other runtime instead of this.
            let Ok(stream) = stream.into_std() else { return };
            self.hand_over(stream, accepted);
        }
    }

    fn hand_over(self: &Arc<Self>, stream: StdTcpStream, accepted: AcceptedConnection) {
        let (connections, wakeups) = (Arc::clone(self), Arc::clone(&accepted.progress.wakeups));
        self.serving.spawn(record_wakeups(wakeups, async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                connections.serve(ServerStream::Plain(stream), accepted, false).await;
            }
        }));
    }

    /// Makes a connection secure on the runtime that will probably serve it, and serves it.
    fn accept_tls(self: &Arc<Self>, tls: &Arc<ListenerTls>, stream: StdTcpStream, accepted: AcceptedConnection) {
        let is_control = !self.kind.health_paths.is_empty() && {
            let mut budget = self.control_handshakes.lock().unwrap_or_else(PoisonError::into_inner);
            budget.take(accepted.at)
        };
        // The runtime that accepts connections is the one for health.
        let control = Handle::current();
        let runtime = if is_control { control.clone() } else { self.serving.clone() };
        let (connections, tls) = (Arc::clone(self), Arc::clone(tls));
        let wakeups = Arc::clone(&accepted.progress.wakeups);
        let secured = connections.secure(tls, stream, accepted, (control, is_control));
        runtime.spawn(record_wakeups(wakeups, secured));
    }

    /// The handshake, within the time of a request's head. Then the connection is served by
    /// the runtime for health if its first request is for that, and by the other if not.
    async fn secure(
        self: Arc<Self>,
        tls: Arc<ListenerTls>,
        stream: StdTcpStream,
        mut accepted: AcceptedConnection,
        (control, is_control): (Handle, bool),
    ) {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        // As for plain connections; also for the messages of the handshake.
        let _ = stream.set_nodelay(true);
        let mut closing = self.closing.subscribe();
        let secured = tokio::select! {
            secured = tokio::time::timeout_at(accepted.at + HEAD, Box::pin(tls.accept(stream))) => secured,
            () = handshake_aborted(&mut closing, &accepted.progress) => return,
        };
        let mut stream = match secured {
            Ok(Some((stream, trust))) => {
                accepted.trust = trust;
                Box::new(TlsConnection::new(stream))
            }
            Ok(None) => return,
            Err(_) => return tls.record_timeout(),
        };
        accepted.at = Instant::now();
        if self.kind.health_paths.is_empty() {
            return self.serve(ServerStream::Tls(stream), accepted, false).await;
        }
        let (is_begun, is_probe) = tokio::select! {
            peeked = tokio::time::timeout_at(accepted.at + HEAD, stream.peek()) => match peeked {
                Ok(start) if !start.is_empty() => (is_request(start), is_probe(self.kind.health_paths, start)),
                // It ended, or nothing came in time.
                _ => return,
            },
            // What has arrived by now is still answered.
            () = close_requested(&mut closing, &accepted.progress) => (false, false),
        };
        if is_probe == is_control {
            return self.serve(ServerStream::Tls(stream), accepted, is_probe).await;
        }
        if is_begun {
            accepted.progress.wakeups.first_waits_since(accepted.progress.wakeups.waiting_since());
        }
        let Some(socket) = stream.detach() else { return };
        let (connections, wakeups) = (Arc::clone(&self), Arc::clone(&accepted.progress.wakeups));
        let serving = record_wakeups(wakeups, async move {
            if stream.attach(socket).is_ok() {
                connections.serve(ServerStream::Tls(stream), accepted, is_probe).await;
            }
        });
        let runtime = if is_probe { &control } else { &self.serving };
        runtime.spawn(serving);
    }

    /// Serves a connection to its end. One that `is_apart` is for health: another request
    /// on it is answered, but closes the connection.
    async fn serve(&self, stream: ServerStream, accepted: AcceptedConnection, is_apart: bool) {
        if let ServerStream::Plain(stream) = &stream {
            // Responses are small and must not be delayed. If this fails they are slower.
            let _ = stream.set_nodelay(true);
        }
        let AcceptedConnection { peer, at, progress, open, mut trust } = accepted;
        let io = TimedConnection::new(stream, Arc::clone(&progress), R::IS_STRICT, at).trusting(&trust);
        let open = Arc::new(open);
        let context = Arc::new(ConnectionContext {
            responder: self.responder.clone(),
            state: Arc::clone(&self.state),
            kind: self.kind,
            progress: Arc::clone(&progress),
            open: Arc::clone(&open),
            peer,
            is_apart,
            is_tls: io.is_tls(),
        });
        let service = service_fn(move |request: Request<Incoming>| {
            let arrival = context.begin(&request);
            let context = Arc::clone(&context);
            async move { Ok::<_, Infallible>(context.respond(request, arrival).await) }
        });
        let (mut closing, mut builder) = (self.closing.subscribe(), builder());
        let signals = (&mut closing, &mut trust);
        match self.kind.protocol {
            Protocol::Http => {
                drive(builder.serve_connection_with_upgrades(io, service), signals, &progress).await;
            }
            Protocol::Grpc => {
                // Responses are not cached, so they need no `Date`.
                let mut http2 = builder.http2();
                http2.auto_date_header(false);
                http2.max_header_list_size(CALL_HEAD_MAX).max_pending_accept_reset_streams(RESETS_MAX);
                // What can be upgraded is not bound to one protocol.
                drive(builder.http2_only().serve_connection(io, service), signals, &progress).await;
            }
        }
        drop(open);
    }

    /// The number of open connections, to be watched.
    pub(crate) fn watch_count(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// The number of open connections.
    pub(crate) fn count(&self) -> usize {
        *self.open.borrow()
    }

    /// Closes idle connections, and the others after their responses.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until none is open.
    pub(crate) async fn until_none_open(&self) {
        // The sender lives as long as `self`.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Waits until none has been open for a moment.
    pub(crate) async fn until_quiet(&self) {
        loop {
            self.until_none_open().await;
            let mut open = self.open.subscribe();
            if tokio::time::timeout(QUIET, open.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// What the requests of a connection share.
struct ConnectionContext<R> {
    responder: R,
    state: Arc<ServerState>,
    kind: ListenerTraits,
    progress: Arc<RequestProgress>,
    open: Arc<OpenConnection>,
    peer: IpAddr,
    /// Whether the connection is for health.
    is_apart: bool,
    is_tls: bool,
}

impl<R: Responder> ConnectionContext<R> {
    fn begin(&self, request: &Request<Incoming>) -> RequestArrival {
        let is_http2 = request.version() == Version::HTTP_2;
        let (fault, since) = (self.progress.begin_request(is_http2), self.progress.wakeups.request_since());
        let under_way = InFlightRequest::new(Arc::clone(&self.progress), Arc::<OpenConnection>::clone(&self.open));
        RequestArrival { peer: self.peer, since, is_tls: self.is_tls, fault, under_way }
    }

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<R::Own> {
        let (is_http2, path) = (request.version() == Version::HTTP_2, request.uri().path());
        let is_elsewhere = self.is_apart && !self.kind.health_paths.contains(&path);
        let shedding = self.kind.shedding;
        let shed = shedding.and_then(|shedding| shedding.shed_response(self.state.overload(), path, arrival.since));
        let mut response = match shed {
            Some(response) => response.map(Either::Right),
            None => self.responder.respond(request, arrival).await,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.progress.begin_tunnel();
        } else if !is_http2
            && (self.state.is_shutting_down()
                || self.progress.is_close_requested()
                || is_elsewhere
                || is_bad_request(&response))
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// An open connection, counted.
struct OpenConnection {
    count: Arc<watch::Sender<usize>>,
    _slot: ConnectionSlot,
    _member: PeerConnection,
}

impl OpenConnection {
    fn new(count: &Arc<watch::Sender<usize>>, slot: ConnectionSlot, member: PeerConnection) -> Self {
        count.send_modify(|open| *open += 1);
        Self { count: Arc::clone(count), _slot: slot, _member: member }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.count.send_modify(|open| *open -= 1);
    }
}

/// Whether these first bytes of a connection are those of a request. After the HTTP/2
/// connection preface (RFC 9113, section 3.4) the first request may come any time later.
fn is_request(start: &[u8]) -> bool {
    !start.is_empty() && !start.starts_with(b"PRI ")
}

/// Whether the request was rejected as malformed by ourselves: then the connection is
/// closed. Responses of upstreams have the responder's own body type.
fn is_bad_request<B>(response: &ResponderResponse<B>) -> bool {
    response.status() == StatusCode::BAD_REQUEST && matches!(response.body(), Either::Right(_))
}

/// Serves a connection to its end, with a graceful shutdown when it is to be closed.
async fn drive<C>(
    connection: C,
    (closing, trust): (&mut watch::Receiver<bool>, &mut ClientCaTrust),
    progress: &RequestProgress,
) where
    C: GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let done = tokio::select! {
        biased;
        done = connection.as_mut() => done,
        reason = close_reason(closing, trust, progress) => {
            // A request that has arrived may not have been read yet: it is answered, and the
            // response closes the connection. A client that has sent nothing loses nothing.
            let last_call = match reason {
                CloseReason::Room if progress.is_new() => Duration::ZERO,
                CloseReason::Room => LAST_CALL_FOR_ROOM,
                CloseReason::Shutdown | CloseReason::ClientCa => LAST_CALL,
            };
            match tokio::time::timeout(last_call, connection.as_mut()).await {
                Ok(done) => done,
                Err(_) => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        biased;
                        done = connection => done,
                        () = shutdown_overdue(progress), if reason != CloseReason::ClientCa && progress.is_close_requested() => {
                            Err("it did not end in time to make room".into())
                        }
                        () = tokio::time::sleep(CLIENT_CA_DRAIN), if reason == CloseReason::ClientCa => {
                            Err("it did not end in time after its client CA was removed".into())
                        }
                    }
                }
            }
        }
    };
    if let Err(error) = done {
        tracing::debug!(error, "a connection ended early");
    }
}

/// Waits until this connection, or all, shall be closed.
async fn close_requested(closing: &mut watch::Receiver<bool>, progress: &RequestProgress) {
    // An error means that the server is gone, which is the same.
    let mut all = pin!(closing.wait_for(|closing| *closing));
    poll_fn(|context| match progress.is_close_requested() {
        true => Poll::Ready(()),
        false => all.as_mut().poll(context).map(drop),
    })
    .await;
}

/// The same for one whose client may have been verified, and why.
async fn close_reason(
    closing: &mut watch::Receiver<bool>,
    trust: &mut ClientCaTrust,
    progress: &RequestProgress,
) -> CloseReason {
    tokio::select! {
        biased;
        () = close_requested(closing, progress) => match progress.is_close_requested() {
            true => CloseReason::Room,
            false => CloseReason::Shutdown,
        },
        () = trust.removed() => {
            // Responses from here on say that they are the last.
            progress.request_close();
            CloseReason::ClientCa
        }
    }
}

/// Waits until a handshake is to be given up: at once if its connection makes room for
/// others, and after a moment if the listener is closing.
async fn handshake_aborted(closing: &mut watch::Receiver<bool>, progress: &RequestProgress) {
    close_requested(closing, progress).await;
    if !progress.is_close_requested() {
        tokio::time::sleep(LAST_CALL_FOR_HANDSHAKE).await;
    }
}

/// Bounds the handshakes on the runtime for health, by the second.
#[derive(Debug, Default)]
struct HandshakeBudget {
    /// The current second, and how many were made in it.
    since: Option<Instant>,
    taken: u32,
}

impl HandshakeBudget {
    /// Whether one more is within the bound.
    fn take(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *self = Self { since: Some(now), taken: 0 };
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= CONTROL_HANDSHAKES_PER_S
    }
}

/// Waits until a graceful shutdown that makes room has timed out, and no request was
/// in flight at two polls: the last response is written between them. A connection that
/// is to be aborted is not waited for.
async fn shutdown_overdue(progress: &RequestProgress) {
    if progress.is_abort_requested() {
        return;
    }
    tokio::time::sleep(SHUTDOWN_FOR_ROOM).await;
    let mut was_idle = false;
    loop {
        let is_idle = progress.is_idle();
        if is_idle && was_idle {
            return;
        }
        was_idle = is_idle;
        tokio::time::sleep(LAST_CALL).await;
    }
}

/// The HTTP settings of connections.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The connection's deadline replaces the header timeout.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(Duration::from_secs(20));
    builder
}

/// Whether a connection that begins with these bytes requests one of the paths.
fn is_probe(paths: &[&str], start: &[u8]) -> bool {
    let target = start.strip_prefix(b"GET ").or_else(|| start.strip_prefix(b"HEAD ")).unwrap_or_default();
    let path = target.split(|byte| matches!(byte, b' ' | b'?')).next().unwrap_or_default();
    path.len() < target.len() && paths.iter().any(|known| known.as_bytes() == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 4] = ["/livez", "/readyz", "/healthcheck", "/metrics"];

    #[tokio::test(start_paused = true)]
    async fn handshakes_beyond_the_bound_are_for_the_other_runtime() {
        let mut budget = HandshakeBudget::default();
        for _ in 0..2 {
            let taken = (0..1_000).filter(|_| budget.take(Instant::now())).count();
            assert_eq!(taken, CONTROL_HANDSHAKES_PER_S as usize);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[test]
    fn probes_are_known_by_how_they_begin() {
        for start in
            ["GET /livez HTTP/1.1", "GET /readyz?a HTTP/1.1", "HEAD /healthcheck HTTP/1.1", "GET /metrics HTTP/1.1"]
        {
            assert!(is_probe(&PATHS, &start.as_bytes()[..START_MAX.min(start.len())]), "{start}");
        }
        for start in
            ["", "GET /livez", "GET /livezy HTTP/1.1", "POST /livez HTTP/1.1", "PRI * HTTP/2.0", "GET / HTTP/1.1"]
        {
            assert!(!is_probe(&PATHS, start.as_bytes()), "{start}");
        }
    }
}
