//! Sends requests to upstreams over connections that are kept, and tries
//! another upstream where that is harmless.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use axum::http::header::{HOST, HeaderValue};
use axum::http::uri::{Parts, PathAndQuery};
use axum::http::{Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connector::Connector;
use super::head::Head;
use super::refusal::Refusal;
use super::upload::{Source, Upload};
use super::upstream::{Upstream, Upstreams};
use crate::config::{ProxyOptions, UpstreamUrl};

/// How long a connection rests before it is closed.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// The most connections that rest at a time, for each upstream.
const POOL_MAX: usize = 256;
/// The most bytes of a connection that are held, which is the longest head.
const BUFFER_MAX: usize = 64 << 10;

/// Sends requests to upstreams.
pub(super) struct Forwarder {
    client: Client<Connector, Upload>,
    version: Version,
    response_timeout: Duration,
    pause: Duration,
}

/// Why an upstream did not answer.
enum SendError {
    /// There was no connection: it has seen nothing of the request.
    Unreachable,
    /// A connection that had rested was closed as the request went out.
    Lost,
    Refused(Refusal),
}

impl Forwarder {
    pub(super) fn new(options: &ProxyOptions) -> anyhow::Result<Self> {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_MAX)
            .http1_max_buf_size(BUFFER_MAX)
            .http2_only(options.is_upstream_http2)
            // The client's own is passed on.
            .set_host(false);
        Ok(Self {
            client: builder.build(Connector::new(options)?),
            version: if options.is_upstream_http2 { Version::HTTP_2 } else { Version::HTTP_11 },
            response_timeout: options.response_timeout,
            pause: options.upstream_pause,
        })
    }

    /// The answer of the first upstream that can be reached. An upstream that
    /// has seen something of the request is the last one that does, unless the
    /// request may be repeated by its method and has no body.
    pub(super) async fn forward(
        &self,
        upstreams: &Upstreams,
        head: &Head,
        source: &Source,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut may_repeat = source.is_empty() && is_repeatable(&head.method);
        for upstream in upstreams.in_turn() {
            loop {
                match self.send(upstream, head, source).await {
                    Ok(response) => return Ok(response),
                    Err(SendError::Lost) if may_repeat => may_repeat = false,
                    Err(SendError::Unreachable) if source.is_untouched() => break,
                    Err(SendError::Lost | SendError::Unreachable) => return Err(Refusal::Broken),
                    Err(SendError::Refused(refusal)) => return Err(refusal),
                }
            }
        }
        Err(Refusal::Unreachable)
    }

    async fn send(&self, upstream: &Upstream, head: &Head, source: &Source) -> Result<Response<Incoming>, SendError> {
        let mut request = Request::new(source.lend());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = target(&upstream.url, head.path.clone());
        *request.headers_mut() = head.headers.clone();
        self.address(&mut request, upstream);
        let mut answered = std::pin::pin!(self.client.request(request));
        loop {
            let due = source.owed_since().unwrap_or_else(Instant::now) + self.response_timeout;
            let answered = tokio::select! {
                answered = answered.as_mut() => answered,
                () = tokio::time::sleep_until(due) => {
                    // While the client owes its body, the upstream owes nothing.
                    match source.owed_since() {
                        Some(since) if since + self.response_timeout <= Instant::now() => {
                            let seconds = self.response_timeout.as_secs();
                            return Err(SendError::Refused(Refusal::Slow { seconds }));
                        }
                        _ => continue,
                    }
                }
            };
            return answered.map_err(|error| self.judge(upstream, source, &error));
        }
    }

    /// Names one host: in HTTP/2 that of the target, else the client's, or the
    /// upstream's own where there is none.
    fn address(&self, request: &mut Request<Upload>, upstream: &Upstream) {
        *request.version_mut() = self.version;
        if self.version == Version::HTTP_2 {
            request.headers_mut().remove(HOST);
        } else if !request.headers().contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(upstream.url.authority.as_str())
        {
            request.headers_mut().insert(HOST, host);
        }
    }

    fn judge(&self, upstream: &Upstream, source: &Source, error: &hyper_util::client::legacy::Error) -> SendError {
        if error.is_connect() {
            upstream.set_aside(self.pause, &reasons(error));
            return SendError::Unreachable;
        }
        if let Some(failure) = source.failure() {
            return SendError::Refused(Refusal::Upload(failure));
        }
        tracing::warn!(upstream = %upstream.url, error = reasons(error), "an upstream broke off before it answered");
        let source = error.source().and_then(|error| error.downcast_ref::<hyper::Error>());
        let is_lost = source.is_some_and(|error| {
            error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset(error)
        });
        if is_lost { SendError::Lost } else { SendError::Refused(Refusal::Broken) }
    }

    /// Whether an upstream answers that it is well.
    pub(super) async fn is_well(&self, upstream: &Upstream, path: &PathAndQuery) -> bool {
        let mut request = Request::new(Upload::empty());
        *request.uri_mut() = target(&upstream.url, path.clone());
        self.address(&mut request, upstream);
        let answered = tokio::time::timeout(self.response_timeout, self.client.request(request)).await;
        answered.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status().as_u16() < 400))
    }
}

/// Whether the upstream hung up without a word.
fn is_reset(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}

/// By RFC 9110, those of which a second has the same effect as one.
fn is_repeatable(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE].contains(method)
}

fn target(url: &UpstreamUrl, path: PathAndQuery) -> Uri {
    let mut parts = Parts::default();
    (parts.scheme, parts.authority) = (Some(url.scheme.clone()), Some(url.authority.clone()));
    parts.path_and_query = Some(path);
    // All three are there, which is all that can be wrong.
    Uri::from_parts(parts).unwrap_or_default()
}

/// An error and what caused it, for people.
fn reasons(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
