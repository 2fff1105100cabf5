//! One HTTP/1.1 request and its response on an upstream connection.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Response, StatusCode};
use bytes::Buf;
use tokio::time::Instant;

use super::connection::Connection;
use super::pool::Pool;
use super::request_writer::{RequestWriter, WriteError};
use super::response_body::Body;
use super::response_head::{ReplyError, ResponseHead};
use crate::error_responses::UploadError;
use crate::forwarded_headers::ForwardedHead;
use crate::request_body::LentBody;

/// The maximum number of interim (1xx) responses.
const INTERIM_MAX: usize = 16;

pub(crate) struct Exchange<'a> {
    pub(crate) head: &'a ForwardedHead,
    pub(crate) source: &'a LentBody,
    /// The upstream's own name, for clients that name no host.
    pub(crate) host: &'a str,
    /// Timeout of the head of the response.
    pub(crate) patience: Duration,
    /// The pool that the connection is returned to.
    pub(crate) pool: &'a Arc<Pool>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The connection ended before any byte of a response.
    #[error("the connection was closed: {0}")]
    Lost(Error),
    #[error("the connection failed in the head of a response: {0}")]
    Broken(Error),
    #[error("its response is invalid: {0}")]
    Reply(#[from] ReplyError),
    #[error("it sent more than {INTERIM_MAX} interim responses")]
    Interim,
    #[error("it switched protocols before the request had ended")]
    EarlySwitch,
    #[error("it took too long")]
    Slow,
    #[error(transparent)]
    Upload(UploadError),
}

struct ExchangeState {
    connection: Box<Connection>,
    writer: RequestWriter,
    begun: Instant,
    interim: usize,
    /// Whether any byte has arrived.
    is_answering: bool,
    /// Why nothing more can be written, and since when.
    blocked: Option<(Error, Instant)>,
}

impl Exchange<'_> {
    /// Sends the request, and waits for the head of its response.
    pub(crate) async fn run(&self, mut connection: Box<Connection>) -> Result<Response<Body>, ExchangeError> {
        let outbox = std::mem::take(&mut connection.outbox);
        let writer = RequestWriter::new(self.head, self.source, self.host, outbox);
        // Concurrent requests are written together: an upstream on the same machine is woken
        // once for all of them instead of for each.
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let mut state = ExchangeState { connection, writer, begun, interim: 0, is_answering: false, blocked: None };
        let reply = std::future::poll_fn(|context| self.poll(&mut state, context)).await?;
        let ResponseHead { status, headers, framing, is_lasting } = reply;
        let ExchangeState { mut connection, mut writer, .. } = state;
        let is_over = writer.is_finished();
        let body = if status == StatusCode::SWITCHING_PROTOCOLS {
            if !is_over {
                return Err(ExchangeError::EarlySwitch);
            }
            Body::tunnel(connection)
        } else if is_over {
            connection.outbox = writer.into_outbox();
            Body::new(connection, framing, is_lasting.then(|| Arc::clone(self.pool)))
        } else if state.blocked.is_some() {
            writer.abandon();
            Body::new(connection, framing, None)
        } else {
            // The response is early: the rest of the request is written concurrently.
            tokio::spawn(writer.finish(connection.stream.split_write_half(), self.patience));
            Body::new(connection, framing, None)
        };
        let mut response = Response::new(body);
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }

    fn poll(&self, state: &mut ExchangeState, context: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeError>> {
        if state.blocked.is_none() {
            match state.writer.poll(&mut state.connection.stream, context) {
                Poll::Ready(Err(WriteError::Upload(error))) => return Poll::Ready(Err(ExchangeError::Upload(error))),
                // It may have responded before it closed the connection.
                Poll::Ready(Err(WriteError::Upstream(error))) => state.blocked = Some((error, Instant::now())),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
        loop {
            if let Some(reply) = self.parse_response(state)? {
                return Poll::Ready(Ok(reply));
            }
            let error = match state.connection.poll_fill(context) {
                Poll::Ready(Ok(0)) => ErrorKind::UnexpectedEof.into(),
                Poll::Ready(Ok(_)) => {
                    state.is_answering = true;
                    continue;
                }
                Poll::Ready(Err(error)) => error,
                Poll::Pending => break,
            };
            let error = state.blocked.take().map_or(error, |(reason, _)| reason);
            let lost = if state.is_answering { ExchangeError::Broken } else { ExchangeError::Lost };
            return Poll::Ready(Err(lost(error)));
        }
        // While the client owes its body, the upstream owes nothing, unless it takes no more of it.
        let blocked_since = state.blocked.as_ref().map(|(_, since)| *since);
        match blocked_since.or_else(|| self.source.upstream_owes_since(state.begun)) {
            Some(since) if state.connection.alarm.poll_overdue(since + self.patience, context) => {
                Poll::Ready(Err(ExchangeError::Slow))
            }
            _ => Poll::Pending,
        }
    }

    /// The response's head, if it is complete; interim responses are skipped.
    fn parse_response(&self, state: &mut ExchangeState) -> Result<Option<ResponseHead>, ExchangeError> {
        let unread = &mut state.connection.unread;
        while !unread.is_empty() {
            let read = ResponseHead::parse(unread, &self.head.method, self.head.upgrade.is_some())?;
            let Some((reply, length)) = read else { break };
            unread.advance(length);
            if !reply.status.is_informational() || reply.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(reply));
            }
            state.interim += 1;
            if state.interim > INTERIM_MAX {
                return Err(ExchangeError::Interim);
            }
        }
        Ok(None)
    }
}
