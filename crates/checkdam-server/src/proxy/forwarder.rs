//! Forwards requests to upstreams over pooled connections, and retries on another
//! upstream where that is safe.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use axum::http::{Method, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::connector::Connector;
use super::error_responses::ProxyError;
use super::forwarded_headers::ForwardedHead;
use super::http1::{Connection, Exchange, ExchangeError};
use super::http2::Http2;
use super::request_body::LentBody;
use super::upstream_body::UpstreamBody;
use super::upstreams::{Upstream, Upstreams};
use crate::config::ProxyOptions;

/// Sends requests to upstreams.
pub(super) struct Forwarder {
    connector: Connector,
    /// Set if upstreams are spoken to in HTTP/2.
    http2: Option<Http2>,
    response_timeout: Duration,
    pause: Duration,
}

/// Why an upstream did not respond.
pub(super) enum SendError {
    /// It has as many connections as it may: it has seen nothing of the request.
    Full,
    /// There was no connection: it has seen nothing of the request.
    Unreachable(String),
    /// The connection was closed before any byte of a response.
    Lost(String),
    /// It broke off, or its response is invalid.
    Broken(String),
    /// It took too long.
    Slow,
}

/// Which attempt to send a request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendAttempt {
    First,
    Repeated,
    /// A health check, not a client's request.
    Health,
}

impl SendAttempt {
    /// The right to one more connection. Health needs none: an upstream that has
    /// much to do is not ill.
    fn connection_permit(self, upstream: &Upstream) -> Result<Option<OwnedSemaphorePermit>, SendError> {
        if self == Self::Health {
            return Ok(None);
        }
        let permit = upstream.permit().or_else(|| {
            // One that rests makes room for another.
            drop(upstream.pool.take());
            upstream.permit()
        });
        permit.map(Some).ok_or(SendError::Full)
    }
}

impl Forwarder {
    pub(super) fn new(options: &ProxyOptions) -> anyhow::Result<Self> {
        let connector = Connector::new(options)?;
        Ok(Self {
            http2: options.is_upstream_http2.then(|| Http2::new(connector.clone(), options.response_timeout)),
            connector,
            response_timeout: options.response_timeout,
            pause: options.upstream_pause,
        })
    }

    /// The response of the first upstream that can be reached. If an upstream has
    /// received some of the request, no other is tried, unless the method is idempotent
    /// and there is no body.
    pub(super) async fn forward(
        &self,
        upstreams: &Upstreams,
        head: &ForwardedHead,
        source: &LentBody,
    ) -> Result<Response<UpstreamBody>, ProxyError> {
        let mut may_repeat = source.is_empty() && is_idempotent(&head.method);
        let mut last = ProxyError::Unreachable;
        for upstream in upstreams.rotation() {
            let mut attempt = SendAttempt::First;
            loop {
                let error = match self.send(upstream, head, source, attempt).await {
                    Ok(response) => return Ok(response),
                    Err(SendError::Full) if source.is_untouched() => {
                        last = ProxyError::Full;
                        break;
                    }
                    Err(error) => error,
                };
                if let SendError::Unreachable(reason) = error {
                    upstream.suspend(self.pause, &reason);
                    if source.is_untouched() {
                        break;
                    }
                    return Err(ProxyError::Broken);
                }
                if let Some(failure) = source.failure() {
                    return Err(ProxyError::Upload(failure));
                }
                let (SendError::Lost(reason) | SendError::Broken(reason)) = &error else {
                    return Err(ProxyError::Slow { seconds: self.response_timeout.as_secs() });
                };
                tracing::warn!(upstream = %upstream.url, error = reason, "an upstream closed the connection before it responded");
                if !may_repeat || !matches!(error, SendError::Lost(_)) {
                    return Err(ProxyError::Broken);
                }
                (may_repeat, attempt) = (false, SendAttempt::Repeated);
            }
        }
        Err(last)
    }

    /// Sends a request. Only the first attempt takes a connection that rests:
    /// those may all have been closed.
    async fn send(
        &self,
        upstream: &Upstream,
        head: &ForwardedHead,
        source: &LentBody,
        attempt: SendAttempt,
    ) -> Result<Response<UpstreamBody>, SendError> {
        if let Some(http2) = &self.http2 {
            // On the heap, so that HTTP/1 does not carry the room for it.
            let answered = Box::pin(http2.send(upstream, head, source)).await;
            return answered.map(|response| response.map(UpstreamBody::Http2));
        }
        let resting = if attempt == SendAttempt::First { upstream.pool.take() } else { None };
        let connection = match resting {
            Some(connection) => connection,
            None => {
                let permit = attempt.connection_permit(upstream)?;
                Box::new(Connection::new(Box::pin(self.connector.connect(&upstream.url)).await?, permit))
            }
        };
        let (host, patience, pool) = (upstream.url.authority.as_str(), self.response_timeout, &upstream.pool);
        let answered = Exchange { head, source, host, patience, pool }.run(connection).await;
        answered.map(|response| response.map(UpstreamBody::Http1)).map_err(|error| match error {
            ExchangeError::Slow => SendError::Slow,
            ExchangeError::Lost(_) => SendError::Lost(error_chain(&error)),
            error => SendError::Broken(error_chain(&error)),
        })
    }

    /// Whether an upstream's health check passes.
    pub(super) async fn is_healthy(&self, upstream: &Arc<Upstream>, path: &PathAndQuery) -> bool {
        let (head, source) = (ForwardedHead::get(path.clone()), LentBody::empty());
        let answered =
            tokio::time::timeout(self.response_timeout, self.send(upstream, &head, &source, SendAttempt::Health)).await;
        answered.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().as_u16() < 400))
    }
}

/// By RFC 9110, those of which a second has the same effect as one.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE].contains(method)
}

/// An error and what caused it, for people.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
