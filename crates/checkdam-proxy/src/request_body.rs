//! Streams a request's body to an upstream.
//!
//! Each attempt borrows the body and consumes it only when an upstream reads its bytes:
//! until then, another upstream can be tried. It also tracks whether the transfer waits for
//! the client, which has a timeout, or for the upstream.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::header::HeaderName;
use bytes::Bytes;
use checkdam_net::ClientWait;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::error_responses::UploadError;
use super::lock;
use super::upload_limit::UploadPermit;

/// How much of a body that is not forwarded is read and discarded, so that its sender
/// still receives the response.
const DISCARD_MAX: usize = 1 << 20;
const DISCARD_LIMIT: Duration = Duration::from_secs(5);

/// A body that can be lent until somebody takes it.
pub(super) struct LentBody {
    /// None if there is no body.
    shared: Option<Arc<Mutex<LentBodyState>>>,
    size: SizeHint,
    pace: ClientPace,
}

struct LentBodyState {
    untouched: Option<Incoming>,
    flow: BodyProgress,
    /// Counts the body as one that its client is sending.
    uploading: Option<UploadPermit>,
    /// The headers that rules read.
    decisive_headers: Arc<[HeaderName]>,
    /// Tells when the client is waited for; none once a response has begun.
    client_wait: Option<ClientWait>,
}

/// How long a client may be waited for. Only time in which the client is waited
/// for counts: it is not to blame for a slow upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientPace {
    /// How long it may send nothing.
    pub(super) patience: Duration,
    /// Minimum average rate in bytes a second, enforced once the total wait exceeds `patience`.
    pub(super) bytes_per_s_min: Option<u64>,
}

impl ClientPace {
    /// How long it may take in all, for this many bytes.
    fn wait_max(&self, received: u64) -> Duration {
        let Some(rate) = self.bytes_per_s_min else { return Duration::MAX };
        let earned_ms = u128::from(received) * 1_000 / u128::from(rate.max(1));
        self.patience.saturating_add(Duration::from_millis(u64::try_from(earned_ms).unwrap_or(u64::MAX)))
    }
}

#[derive(Debug, Clone, Copy)]
enum BodyProgress {
    /// The client owes its next part.
    FromClient,
    /// The upstream is awaited, since then: to read the next part, or to respond.
    ToUpstream(Instant),
    Failed(UploadError),
}

impl LentBody {
    pub(super) fn new(
        body: Incoming,
        pace: ClientPace,
        uploading: Option<UploadPermit>,
        decisive_headers: &Arc<[HeaderName]>,
        client_wait: ClientWait,
    ) -> Self {
        if body.is_end_stream() {
            return Self::empty();
        }
        let size = body.size_hint();
        let shared = LentBodyState {
            untouched: Some(body),
            flow: BodyProgress::ToUpstream(Instant::now()),
            uploading,
            decisive_headers: Arc::clone(decisive_headers),
            client_wait: Some(client_wait),
        };
        Self { shared: Some(Arc::new(Mutex::new(shared))), size, pace }
    }

    pub(super) fn empty() -> Self {
        let pace = ClientPace { patience: Duration::ZERO, bytes_per_s_min: None };
        Self { shared: None, size: SizeHint::with_exact(0), pace }
    }

    /// The body for one attempt.
    pub(super) fn lend(&self) -> UploadBody {
        if let Some(shared) = &self.shared {
            lock(shared).flow = BodyProgress::ToUpstream(Instant::now());
        }
        UploadBody {
            shared: self.shared.clone(),
            size: self.size,
            pace: self.pace,
            is_begun: false,
            taken: None,
            received: 0,
            waited: Duration::ZERO,
            waiting: None,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.shared.is_none()
    }

    /// Whether nothing of it was read.
    pub(super) fn is_untouched(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| lock(shared).untouched.is_some())
    }

    /// Since when the upstream is awaited; `None` while the client is. Without a body,
    /// its response is awaited from the start of the attempt.
    pub(super) fn upstream_owes_since(&self, begun: Instant) -> Option<Instant> {
        let Some(shared) = &self.shared else { return Some(begun) };
        match lock(shared).flow {
            BodyProgress::ToUpstream(since) => Some(since),
            BodyProgress::FromClient | BodyProgress::Failed(_) => None,
        }
    }

    /// Why it did not arrive, if that is so.
    pub(super) fn failure(&self) -> Option<UploadError> {
        match lock(self.shared.as_ref()?).flow {
            BodyProgress::Failed(error) => Some(error),
            BodyProgress::FromClient | BodyProgress::ToUpstream(_) => None,
        }
    }

    /// A response has begun: from now on it tells whether the client is waited for.
    pub(super) fn end_client_wait(&self) {
        if let Some(shared) = &self.shared {
            lock(shared).client_wait = None;
        }
    }

    /// The body, if nobody took it.
    pub(super) fn into_untouched(self) -> Option<Incoming> {
        lock(self.shared.as_ref()?).untouched.take()
    }
}

/// A body as an upstream reads it.
pub(super) struct UploadBody {
    shared: Option<Arc<Mutex<LentBodyState>>>,
    size: SizeHint,
    pace: ClientPace,
    /// Whether it was taken from the source.
    is_begun: bool,
    taken: Option<Incoming>,
    received: u64,
    /// How long the client was waited for, without the present wait.
    waited: Duration,
    /// Since when the client is waited for, and when that is too long.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl UploadBody {
    /// What nobody has read of it, if somebody has begun to.
    pub(super) fn into_unread(mut self) -> Option<Incoming> {
        self.taken.take()
    }

    /// Called when the client is silent; what it is too slow for, if it is.
    fn timeout_error(&mut self, context: &mut Context<'_>) -> Option<UploadError> {
        let left = self.pace.wait_max(self.received).saturating_sub(self.waited);
        let patience = self.pace.patience;
        let begin = || (Instant::now(), Box::pin(tokio::time::sleep(left.min(patience))));
        let (_, timer) = self.waiting.get_or_insert_with(begin);
        match timer.as_mut().poll(context) {
            Poll::Ready(()) if left < patience => Some(UploadError::Slow),
            Poll::Ready(()) => Some(UploadError::Stalled),
            Poll::Pending => None,
        }
    }

    /// Called when data or the end has arrived.
    fn data_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.as_ref().filter(|_| self.is_begun) {
            lock(shared).uploading = None;
        }
    }
}

impl HttpBody for UploadBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Some(shared) = self.shared.clone() else { return Poll::Ready(None) };
        if self.taken.is_none() {
            self.taken = lock(&shared).untouched.take();
            self.is_begun |= self.taken.is_some();
        }
        let Some(body) = &mut self.taken else { return Poll::Ready(None) };
        let (flow, polled) = match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.data_received(frame.data_ref().map_or(0, Bytes::len));
                if let Some(trailers) = frame.trailers_mut() {
                    super::forwarded_headers::strip_trailers(trailers, &lock(&shared).decisive_headers);
                }
                (BodyProgress::ToUpstream(Instant::now()), Poll::Ready(Some(Ok(frame))))
            }
            Poll::Ready(None) => (BodyProgress::ToUpstream(Instant::now()), Poll::Ready(None)),
            Poll::Ready(Some(Err(_))) => {
                (BodyProgress::Failed(UploadError::Broken), Poll::Ready(Some(Err(UploadError::Broken))))
            }
            Poll::Pending => match self.timeout_error(context) {
                Some(error) => (BodyProgress::Failed(error), Poll::Ready(Some(Err(error)))),
                None => (BodyProgress::FromClient, Poll::Pending),
            },
        };
        let mut state = lock(&shared);
        state.flow = flow;
        if let Some(wait) = &mut state.client_wait {
            wait.set_waiting(matches!(flow, BodyProgress::FromClient));
            if let Poll::Ready(Some(Ok(frame))) = &polled {
                wait.add_bytes(frame.data_ref().map_or(0, Bytes::len));
            }
        }
        drop(state);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.taken.as_ref().map_or(self.shared.is_none(), HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.taken.as_ref().map_or(self.size, HttpBody::size_hint)
    }
}

impl fmt::Debug for UploadBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Upload").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Reads what a client is still sending, up to a size and a time; then the connection is
/// closed.
pub(super) fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let reading = async move {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > DISCARD_MAX {
                return;
            }
        }
    };
    tokio::spawn(tokio::time::timeout(DISCARD_LIMIT, reading));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_earns_time_by_what_it_sends() {
        let patience = Duration::from_secs(30);
        let pace = ClientPace { patience, bytes_per_s_min: Some(500) };
        assert_eq!([pace.wait_max(0), pace.wait_max(1_000)], [patience, patience + Duration::from_secs(2)]);
        assert_eq!(pace.wait_max(u64::MAX), patience + Duration::from_millis(u64::MAX));
        assert_eq!(ClientPace { patience, bytes_per_s_min: None }.wait_max(0), Duration::MAX);
    }
}
