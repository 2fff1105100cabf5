//! The protobuf messages of Envoy's rate limit service (RLS v3), generated from `proto/`
//! by `build.rs`.

#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, dead_code, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use generated::envoy::config::core::v3::HeaderValue;
pub use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub use generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
pub use generated::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as LimitUnit;
pub use generated::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
pub use generated::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use generated::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
pub use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The path of the method that Envoy calls.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The descriptors of all messages, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
