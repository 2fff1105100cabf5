//! Forwards requests to upstreams over pooled connections, and retries on another
//! upstream where that is safe.

use std::time::Duration;

use axum::http::uri::PathAndQuery;
use axum::http::{Method, Response};
use checkdam_service::config::ProxyOptions;
use http_body_util::Either;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::MissedTickBehavior;

use super::connector::{Connector, SendError, error_chain};
use super::error_responses::ProxyError;
use super::forwarded_headers::ForwardedHead;
use super::http1::{self, Connection, Exchange, ExchangeError};
use super::http2::Http2;
use super::request_body::LentBody;
use super::upstreams::{Upstream, Upstreams};

/// The body of an upstream's response, over HTTP/1.1 or HTTP/2.
pub(super) type UpstreamBody = Either<http1::Body, Incoming>;

pub(super) struct Forwarder {
    connector: Connector,
    /// Set if upstreams are spoken to in HTTP/2.
    http2: Option<Http2>,
    response_timeout: Duration,
    pause: Duration,
}

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
            return answered.map(|response| response.map(Either::Right));
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
        answered.map(|response| response.map(Either::Left)).map_err(|error| match error {
            ExchangeError::Slow => SendError::Slow,
            ExchangeError::Lost(_) => SendError::Lost(error_chain(&error)),
            error => SendError::Broken(error_chain(&error)),
        })
    }

    /// Requests a path of an upstream periodically: a status below 400 means that it is
    /// healthy.
    pub(super) async fn check_health(&self, upstream: &Upstream, path: PathAndQuery, every: Duration) {
        let (head, source) = (ForwardedHead::get(path), LentBody::empty());
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sent = self.send(upstream, &head, &source, SendAttempt::Health);
            let answered = tokio::time::timeout(self.response_timeout, sent).await;
            upstream.record_health(matches!(answered, Ok(Ok(answer)) if answer.status().as_u16() < 400));
        }
    }
}

/// By RFC 9110, those of which a second has the same effect as one.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE].contains(method)
}
