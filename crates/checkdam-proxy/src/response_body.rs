//! Streams an upstream's response body to the client, and charges it by its size.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use bytes::Bytes;
use checkdam::{LIMIT_MAX, Request};
use checkdam_net::{ClientWait, InFlightRequest};
use checkdam_service::app::App;
use hyper::body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Sleep;

use super::forwarder::UpstreamBody;
use super::lock;

/// The body of an answer: cut if its upstream falls silent, or if its client
/// takes nothing of it; charged when it ends.
pub struct ProxyBody(Arc<Mutex<ProxyBodyState>>);

struct ProxyBodyState {
    /// None if it was cut.
    body: Option<UpstreamBody>,
    bytes: u64,
    charge: Option<Box<ByteCharge>>,
    /// How long the upstream may be silent.
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// How often the client polled for more.
    asked: u64,
    /// Whether it is the upstream that is waited for.
    is_awaited: bool,
    client_wait: Option<ClientWait>,
    /// The request is answered when its body is.
    under_way: Option<InFlightRequest>,
}

impl ProxyBody {
    pub(super) fn new(
        body: UpstreamBody,
        charge: Option<Box<ByteCharge>>,
        patience: Duration,
        under_way: InFlightRequest,
    ) -> Self {
        let mut client_wait = under_way.client_wait();
        client_wait.set_waiting(true);
        Self(Arc::new(Mutex::new(ProxyBodyState {
            body: Some(body),
            bytes: 0,
            charge,
            patience,
            timer: None,
            asked: 0,
            is_awaited: false,
            client_wait: Some(client_wait),
            under_way: Some(under_way),
        })))
    }

    /// Aborts the response if its client reads nothing of it for this long. The
    /// connection detects a client that reads a whole connection slowly; for a single
    /// HTTP/2 stream only this does.
    pub(super) fn with_client_timeout(self, patience: Duration) -> Self {
        let watched = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut asked = None;
            loop {
                tokio::time::sleep(patience).await;
                let Some(answer) = watched.upgrade() else { return };
                let mut answer = lock(&answer);
                if asked == Some(answer.asked) && !answer.is_awaited {
                    answer.end();
                    return;
                }
                asked = Some(answer.asked);
            }
        });
        self
    }
}

impl ProxyBodyState {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.asked += 1;
        let Some(body) = &mut self.body else {
            let slow = Error::new(ErrorKind::TimedOut, "the client took nothing of its answer");
            return Poll::Ready(Some(Err(slow)));
        };
        let polled = Pin::new(body).poll_frame(context);
        self.is_awaited = polled.is_pending();
        if let Some(wait) = &mut self.client_wait {
            wait.set_waiting(!self.is_awaited);
        }
        if polled.is_pending() {
            let patience = self.patience;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            std::task::ready!(timer.as_mut().poll(context));
            let silent = Error::new(ErrorKind::TimedOut, "the upstream fell silent in the midst of its answer");
            return Poll::Ready(Some(Err(silent)));
        }
        self.timer = None;
        polled.map(|frame| {
            let frame = frame?;
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                self.bytes += data.len() as u64;
                if let Some(wait) = &self.client_wait {
                    wait.add_bytes(data.len());
                }
            }
            Some(frame.map_err(Error::other))
        })
    }

    /// However the answer ended, what was passed on of it is charged.
    fn end(&mut self) {
        (self.body, self.client_wait, self.under_way) = (None, None, None);
        if let (Some(charge), Ok(runtime)) = (self.charge.take(), Handle::try_current()) {
            runtime.spawn(charge.charge(self.bytes));
        }
    }
}

impl HttpBody for ProxyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        lock(&self.0).poll(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for ProxyBody {
    fn drop(&mut self) {
        lock(&self.0).end();
    }
}

/// Charges a response by its size. The request's own cost is charged before it is
/// forwarded; the remainder is recorded when the response has ended, whatever is left: a
/// bucket may then be in debt.
pub(super) struct ByteCharge {
    app: Arc<App>,
    request: Request<'static>,
    bytes_per_unit: u64,
}

impl ByteCharge {
    /// The request has been charged its own cost.
    pub(super) const fn new(app: Arc<App>, request: Request<'static>, bytes_per_unit: u64) -> Self {
        Self { app, request, bytes_per_unit }
    }

    /// Charges this many bytes, less what was charged before.
    pub(super) async fn charge(self, bytes: u64) {
        let owed = bytes.div_ceil(self.bytes_per_unit.max(1)).saturating_sub(self.request.cost()).min(LIMIT_MAX);
        if owed == 0 {
            return;
        }
        let _ = self.app.record(&self.request.clone().costing(owed)).await;
    }
}
