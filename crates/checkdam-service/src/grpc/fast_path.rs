//! Fast path of the gRPC listener: rate limit requests, by far the most frequent,
//! bypass the router, which would box and copy each of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use checkdam_net::{RequestArrival, Responder, ResponderResponse, route};
use http_body_util::Either;
use hyper::body::Incoming;
use tonic::Status;
use tower_service::Service;

use super::service::EnvoyRateLimits;
use super::unary::{PeekedBody, UnaryBody};
use crate::access::ListenerAccess;
use checkdam_envoy_proto::{RateLimitRequest, RateLimitServiceServer, SHOULD_RATE_LIMIT};

/// The maximum size of a message in bytes. Envoy accepts 60 KiB of headers from a
/// client by default, and a header may be in several descriptors: with a smaller
/// maximum, a client could cause a message that is rejected, which Envoy lets pass.
const MESSAGE_MAX: usize = 4 << 20;
/// The health service, which needs no token.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// How long a request may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Answers rate limit requests itself, and hands everything else to the router.
#[derive(Clone)]
pub(super) struct FastPath {
    rate_limits: Arc<EnvoyRateLimits>,
    /// The same for messages that are streamed in parts, or invalid.
    streamed: RateLimitServiceServer<EnvoyRateLimits>,
    others: Router,
    access: Arc<ListenerAccess>,
}

impl FastPath {
    /// `others` answers calls of other methods.
    pub(super) fn new(rate_limits: Arc<EnvoyRateLimits>, others: Router, access: Arc<ListenerAccess>) -> Self {
        let streamed = RateLimitServiceServer::from_arc(Arc::clone(&rate_limits));
        Self { rate_limits, streamed: streamed.max_decoding_message_size(MESSAGE_MAX), others, access }
    }
}

impl FastPath {
    /// Envoy lets requests pass on errors, so this is logged.
    fn unauthenticated(&self) -> ResponderResponse<UnaryBody> {
        self.access.log_rejected(
            "send it as the metadata \"authorization: Bearer TOKEN\"; until then Envoy lets every request pass, or none \
             with failure_mode_deny",
        );
        let detail = "send the API token as the metadata \"authorization: Bearer TOKEN\"";
        Status::unauthenticated(detail).into_http().map(Either::Right)
    }
}

impl Responder for FastPath {
    const IS_STRICT: bool = false;

    type Own = UnaryBody;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<Self::Own> {
        if !self.access.accepts(request.headers()) && !request.uri().path().starts_with(HEALTH) {
            return self.unauthenticated();
        }
        if request.uri().path() != SHOULD_RATE_LIMIT {
            // Boxed, so that other calls do not carry its size. The time to the head of the
            // response is bounded; streams may last longer.
            let answering = Box::pin(route(&self.others, request, arrival));
            return match tokio::time::timeout(TIMEOUT, answering).await {
                Ok(response) => response.map(Either::Right),
                Err(_) => deadline_exceeded(),
            };
        }
        let (head, body) = request.into_parts();
        let Ok(body) = tokio::time::timeout(TIMEOUT, PeekedBody::peek(body)).await else { return deadline_exceeded() };
        if let Some(message) = body.message::<RateLimitRequest>(&head.headers) {
            return match self.rate_limits.respond(&message).await {
                Ok(answer) => UnaryBody::response(&answer).map(Either::Left),
                Err(status) => status.into_http().map(Either::Right),
            };
        }
        let streamed = self.streamed.clone().call(Request::from_parts(head, body));
        match tokio::time::timeout(TIMEOUT, Box::pin(streamed)).await {
            Ok(Ok(response)) => response.map(|body| Either::Right(Body::new(body))),
            Ok(Err(never)) => match never {},
            Err(_) => deadline_exceeded(),
        }
    }
}

fn deadline_exceeded() -> ResponderResponse<UnaryBody> {
    Status::deadline_exceeded("the message did not arrive in time").into_http().map(Either::Right)
}
