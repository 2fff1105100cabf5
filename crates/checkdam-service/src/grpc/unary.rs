//! Decodes and encodes unary gRPC messages without tonic: nearly every call arrives
//! whole in one frame and gets one frame in response, so it needs no streams. All
//! other calls, and invalid ones, are passed on to tonic unchanged.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use prost::Message;

/// The length of a message's prefix: the compression flag, and the length.
const PREFIX: usize = 5;
/// Names the compression that a client may use.
const ENCODING: &str = "grpc-encoding";

type FrameResult = Result<Frame<Bytes>, hyper::Error>;

/// The body of a call, of which the first two frames were read.
pub(super) struct PeekedBody {
    first: Option<FrameResult>,
    /// Some clients say in a frame of its own that there is no more.
    second: Option<FrameResult>,
    rest: Incoming,
}

impl PeekedBody {
    /// Waits for the first frame, and for the second if there is one.
    pub(super) async fn peek(mut body: Incoming) -> Self {
        let first = body.frame().await;
        let is_over = first.is_none() || body.is_end_stream();
        let second = if is_over { None } else { body.frame().await };
        Self { first, second, rest: body }
    }

    /// The message, if it is complete, uncompressed and the only one.
    pub(super) fn message<M: Message + Default>(&self, headers: &HeaderMap) -> Option<M> {
        let Some(Ok(frame)) = &self.first else { return None };
        let ([0, length @ ..], message) = frame.data_ref()?.split_first_chunk::<PREFIX>()? else { return None };
        let is_alone = match &self.second {
            None => true,
            Some(Ok(second)) => second.data_ref().is_some_and(Bytes::is_empty) && self.rest.is_end_stream(),
            Some(Err(_)) => false,
        };
        let is_whole = u32::from_be_bytes(*length) as usize == message.len();
        (is_whole && is_alone && !headers.contains_key(ENCODING)).then(|| M::decode(message).ok())?
    }
}

impl Body for PeekedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        match self.first.take().or_else(|| self.second.take()) {
            Some(read) => Poll::Ready(Some(read)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.second.is_none() && self.rest.is_end_stream()
    }
}

/// The body of a response: its message, then trailers with the status OK.
pub(super) enum UnaryBody {
    Message(Bytes),
    Success,
    Over,
}

impl UnaryBody {
    pub(super) fn response(message: &impl Message) -> Response<Self> {
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(PREFIX + length);
        bytes.put_u8(0);
        // No message of ours is anywhere near as long.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        // It fails only where there is too little room.
        let _ = message.encode(&mut bytes);
        let mut response = Response::new(Self::Message(bytes.freeze()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

impl Body for UnaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut *self {
            Self::Message(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Success;
                Frame::data(bytes)
            }
            Self::Success => {
                *self = Self::Over;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Frame::trailers(trailers)
            }
            Self::Over => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Over)
    }
}
