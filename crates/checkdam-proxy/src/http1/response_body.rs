//! Streams the body of an upstream's response.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use checkdam_net::BodyFraming;
use hyper::body::{Frame, SizeHint};

use super::chunked_decoder::{ChunkedDecoder, ChunkedPart};
use super::connection::Connection;
use super::pool::Pool;

/// The body of a response. At its end the connection is returned to the pool, if it
/// is reusable.
pub(crate) struct Body {
    /// None when the body has ended.
    connection: Option<Box<Connection>>,
    rest: Remaining,
    /// The pool to return the connection to; none if it cannot be reused.
    pool: Option<Arc<Pool>>,
}

enum Remaining {
    Length(u64),
    Chunks(ChunkedDecoder),
    Closed,
}

impl Body {
    pub(super) fn new(connection: Box<Connection>, framing: BodyFraming, pool: Option<Arc<Pool>>) -> Self {
        let rest = match framing {
            BodyFraming::Length(length) => Remaining::Length(length),
            BodyFraming::Chunked => Remaining::Chunks(ChunkedDecoder::default()),
            BodyFraming::Closed => Remaining::Closed,
        };
        let mut body = Self { connection: Some(connection), rest, pool };
        if matches!(body.rest, Remaining::Length(0)) {
            body.end();
        }
        body
    }

    /// For a response after which the connection is a tunnel.
    pub(super) const fn tunnel(connection: Box<Connection>) -> Self {
        Self { connection: Some(connection), rest: Remaining::Closed, pool: None }
    }

    /// The connection, in whatever state it is.
    pub(crate) fn into_connection(self) -> Option<Box<Connection>> {
        self.connection
    }

    fn end(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.take()) {
            pool.put(connection);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
            match &mut self.rest {
                Remaining::Length(left) if !connection.unread.is_empty() => {
                    let data = connection.take(*left);
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.end();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Remaining::Closed if !connection.unread.is_empty() => {
                    return Poll::Ready(Some(Ok(Frame::data(connection.take(u64::MAX)))));
                }
                Remaining::Chunks(chunks) => match chunks.next(connection)? {
                    ChunkedPart::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    ChunkedPart::Trailers(trailers) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                    ChunkedPart::End => {
                        self.end();
                        return Poll::Ready(None);
                    }
                    ChunkedPart::Missing => {}
                },
                Remaining::Length(_) | Remaining::Closed => {}
            }
            if ready!(connection.poll_fill(context))? == 0 {
                self.connection = None;
                return Poll::Ready(match self.rest {
                    Remaining::Closed => None,
                    _ => Some(Err(Error::new(ErrorKind::UnexpectedEof, "the upstream broke off in its answer"))),
                });
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = self.poll(context);
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.connection = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.connection.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.connection, &self.rest) {
            (None, _) => SizeHint::with_exact(0),
            (Some(_), Remaining::Length(left)) => SizeHint::with_exact(*left),
            (Some(_), _) => SizeHint::default(),
        }
    }
}
