//! Envoy's rate limit service by tonic: the request is decoded, one limit's
//! status is the answer, as checkdam gives it.

use std::net::SocketAddr;

use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::Limitador;
use messages::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use messages::envoy::service::ratelimit::v3::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

#[allow(missing_docs, clippy::all, reason = "generated")]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

/// Decides nothing.
pub(super) struct Echo;

/// Asks limitador.
pub(super) struct Limited {
    limitador: Limitador,
}

impl Limited {
    pub(super) const fn new(limitador: Limitador) -> Self {
        Self { limitador }
    }
}

fn answer(is_allowed: bool) -> Response<RateLimitResponse> {
    let code = if is_allowed { Code::Ok } else { Code::OverLimit };
    let limit = RateLimit { requests_per_unit: 1_000_000_000, unit: 0, name: "envoy".to_owned() };
    let status = DescriptorStatus {
        code: code.into(),
        current_limit: Some(limit),
        limit_remaining: 999_999_999,
        duration_until_reset: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
    };
    Response::new(RateLimitResponse { overall_code: code.into(), statuses: vec![status], ..Default::default() })
}

#[tonic::async_trait]
impl RateLimitService for Echo {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(answer(!request.get_ref().descriptors.is_empty()))
    }
}

#[tonic::async_trait]
impl RateLimitService for Limited {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let descriptors = request.into_inner().descriptors.into_iter();
        let attributes = descriptors.flat_map(|descriptor| descriptor.entries).map(|entry| (entry.key, entry.value));
        Ok(answer(self.limitador.check(attributes.collect()).await))
    }
}

pub(super) async fn serve(address: SocketAddr, service: impl RateLimitService) {
    let server = Server::builder().tcp_nodelay(true).add_service(RateLimitServiceServer::new(service));
    server.serve(address).await.unwrap_or_else(|error| panic!("cannot serve: {error}"));
}
