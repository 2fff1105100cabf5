//! Entry points of the fuzz targets: rate limit requests as gRPC messages.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Request as HttpRequest;
use checkdam::Request;
use checkdam_envoy_proto::{RateLimitRequest, RateLimitResponse, RateLimitService, RateLimitServiceServer};
use hyper::body::Incoming;
use tonic::{Response, Status};
use tower_service::Service;

use super::request;
use super::unary::PeekedBody;

/// The message of a call as the fast path decodes it, and as tonic does.
pub async fn decode_both_ways(call: HttpRequest<Incoming>) -> (Option<RateLimitRequest>, Option<RateLimitRequest>) {
    let (head, body) = call.into_parts();
    let body = PeekedBody::peek(body).await;
    let fast = body.message(&head.headers);
    let recorder = Arc::new(Recorder::default());
    let mut server = RateLimitServiceServer::from_arc(Arc::clone(&recorder));
    let _ = server.call(HttpRequest::from_parts(head, body)).await;
    let streamed = recorder.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    (fast, streamed)
}

/// Charges, and refunds with the index of their descriptors.
pub type ChargesAndRefunds<'a> = (Vec<Request<'a>>, Vec<(usize, Request<'a>)>);

/// The requests in a message.
pub fn read_requests(message: &RateLimitRequest, is_quota: bool) -> Result<ChargesAndRefunds<'_>, String> {
    let read = request::read(message, is_quota).map_err(|error| error.to_string())?;
    Ok((read.checks, read.refunds))
}

/// Keeps the message that it was called with.
#[derive(Default)]
struct Recorder(Mutex<Option<RateLimitRequest>>);

#[tonic::async_trait]
impl RateLimitService for Recorder {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.into_inner());
        Ok(Response::new(RateLimitResponse::default()))
    }
}
