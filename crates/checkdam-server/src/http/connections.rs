//! The connections of a door: serves them, counts them, closes them.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::deadline::{Deadline, Progress};
use super::responder::{Arrival, Responder};
use super::shedding::Shedding;
use crate::app::App;
use crate::trace::{self, TraceParent};

/// The most connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 10_000;
/// The longest head of a request in bytes.
const HEAD_MAX: usize = 32 << 10;
/// The same for calls of Envoy, which may put in what its own client sent (60 KiB of
/// headers by default), and which lets pass what is refused here.
const CALL_HEAD_MAX: u32 = 256 << 10;
/// How many calls may be given up before they were looked at, as all are that wait
/// while this process stands still: fewer would end the calls beside them too.
const RESETS_MAX: usize = 2 * STREAMS_MAX as usize;
/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// How long nothing must be open for clients to count as gone: one that comes
/// for each request anew may be on its way.
const QUIET: Duration = Duration::from_millis(100);

/// How long a connection that is to be closed may still bring a request.
const LAST_CALL: Duration = Duration::from_millis(100);

/// What a door's clients speak, without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// HTTP/2 with gRPC in it. Clients keep such connections for hours, and may
    /// open them long before they ask anything.
    Grpc,
}

/// The connections of a door.
pub(super) struct Connections<R> {
    app: Arc<App>,
    responder: R,
    protocol: Protocol,
    /// Whom it turns away when there is too much to do.
    shedding: Option<Shedding>,
    slots: Arc<Semaphore>,
    open: Arc<watch::Sender<usize>>,
    closing: watch::Sender<bool>,
}

/// Whom a request's connection comes from; every request carries it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// The right to one more connection.
pub(super) struct Slot(#[expect(dead_code, reason = "held, and given back by its drop")] OwnedSemaphorePermit);

impl<R: Responder> Connections<R> {
    pub(super) fn new(app: Arc<App>, responder: R, (protocol, shedding): (Protocol, Option<Shedding>)) -> Self {
        Self {
            responder,
            app,
            protocol,
            shedding,
            slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            open: Arc::new(watch::Sender::new(0)),
            closing: watch::Sender::new(false),
        }
    }

    /// Waits until there may be one more connection.
    pub(super) async fn slot(&self) -> Slot {
        match Arc::clone(&self.slots).acquire_owned().await {
            Ok(slot) => Slot(slot),
            // Only if the semaphore is closed, which it never is.
            Err(_) => std::future::pending().await,
        }
    }

    /// The right to one more connection, if there may be one now.
    pub(super) fn slot_now(&self) -> Option<Slot> {
        Arc::clone(&self.slots).try_acquire_owned().ok().map(Slot)
    }

    /// Serves a connection until its client has enough or all are closed.
    pub(super) fn serve(&self, stream: TcpStream, peer: IpAddr, slot: Slot) {
        // Answers are small and wait for nothing. If this fails they are slower.
        let _ = stream.set_nodelay(true);
        let (protocol, shedding) = (self.protocol, self.shedding);
        let progress = Arc::new(match protocol {
            Protocol::Http => Progress::default(),
            Protocol::Grpc => Progress::of_http2(),
        });
        let io = Deadline::new(stream, Arc::clone(&progress), R::IS_STRICT);
        let open = Arc::new(Open::new(&self.open, slot));
        let (responder, app, held) = (self.responder.clone(), Arc::clone(&self.app), Arc::clone(&open));
        let service = service_fn(move |request: Request<Incoming>| {
            let is_http2 = request.version() == Version::HTTP_2;
            let fault = progress.begin(is_http2);
            let under_way = UnderWay { progress: Arc::clone(&progress), _open: Arc::clone(&held) };
            let arrival = Arrival { peer, fault, under_way };
            let parent = if app.tracer().reads_parents() { TraceParent::of(request.headers()) } else { None };
            let (responder, app, progress) = (responder.clone(), Arc::clone(&app), Arc::clone(&progress));
            async move {
                let shed = shedding.and_then(|shedding| shedding.turn_away(app.overload(), request.uri().path()));
                let mut response = match (shed, parent) {
                    (Some(response), _) => response.map(Either::Right),
                    (None, None) => responder.answer(request, arrival).await,
                    // Boxed, so that requests that nobody traces do not carry the room for it.
                    (None, Some(parent)) => trace::within(parent, Box::pin(responder.answer(request, arrival))).await,
                };
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    progress.tunnel();
                } else if app.is_leaving() && !is_http2 {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut closing = self.closing.subscribe();
        tokio::spawn(async move {
            let mut builder = builder();
            match protocol {
                Protocol::Http => drive(builder.serve_connection_with_upgrades(io, service), &mut closing).await,
                Protocol::Grpc => {
                    // No cache is asked, so nobody needs to know when it was answered.
                    let mut http2 = builder.http2();
                    http2.auto_date_header(false);
                    http2.max_header_list_size(CALL_HEAD_MAX).max_pending_accept_reset_streams(RESETS_MAX);
                    // What can be upgraded is not bound to one protocol.
                    drive(builder.http2_only().serve_connection(io, service), &mut closing).await;
                }
            }
            drop(open);
        });
    }

    /// How many are open, for those who look again and again.
    pub(super) fn counted(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        *self.open.borrow()
    }

    /// Closes those that rest, and the others once they are answered.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Done when none is open.
    pub(super) async fn none(&self) {
        // The sender lives as long as we do.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Done when none has been open for a moment.
    pub(super) async fn quiet(&self) {
        loop {
            self.none().await;
            let mut open = self.open.subscribe();
            if tokio::time::timeout(QUIET, open.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// An open connection, counted.
struct Open {
    count: Arc<watch::Sender<usize>>,
    _slot: Slot,
}

impl Open {
    fn new(count: &Arc<watch::Sender<usize>>, slot: Slot) -> Self {
        count.send_modify(|open| *open += 1);
        Self { count: Arc::clone(count), _slot: slot }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.send_modify(|open| *open -= 1);
    }
}

/// Serves a connection to its end, which comes in good order when all are closed.
async fn drive<C>(connection: C, closing: &mut watch::Receiver<bool>)
where
    C: GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = std::pin::pin!(connection);
    let done = tokio::select! {
        biased;
        done = connection.as_mut() => done,
        () = closed(closing) => {
            // What has arrived already may not have been read yet: it is answered,
            // and the answer closes the connection.
            match tokio::time::timeout(LAST_CALL, connection.as_mut()).await {
                Ok(done) => done,
                Err(_) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = done {
        tracing::debug!(error, "a connection ended early");
    }
}

/// Done when connections shall be closed.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is the same.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// How connections are spoken with.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The connection's deadline takes the place of the header timeout.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(Duration::from_secs(20));
    builder
}

/// A request that is being answered. It counts as answered when this is
/// dropped, however it ended: also when the client resets its stream.
pub(crate) struct UnderWay {
    progress: Arc<Progress>,
    /// A connection that carries something else by now is still one of ours.
    _open: Arc<Open>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.progress.end();
    }
}
