//! HTTP/2 client for upstreams (RFC 9113), which gRPC needs; it uses hyper's client.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use axum::http::header::{HeaderName, HeaderValue};
use axum::http::uri::{Parts, PathAndQuery};
use axum::http::{Request, Response, Uri, Version};
use checkdam_service::config::UpstreamUrl;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connector::{Connector, SendError, error_chain};
use super::forwarded_headers::ForwardedHead;
use super::http1;
use super::request_body::{LentBody, UploadBody};
use super::upstreams::Upstream;

pub(super) struct Http2 {
    client: Client<Connector, UploadBody>,
    response_timeout: Duration,
}

impl Http2 {
    pub(super) fn new(connector: Connector, response_timeout: Duration) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(http1::IDLE)
            .pool_max_idle_per_host(http1::RESTING_MAX)
            .http2_only(true)
            // The authority is the upstream's own, and the only host.
            .set_host(false);
        Self { client: builder.build(connector), response_timeout }
    }

    pub(super) async fn send(
        &self,
        upstream: &Upstream,
        head: &ForwardedHead,
        source: &LentBody,
    ) -> Result<Response<Incoming>, SendError> {
        let begun = Instant::now();
        let mut answered = std::pin::pin!(self.client.request(request(&upstream.url, head, source)));
        loop {
            let due = source.upstream_owes_since(begun).unwrap_or_else(Instant::now) + self.response_timeout;
            let answered = tokio::select! {
                answered = answered.as_mut() => answered,
                () = tokio::time::sleep_until(due) => {
                    // While the client owes its body, the upstream owes nothing.
                    match source.upstream_owes_since(begun) {
                        Some(since) if since + self.response_timeout <= Instant::now() => return Err(SendError::Slow),
                        _ => continue,
                    }
                }
            };
            return answered.map_err(|error| classify(&error));
        }
    }
}

fn request(url: &UpstreamUrl, head: &ForwardedHead, source: &LentBody) -> Request<UploadBody> {
    let mut request = Request::new(source.lend());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri(url, head.path.clone());
    let headers = request.headers_mut();
    head.write_each(|name, value| {
        // They are made of valid header values: it cannot fail.
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    });
    request
}

fn uri(url: &UpstreamUrl, path: PathAndQuery) -> Uri {
    let mut parts = Parts::default();
    (parts.scheme, parts.authority) = (Some(url.scheme.clone()), Some(url.authority.clone()));
    parts.path_and_query = Some(path);
    // All three are there, which is all that can be wrong.
    Uri::from_parts(parts).unwrap_or_default()
}

fn classify(error: &hyper_util::client::legacy::Error) -> SendError {
    if error.is_connect() {
        return SendError::Unreachable(error_chain(error));
    }
    let source = error.source().and_then(|error| error.downcast_ref::<hyper::Error>());
    let is_lost = source.is_some_and(|error| {
        error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset(error)
    });
    if is_lost { SendError::Lost(error_chain(error)) } else { SendError::Broken(error_chain(error)) }
}

/// Whether the upstream hung up without a word.
fn is_reset(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}
