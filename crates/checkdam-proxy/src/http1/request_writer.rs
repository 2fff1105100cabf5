//! Writes a request: its head, then its body as it arrives.

use std::io::{Error, ErrorKind, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::header::{HeaderMap, HeaderName};
use bytes::Bytes;
use checkdam_net::LazyTimer;
use hyper::body::Frame;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use crate::error_responses::UploadError;
use crate::forwarded_headers::ForwardedHead;
use crate::request_body::{LentBody, UploadBody, discard};

pub(super) struct RequestWriter {
    /// What is to be written: a head or a chunk's first line, then `data`, then `tail`.
    outbox: Vec<u8>,
    data: Bytes,
    tail: &'static [u8],
    /// How much of that is written.
    sent: usize,
    /// How much was written in all.
    written: u64,
    /// The body; none if there is none, or no more of it.
    upload: Option<UploadBody>,
    coding: BodyCoding,
    is_begun: bool,
    /// Whether it is the upstream that takes nothing.
    is_stuck: bool,
}

enum BodyCoding {
    /// So many bytes are left.
    Length(u64),
    /// These trailers may follow.
    Chunked(Vec<HeaderName>),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Upstream(#[from] Error),
}

impl RequestWriter {
    /// Of a request to a host that is used where the client has named none. The
    /// outbox is where it is written.
    pub(super) fn new(head: &ForwardedHead, source: &LentBody, host: &str, mut outbox: Vec<u8>) -> Self {
        outbox.clear();
        write_head(&mut outbox, head, host);
        let upload = (!source.is_empty()).then(|| source.lend());
        let coding = match upload.as_ref().map(|upload| upload.size_hint().exact()) {
            // An explicit Content-Length of 0 is kept.
            None if head.has_length() => {
                outbox.extend_from_slice(b"content-length: 0\r\n");
                BodyCoding::Length(0)
            }
            None => BodyCoding::Length(0),
            Some(Some(length)) => {
                write_length(&mut outbox, length);
                BodyCoding::Length(length)
            }
            Some(None) => {
                outbox.extend_from_slice(b"transfer-encoding: chunked\r\n");
                BodyCoding::Chunked(head.announced_trailers())
            }
        };
        outbox.extend_from_slice(b"\r\n");
        let (data, tail) = (Bytes::new(), &[][..]);
        Self { outbox, data, tail, sent: 0, written: 0, upload, coding, is_begun: false, is_stuck: false }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.upload.is_none() && self.is_drained()
    }

    /// Writes what there is to write, until there is no more.
    pub(super) fn poll<W>(&mut self, stream: &mut W, context: &mut Context<'_>) -> Poll<Result<(), WriteError>>
    where
        W: AsyncWrite + Unpin,
    {
        loop {
            self.is_stuck = false;
            // The body's first bytes go with the head, if they are there.
            if self.is_drained() || !self.is_begun {
                self.is_begun = true;
                let polled = self.upload.as_mut().map(|upload| Pin::new(upload).poll_frame(context));
                match polled {
                    Some(Poll::Ready(frame)) => self.push_frame(frame.transpose()?)?,
                    Some(Poll::Pending) if self.is_drained() => {
                        ready!(Pin::new(stream).poll_flush(context))?;
                        return Poll::Pending;
                    }
                    None if self.is_drained() => {
                        ready!(Pin::new(stream).poll_flush(context))?;
                        return Poll::Ready(Ok(()));
                    }
                    Some(Poll::Pending) | None => {}
                }
            }
            if !self.is_drained() {
                self.is_stuck = true;
                match ready!(self.poll_write(stream, context))? {
                    0 => return Poll::Ready(Err(Error::from(ErrorKind::WriteZero).into())),
                    length => {
                        self.sent += length;
                        self.written += length as u64;
                    }
                }
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.sent == self.outbox.len() + self.data.len() + self.tail.len()
    }

    fn poll_write<W>(&self, stream: &mut W, context: &mut Context<'_>) -> Poll<Result<usize, Error>>
    where
        W: AsyncWrite + Unpin,
    {
        if self.data.is_empty() && self.tail.is_empty() {
            return Pin::new(stream).poll_write(context, &self.outbox[self.sent..]);
        }
        let mut sent = self.sent;
        let slices = [&self.outbox[..], &self.data, self.tail].map(|part| {
            let passed = sent.min(part.len());
            sent -= passed;
            IoSlice::new(&part[passed..])
        });
        Pin::new(stream).poll_write_vectored(context, &slices)
    }

    /// Takes the next part of the body, or its end.
    fn push_frame(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), WriteError> {
        if self.is_drained() {
            (self.data, self.tail, self.sent) = (Bytes::new(), &[], 0);
            self.outbox.clear();
        }
        let (data, trailers) = match frame.map(Frame::into_data) {
            Some(Ok(data)) if data.is_empty() => return Ok(()),
            Some(Ok(data)) => (Some(data), None),
            Some(Err(frame)) => (None, frame.into_trailers().ok()),
            None => (None, None),
        };
        match (&mut self.coding, data) {
            (BodyCoding::Length(left), Some(data)) => {
                let bytes = data.len() as u64;
                *left = left.checked_sub(bytes).ok_or(UploadError::Broken)?;
                if *left == 0 {
                    self.upload = None;
                }
                self.data = data;
            }
            (BodyCoding::Length(0), None) => self.upload = None,
            // It is shorter than it said.
            (BodyCoding::Length(_), None) => return Err(UploadError::Broken.into()),
            (BodyCoding::Chunked(_), Some(data)) => {
                // Writing to memory does not fail.
                let _ = write!(self.outbox, "{:x}\r\n", data.len());
                (self.data, self.tail) = (data, b"\r\n");
            }
            (BodyCoding::Chunked(announced), None) => {
                self.outbox.extend_from_slice(b"0\r\n");
                write_trailers(&mut self.outbox, &trailers.unwrap_or_default(), announced);
                self.outbox.extend_from_slice(b"\r\n");
                self.upload = None;
            }
        }
        Ok(())
    }

    /// Where heads are written, for the next.
    pub(super) fn into_outbox(self) -> Vec<u8> {
        self.outbox
    }

    /// Marks that the rest is not sent.
    pub(super) fn abandon(&mut self) {
        if let Some(rest) = self.upload.take().and_then(UploadBody::into_unread) {
            discard(rest);
        }
    }

    /// Writes the rest while the response is already being read.
    pub(super) async fn finish(mut self, mut stream: impl AsyncWrite + Unpin, patience: Duration) {
        let (mut alarm, mut written, mut since) = (LazyTimer::default(), self.written, Instant::now());
        let done = std::future::poll_fn(|context| {
            let polled = self.poll(&mut stream, context);
            if written != self.written || !self.is_stuck {
                (written, since) = (self.written, Instant::now());
            }
            match polled {
                Poll::Pending if self.is_stuck && alarm.poll_overdue(since + patience, context) => {
                    Poll::Ready(Err(Error::from(ErrorKind::TimedOut).into()))
                }
                polled => polled,
            }
        });
        if done.await.is_err() {
            self.abandon();
        }
    }
}

fn write_head(out: &mut Vec<u8>, head: &ForwardedHead, host: &str) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let path = head.path.as_str();
    if !path.starts_with(['/', '*']) {
        out.push(b'/');
    }
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_line(out, "host", head.host.as_ref().map_or(host.as_bytes(), |host| host.as_bytes()));
    head.write_each(|name, value| write_line(out, name, value));
}

fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, length: u64) {
    write_line(out, "content-length", itoa::Buffer::new().format(length).as_bytes());
}

fn write_trailers(out: &mut Vec<u8>, trailers: &HeaderMap, announced: &[HeaderName]) {
    for (name, value) in trailers {
        if announced.contains(name) {
            write_line(out, name.as_str(), value.as_bytes());
        }
    }
}
