//! A connection that is given up when its client keeps it waiting: with the
//! head of a request half sent, or with nothing to say for too long.
//!
//! hyper's own header timeout also ends idle connections, which would break
//! clients that pool them; and it arms a timer for every request.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long a request's head may take, the first one from the connection's
/// beginning.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may rest between requests. Longer than the minute
/// after which common clients and balancers let go, so that they do it first.
const IDLE: Duration = Duration::from_secs(75);

/// How long a client may leave an answer lying before it takes more of it.
const STUCK: Duration = Duration::from_secs(30);

/// How far a connection's requests are, as the service that answers them sees it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    begun: AtomicU64,
    ended: AtomicU64,
    is_http2: AtomicBool,
}

impl Progress {
    /// Of a connection that is known to speak HTTP/2 before it has asked
    /// anything.
    pub(super) fn of_http2() -> Self {
        Self { is_http2: AtomicBool::new(true), ..Self::default() }
    }

    /// A request's head has arrived.
    pub(super) fn begin(&self, is_http2: bool) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        if is_http2 {
            self.is_http2.store(true, Ordering::Relaxed);
        }
    }

    /// A request was answered.
    pub(super) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection with a deadline for what its client owes.
pub(super) struct Deadline {
    io: TokioIo<TcpStream>,
    progress: Arc<Progress>,
    /// When the client's silence becomes too long.
    due: Instant,
    /// Whether bytes have come that belong to no request yet.
    has_begun_head: bool,
    /// The requests that had begun when last looked.
    begun: u64,
    timer: Pin<Box<Sleep>>,
    /// Rings when the client has taken nothing for too long.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(super) fn new(stream: TcpStream, progress: Arc<Progress>) -> Self {
        let due = Instant::now() + HEAD;
        let timer = Box::pin(tokio::time::sleep_until(due));
        // Connecting counts as the beginning of the first head.
        Self { io: TokioIo::new(stream), progress, due, has_begun_head: true, begun: 0, timer, stuck: None }
    }

    fn heard(&mut self) {
        let is_http2 = self.progress.is_http2.load(Ordering::Relaxed);
        if is_http2 {
            // Frames that open no stream are signs of life.
            self.due = Instant::now() + IDLE;
        } else if !self.has_begun_head && !self.is_answering() {
            self.has_begun_head = true;
            self.due = Instant::now() + HEAD;
        }
    }

    /// Whether a request has begun and is not answered: what comes is its body.
    fn is_answering(&self) -> bool {
        self.progress.ended.load(Ordering::Relaxed) < self.progress.begun.load(Ordering::Relaxed)
    }

    /// Called when the client takes nothing; whether it has not for too long.
    fn is_stuck(&mut self, context: &mut Context<'_>) -> bool {
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(STUCK)));
        stuck.as_mut().poll(context).is_ready()
    }

    /// Called when the client is silent; whether it has been for too long.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let begun = self.progress.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            self.begun = begun;
            self.has_begun_head = false;
            self.due = Instant::now() + IDLE;
        }
        if self.is_answering() {
            // It is we who owe an answer, or a body that has its own deadline.
            self.due = Instant::now() + IDLE;
        }
        if self.timer.deadline() > self.due {
            self.timer.as_mut().reset(self.due);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.due <= Instant::now() {
                return true;
            }
            // The timer is moved only when it rings, not at every request.
            self.timer.as_mut().reset(self.due);
        }
        false
    }
}

impl Read for Deadline {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        match Pin::new(&mut self.io).poll_read(context, buffer) {
            Poll::Ready(read) => {
                self.heard();
                Poll::Ready(read)
            }
            Poll::Pending if self.is_over(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for Deadline {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        match Pin::new(&mut self.io).poll_write(context, bytes) {
            Poll::Pending if self.is_stuck(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            written => {
                self.stuck = None;
                written
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        match Pin::new(&mut self.io).poll_write_vectored(context, slices) {
            Poll::Pending if self.is_stuck(context) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
            written => {
                self.stuck = None;
                written
            }
        }
    }
}
