//! An upstream's answer on its way to the client.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Sleep;

use super::charge::Charge;
use crate::http::UnderWay;

/// The body of an answer: cut if its upstream falls silent, charged when it ends.
pub(super) struct Download {
    body: Incoming,
    bytes: u64,
    charge: Option<Charge>,
    /// How long the upstream may be silent.
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The request is answered when its body is.
    _under_way: UnderWay,
}

impl Download {
    pub(super) const fn new(body: Incoming, charge: Option<Charge>, patience: Duration, under_way: UnderWay) -> Self {
        Self { body, bytes: 0, charge, patience, timer: None, _under_way: under_way }
    }
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() {
            let patience = self.patience;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
            std::task::ready!(timer.as_mut().poll(context));
            let silent = Error::new(ErrorKind::TimedOut, "the upstream fell silent in the midst of its answer");
            return Poll::Ready(Some(Err(silent.into())));
        }
        self.timer = None;
        polled.map(|frame| {
            let frame = frame?;
            if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                self.bytes += data.len() as u64;
            }
            Some(frame.map_err(Into::into))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// However the answer ended, what was passed on of it is charged.
impl Drop for Download {
    fn drop(&mut self) {
        if let (Some(charge), Ok(runtime)) = (self.charge.take(), Handle::try_current()) {
            runtime.spawn(charge.settle(self.bytes));
        }
    }
}
