//! Connection timeouts: incomplete request heads, idle connections, and clients that stop
//! reading or sending.
//!
//! hyper's own header timeout also ends idle connections, which would break clients
//! that pool them; and it arms a timer for every request.

use std::future::poll_fn;
use std::io::{Error, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::lazy_timer::LazyTimer;
use super::load_shedding;
use super::options::ShutdownOptions;
use super::queueing_delay::Wakeups;
use super::request_framing::{FramingFault, FramingScanner};
use super::tls::{ClientCaTrust, ServerStream};

/// Timeout of a request's head; of the first one from the start of the connection.
pub(crate) const HEAD: Duration = Duration::from_secs(5);
/// Keep-alive timeout between requests. Longer than the minute after which common
/// clients and balancers close connections, so that they do it first.
const IDLE: Duration = Duration::from_secs(75);
/// How long a new connection does not count as idle, so that its first request
/// can arrive.
const GRACE: Duration = Duration::from_secs(1);

/// How long requests in flight may go on after the CA that verified their client was removed;
/// as long as in a shutdown.
pub(crate) const CLIENT_CA_DRAIN: Duration = ShutdownOptions::DEFAULT.drain;

/// How long a client may read nothing of a response.
const STUCK: Duration = Duration::from_secs(30);
/// How long a client must stall its requests before its connection makes room for others.
const STALLED: Duration = Duration::from_secs(5);
/// A client stalls its requests if less than this passes of their bodies, in bytes a second.
const STALLED_RATE_MAX: u64 = 500;
/// How many bytes are scanned at a time.
const LOOK_MAX: usize = 16 << 10;

/// The progress of a connection's requests, updated by the service that answers them.
#[derive(Debug)]
pub(crate) struct RequestProgress {
    begun: AtomicU64,
    ended: AtomicU64,
    is_http2: AtomicBool,
    is_tunnel: AtomicBool,
    /// Whether it is to be closed as soon as no request is in flight.
    is_told_to_close: AtomicBool,
    /// Whether it is to be closed even if requests are in flight.
    is_told_to_abort: AtomicBool,
    /// The requests that wait for the client: for the rest of their body, or for it to
    /// take more of their response.
    waiting: AtomicU64,
    /// How many bytes of bodies the client has sent and taken.
    body_bytes: AtomicU64,
    /// Since when it stalls, as far as was observed.
    stall: Mutex<Option<Stall>>,
    /// When its last request began, or the connection itself.
    active: AtomicU64,
    pub(crate) wakeups: Arc<Wakeups>,
    /// The first ambiguous request, and why it is.
    fault: OnceLock<(u64, FramingFault)>,
}

/// An observed stall: the client keeps all in-flight requests of a connection waiting.
#[derive(Debug, Clone, Copy)]
struct Stall {
    since: u64,
    /// The bytes of bodies until then.
    body_bytes: u64,
    last_observed: u64,
}

impl Default for RequestProgress {
    /// For a connection that is accepted now.
    fn default() -> Self {
        let wakeups = Arc::new(Wakeups::new());
        Self {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            is_tunnel: AtomicBool::new(false),
            is_told_to_close: AtomicBool::new(false),
            is_told_to_abort: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            stall: Mutex::default(),
            active: AtomicU64::new(wakeups.waiting_since()),
            wakeups,
            fault: OnceLock::new(),
        }
    }
}

impl RequestProgress {
    /// For a connection that is known to use HTTP/2 before its first request.
    pub(crate) fn http2() -> Self {
        Self { is_http2: AtomicBool::new(true), ..Self::default() }
    }

    /// When the last request of an idle connection began, or the connection itself; none
    /// if a request is in flight, or if the connection is new and its first request may
    /// still come.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        let active = self.active.load(Ordering::Relaxed);
        let is_idle = self.is_idle() && !(self.is_new() && load_shedding::elapsed(active) < GRACE);
        is_idle.then_some(active)
    }

    /// Whether no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        ended == self.begun.load(Ordering::Relaxed)
    }

    /// Whether no request has begun yet.
    pub(crate) fn is_new(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == 0
    }

    /// Closes the connection as soon as no request is in flight.
    pub(crate) fn request_close(&self) {
        self.is_told_to_close.store(true, Ordering::Relaxed);
        self.wakeups.wake();
    }

    /// Closes the connection even if requests are in flight.
    pub(crate) fn request_abort(&self) {
        self.is_told_to_abort.store(true, Ordering::Relaxed);
        self.request_close();
    }

    /// Whether it is to be closed even if requests are in flight.
    pub(crate) fn is_abort_requested(&self) -> bool {
        self.is_told_to_abort.load(Ordering::Relaxed)
    }

    /// Since when the client has kept every in-flight request waiting, if that is at
    /// least [`STALLED`]. Only observed time counts, so this is called repeatedly while the
    /// listener is almost full. A request that waits for its upstream is not stalled.
    pub(crate) fn stalled_since(&self) -> Option<u64> {
        let under_way = self.begun.load(Ordering::Relaxed).saturating_sub(self.ended.load(Ordering::Relaxed));
        let is_waiting = under_way > 0 && self.waiting.load(Ordering::Relaxed) >= under_way;
        let (now, body_bytes) = (load_shedding::now(), self.body_bytes.load(Ordering::Relaxed));
        let mut stall = self.stall.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |stall: &Stall| {
            let passed = body_bytes.saturating_sub(stall.body_bytes);
            let expected = u128::from(STALLED_RATE_MAX) * load_shedding::elapsed(stall.since).as_millis() / 1_000;
            load_shedding::elapsed(stall.last_observed) < STALLED && (passed == 0 || u128::from(passed) < expected)
        };
        let known = stall.filter(|stall| is_waiting && goes_on(stall));
        let observed = known.unwrap_or(Stall { since: now, body_bytes, last_observed: now });
        *stall = is_waiting.then_some(Stall { last_observed: now, ..observed });
        (is_waiting && load_shedding::elapsed(observed.since) >= STALLED).then_some(observed.since)
    }

    /// A request begins or ends to wait for the client.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        if is_waiting {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The client has sent or taken so much of a body.
    pub(crate) fn add_body_bytes(&self, bytes: usize) {
        self.body_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether it is to be closed.
    pub(crate) fn is_close_requested(&self) -> bool {
        self.is_told_to_close.load(Ordering::Relaxed)
    }

    /// Records that a request's head has arrived; returns why it is ambiguous, if it is.
    pub(crate) fn begin_request(&self, is_http2: bool) -> Option<FramingFault> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.active.store(self.wakeups.waiting_since(), Ordering::Relaxed);
        if is_http2 {
            self.is_http2.store(true, Ordering::Relaxed);
        }
        self.fault.get().filter(|(from, _)| *from <= number).map(|(_, fault)| *fault)
    }

    /// Records that the connection is a tunnel from now on.
    pub(crate) fn begin_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// Records that a request was answered.
    pub(crate) fn end_request(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection with a deadline for its client.
pub(crate) struct TimedConnection {
    io: TokioIo<ServerStream>,
    progress: Arc<RequestProgress>,
    /// Detects ambiguous requests, on listeners that forward them.
    framing: Option<FramingScanner>,
    /// The read deadline.
    due: Instant,
    /// Whether bytes of an incomplete head have arrived.
    has_begun_head: bool,
    /// The requests that had begun at the last poll.
    begun: u64,
    timer: LazyTimer,
    /// The write timer.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Completes when a tunnel is to end because the CA that verified its client was removed.
    distrusted: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl TimedConnection {
    /// For a connection that was accepted then, or whose TLS handshake ended then.
    pub(crate) fn new(
        stream: ServerStream,
        progress: Arc<RequestProgress>,
        is_strict: bool,
        accepted: Instant,
    ) -> Self {
        let due = accepted + HEAD;
        let (io, framing, timer) = (TokioIo::new(stream), is_strict.then(FramingScanner::new), LazyTimer::default());
        // Connecting counts as the beginning of the first head.
        Self { io, progress, framing, due, has_begun_head: true, begun: 0, timer, stuck: None, distrusted: None }
    }

    /// The same for a connection whose client a CA may have verified. What serves requests
    /// looks to its end; a tunnel, which is no longer served, ends itself.
    #[must_use]
    pub(crate) fn trusting(mut self, trust: &ClientCaTrust) -> Self {
        if trust.is_verified() {
            let mut trust = trust.clone();
            self.distrusted = Some(Box::pin(async move {
                trust.removed().await;
                tokio::time::sleep(CLIENT_CA_DRAIN).await;
            }));
        }
        self
    }

    /// Whether it is a tunnel whose client is no longer trusted.
    fn is_distrusted_tunnel(&mut self, context: &mut Context<'_>) -> bool {
        let is_tunnel = self.progress.is_tunnel.load(Ordering::Relaxed);
        let Some(distrusted) = self.distrusted.as_mut().filter(|_| is_tunnel) else { return false };
        let is_over = distrusted.as_mut().poll(context).is_ready();
        if is_over {
            // It may be asked again.
            self.distrusted = Some(Box::pin(poll_fn(|_| Poll::Ready(()))));
        }
        is_over
    }

    /// Whether it is secure.
    pub(crate) fn is_tls(&self) -> bool {
        self.io.inner().is_tls()
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<Result<(), Error>> {
        if self.progress.is_tunnel.load(Ordering::Relaxed) {
            self.framing = None;
        }
        let Some(framing) = &mut self.framing else {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        };
        // hyper's buffer does not expose the bytes that were read into it.
        let mut space = [const { MaybeUninit::uninit() }; LOOK_MAX];
        let mut read = ReadBuf::uninit(&mut space[..buffer.remaining().min(LOOK_MAX)]);
        std::task::ready!(Pin::new(self.io.inner_mut()).poll_read(context, &mut read))?;
        if let Some((number, fault)) = framing.scan(read.filled()) {
            if number <= self.progress.begun.load(Ordering::Relaxed) {
                // Its request is being answered: nothing more may be read of its body.
                return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, fault)));
            }
            // Only the first fault is kept: nothing is scanned after it.
            let _ = self.progress.fault.set((number, fault));
        }
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }

    fn bytes_received(&mut self) {
        let is_http2 = self.progress.is_http2.load(Ordering::Relaxed);
        if is_http2 {
            // Frames that open no stream count as activity.
            self.due = Instant::now() + IDLE;
        } else if !self.has_begun_head && !self.is_receiving_body() {
            self.has_begun_head = true;
            self.due = Instant::now() + HEAD;
        }
    }

    /// Whether a request is in flight, so that received bytes are its body.
    fn is_receiving_body(&self) -> bool {
        self.progress.ended.load(Ordering::Relaxed) < self.progress.begun.load(Ordering::Relaxed)
    }

    /// Called when the client reads nothing; whether it has timed out.
    fn is_write_timed_out(&mut self, context: &mut Context<'_>) -> bool {
        if self.io.inner_mut().take_write_progress() {
            self.stuck = None;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(STUCK)));
        stuck.as_mut().poll(context).is_ready()
    }

    /// Bounds how long a flush or a shutdown waits for the client. Only TLS, which holds
    /// bytes that are not sent yet, ever waits here.
    fn bounded(&mut self, done: Poll<Result<(), Error>>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match done {
            Poll::Pending if self.is_write_timed_out(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Ready(_) if self.io.inner().is_tls() => {
                self.stuck = None;
                done
            }
            done => done,
        }
    }

    /// Called when the client sends nothing; whether it has timed out.
    fn is_read_timed_out(&mut self, context: &mut Context<'_>) -> bool {
        let begun = self.progress.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            self.begun = begun;
            self.has_begun_head = false;
            self.due = Instant::now() + IDLE;
        }
        if self.is_receiving_body() {
            // The response is ours to send, or a body that has its own timeout.
            self.due = Instant::now() + IDLE;
        }
        self.timer.poll_overdue(self.due, context)
    }
}

impl Read for TimedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.is_distrusted_tunnel(context) {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        match self.poll_bytes(context, buffer) {
            Poll::Ready(read) => {
                self.bytes_received();
                Poll::Ready(read)
            }
            Poll::Pending if self.is_read_timed_out(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for TimedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        if self.is_distrusted_tunnel(context) {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        match Pin::new(&mut self.io).poll_write(context, bytes) {
            Poll::Pending if self.is_write_timed_out(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            written => {
                self.stuck = None;
                written
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.bounded(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.bounded(closed, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        if self.is_distrusted_tunnel(context) {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        match Pin::new(&mut self.io).poll_write_vectored(context, slices) {
            Poll::Pending if self.is_write_timed_out(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            written => {
                self.stuck = None;
                written
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_is_idle_only_after_a_grace() {
        let progress = RequestProgress::default();
        assert_eq!(progress.idle_since(), None, "its first request may be on its way");
        // The clock's first instant.
        progress.active.store(1, Ordering::Relaxed);
        assert_eq!(progress.idle_since(), Some(1));
        progress.begin_request(false);
        assert_eq!(progress.idle_since(), None);
        progress.end_request();
        assert!(progress.idle_since().is_some(), "it has had its first request");
    }

    #[test]
    fn a_connection_stalls_while_its_client_keeps_every_request_waiting() {
        let progress = RequestProgress::default();
        // Since the clock's first instant.
        let stalled_since = |body_bytes| {
            let last_observed = load_shedding::now();
            *progress.stall.lock().unwrap() = Some(Stall { since: 1, body_bytes, last_observed });
            progress.stalled_since()
        };
        assert_eq!(stalled_since(0), None, "nothing is under way");
        progress.begin_request(true);
        progress.set_waiting(true);
        assert_eq!(stalled_since(0), Some(1));
        progress.add_body_bytes(1);
        assert_eq!(stalled_since(0), Some(1), "a body that drips stalls");
        progress.body_bytes.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(stalled_since(0), None);
        assert_eq!(stalled_since(u64::MAX), Some(1));
        progress.begin_request(true);
        assert_eq!(stalled_since(u64::MAX), None, "another request waits for its upstream");
        assert!(progress.stall.lock().unwrap().is_none());
    }
}
