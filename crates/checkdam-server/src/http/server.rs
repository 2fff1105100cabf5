//! Accepts connections and lets them go in order.
//!
//! Going away has three steps. First the server answers on, unready, and every
//! answer closes its connection, so that no client sends into a connection
//! that is being closed. Then it accepts no more and closes what rests. Then it
//! waits for what is under way, until the deadline.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tower_service::Service;

use super::deadline::{Deadline, Progress};
use crate::app::App;

/// The most connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: u32 = 10_000;
/// The longest head of a request in bytes.
const HEAD_MAX: usize = 32 << 10;
/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// For how long clients are asked to leave by themselves.
const NOTICE: Duration = Duration::from_secs(1);
/// The pause after the system refuses a connection, for want of descriptors
/// for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The HTTP door, open.
pub(crate) struct Server {
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    slots: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Server {
    /// Opens the door at `address`.
    pub(crate) async fn bind(address: &str, app: Arc<App>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self {
            listener,
            router: super::router(Arc::clone(&app)),
            app,
            slots: Arc::new(Semaphore::new(CONNECTIONS_MAX as usize)),
            closing: watch::Sender::new(false),
        })
    }

    /// Where the door is.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` says so, then goes away within `drain`, or at once
    /// if `stop` says so again.
    pub(crate) async fn run(self, mut stop: mpsc::Receiver<()>, drain: Duration) {
        tokio::select! {
            _ = stop.recv() => {}
            () = self.accept() => {}
        }
        let deadline = Instant::now() + drain;
        self.app.leave();
        tracing::info!(connections = self.open(), "going away: unready, answering what still comes");
        tokio::select! {
            () = self.accept() => {}
            () = self.all_closed() => {}
            () = tokio::time::sleep(NOTICE.min(drain / 2)) => {}
        }
        self.accept_queued();
        let Self { listener, slots, closing, .. } = self;
        drop(listener);
        closing.send_replace(true);
        tokio::select! {
            _ = slots.acquire_many(CONNECTIONS_MAX) => return,
            () = tokio::time::sleep_until(deadline) => {}
            _ = stop.recv() => {}
        }
        let cut = CONNECTIONS_MAX as usize - slots.available_permits();
        tracing::warn!(connections = cut, "not all connections ended in time: they are cut");
    }

    async fn accept(&self) {
        // Closed only with the semaphore itself, which is never closed.
        while let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => self.serve(stream, slot),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes in whoever has already connected, so that closing the door cuts
    /// nobody off.
    fn accept_queued(&self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned()
            && let std::task::Poll::Ready(Ok((stream, _))) = self.listener.poll_accept(&mut context)
        {
            self.serve(stream, slot);
        }
    }

    fn serve(&self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        // Answers are small and wait for nothing. If this fails they are slower.
        let _ = stream.set_nodelay(true);
        let progress = Arc::new(Progress::default());
        let io = Deadline::new(stream, Arc::clone(&progress));
        let (router, app) = (self.router.clone(), Arc::clone(&self.app));
        let service = service_fn(move |request: Request<Incoming>| {
            let is_http2 = request.version() == Version::HTTP_2;
            progress.begin(is_http2);
            let answered = router.clone().call(request);
            let (progress, app) = (Arc::clone(&progress), Arc::clone(&app));
            async move {
                let mut response: Response<Body> = answered.await?;
                progress.end();
                if app.is_leaving() && !is_http2 {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut closing = self.closing.subscribe();
        tokio::spawn(async move {
            let builder = builder();
            let mut connection = std::pin::pin!(builder.serve_connection(io, service));
            let done = tokio::select! {
                done = connection.as_mut() => done,
                () = closed(&mut closing) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = done {
                tracing::debug!(error, "a connection ended early");
            }
            drop(slot);
        });
    }

    fn open(&self) -> usize {
        CONNECTIONS_MAX as usize - self.slots.available_permits()
    }

    async fn all_closed(&self) {
        // One slot is held by the accept loop beside this.
        let _ = self.slots.acquire_many(CONNECTIONS_MAX - 1).await;
    }
}

/// Done when connections shall be closed.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is the same.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// How connections are spoken with: HTTP/1.1 and HTTP/2 without TLS.
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

fn is_of_the_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
