//! A connection to an upstream, with its read buffer.

use std::future::poll_fn;
use std::io::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use checkdam_net::LazyTimer;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::unconstrained;

use super::stream::Stream;

/// How much is read at a time.
const READ_BYTES: usize = 8 << 10;
/// How much is read at a time when there is more than that.
const READ_BYTES_MAX: usize = 64 << 10;
/// Below this, copying is cheaper than sharing what was read into.
const SHARED_MIN: usize = 4 << 10;

pub(crate) struct Connection {
    pub(super) stream: Stream,
    /// What was read and is not used yet.
    pub(super) unread: BytesMut,
    /// Where heads are written, so that they need no room of their own.
    pub(super) outbox: Vec<u8>,
    pub(super) alarm: LazyTimer,
    /// Its place among the connections that the upstream may have.
    permit: Option<OwnedSemaphorePermit>,
    /// Whether the last read filled all the room there was.
    is_busy: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, permit: Option<OwnedSemaphorePermit>) -> Self {
        let (unread, outbox, alarm) = (BytesMut::new(), Vec::new(), LazyTimer::default());
        Self { stream, unread, outbox, alarm, permit, is_busy: false }
    }

    /// Reads more; how much, which is nothing at the end.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        self.unread.reserve(if self.is_busy { READ_BYTES_MAX } else { READ_BYTES });
        let room = self.unread.capacity() - self.unread.len();
        // It keeps nothing between polls, so that it may be made anew for each.
        let read = pin!(self.stream.read_buf(&mut self.unread)).poll(context);
        let length = std::task::ready!(read)?;
        self.is_busy = length == room;
        Poll::Ready(Ok(length))
    }

    /// The next bytes, at most this many.
    pub(super) fn take(&mut self, length_max: u64) -> Bytes {
        let length = usize::try_from(length_max).unwrap_or(usize::MAX).min(self.unread.len());
        if length >= SHARED_MIN {
            return self.unread.split_to(length).freeze();
        }
        let taken = Bytes::copy_from_slice(&self.unread[..length]);
        self.unread.advance(length);
        taken
    }

    /// Whether it can be reused: nothing has arrived unsolicited, and it was not closed.
    pub(super) fn is_reusable(&mut self) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        // A task without coop budget gets "pending" whatever has arrived, which here would
        // pass for silence: so this poll is unconstrained.
        let look = pin!(unconstrained(poll_fn(|context| self.poll_fill(context))));
        look.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// The bytes, those that were read already, and the place that the connection takes.
    pub(crate) fn into_parts(self) -> (Stream, Bytes, Option<OwnedSemaphorePermit>) {
        (self.stream, self.unread.freeze(), self.permit)
    }
}
