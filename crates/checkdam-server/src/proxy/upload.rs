//! A request's body on its way to an upstream.
//!
//! It is lent to each attempt and taken only when an upstream wants its bytes:
//! as long as nobody has, another upstream can be tried. It also knows who is
//! waited for: the client, who must go on within a time, or the upstream.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// Why a body did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UploadError {
    #[error("the client sent nothing for too long")]
    Stalled,
    #[error("the client broke off")]
    Broken,
}

/// A body that can be lent until somebody takes it.
pub(super) struct Source {
    shared: Arc<Mutex<Shared>>,
    size: SizeHint,
    is_empty: bool,
    /// How long the client may send nothing.
    patience: Duration,
}

struct Shared {
    untouched: Option<Incoming>,
    flow: Flow,
}

#[derive(Debug, Clone, Copy)]
enum Flow {
    /// The client owes its next part.
    FromClient,
    /// The upstream owes something, since then: taking the next part, or its answer.
    ToUpstream(Instant),
    Failed(UploadError),
}

impl Source {
    pub(super) fn new(body: Incoming, patience: Duration) -> Self {
        let (size, is_empty) = (body.size_hint(), body.is_end_stream());
        let shared = Shared { untouched: Some(body), flow: Flow::ToUpstream(Instant::now()) };
        Self { shared: Arc::new(Mutex::new(shared)), size, is_empty, patience }
    }

    /// The body for one attempt.
    pub(super) fn lend(&self) -> Upload {
        locked(&self.shared).flow = Flow::ToUpstream(Instant::now());
        Upload {
            shared: Some(Arc::clone(&self.shared)),
            size: self.size,
            is_empty: self.is_empty,
            patience: self.patience,
            taken: None,
            timer: None,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Whether nothing of it was read.
    pub(super) fn is_untouched(&self) -> bool {
        locked(&self.shared).untouched.is_some()
    }

    /// Since when the upstream owes something; `None` while the client does.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        match locked(&self.shared).flow {
            Flow::ToUpstream(since) => Some(since),
            Flow::FromClient | Flow::Failed(_) => None,
        }
    }

    /// Why it did not arrive, if that is so.
    pub(super) fn failure(&self) -> Option<UploadError> {
        match locked(&self.shared).flow {
            Flow::Failed(error) => Some(error),
            Flow::FromClient | Flow::ToUpstream(_) => None,
        }
    }

    /// The body, if nobody took it.
    pub(super) fn into_untouched(self) -> Option<Incoming> {
        locked(&self.shared).untouched.take()
    }
}

/// A body as an upstream reads it.
pub(super) struct Upload {
    shared: Option<Arc<Mutex<Shared>>>,
    size: SizeHint,
    is_empty: bool,
    patience: Duration,
    taken: Option<Incoming>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    /// No body.
    pub(super) fn empty() -> Self {
        let size = SizeHint::with_exact(0);
        Self { shared: None, size, is_empty: true, patience: Duration::ZERO, taken: None, timer: None }
    }

    /// Called when the client is silent; whether it has been for too long.
    fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        timer.as_mut().poll(context).is_ready()
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Some(shared) = self.shared.clone() else { return Poll::Ready(None) };
        if self.taken.is_none() {
            self.taken = locked(&shared).untouched.take();
        }
        let Some(body) = &mut self.taken else { return Poll::Ready(None) };
        let (flow, polled) = match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    super::head::clean_trailers(trailers);
                }
                (Flow::ToUpstream(Instant::now()), Poll::Ready(Some(Ok(frame))))
            }
            Poll::Ready(None) => (Flow::ToUpstream(Instant::now()), Poll::Ready(None)),
            Poll::Ready(Some(Err(_))) => {
                (Flow::Failed(UploadError::Broken), Poll::Ready(Some(Err(UploadError::Broken))))
            }
            Poll::Pending if self.is_stalled(context) => {
                (Flow::Failed(UploadError::Stalled), Poll::Ready(Some(Err(UploadError::Stalled))))
            }
            Poll::Pending => (Flow::FromClient, Poll::Pending),
        };
        if polled.is_ready() {
            self.timer = None;
        }
        locked(&shared).flow = flow;
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.taken.as_ref().map_or(self.is_empty, HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.taken.as_ref().map_or(self.size, HttpBody::size_hint)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Upload").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Nothing panics while it holds the lock; if it did, the state would still be
/// whole.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
