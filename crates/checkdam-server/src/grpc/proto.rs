//! The protobuf messages that `build.rs` generates from `proto/`.

#[allow(clippy::all, missing_docs, unreachable_pub, dead_code, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub(crate) use generated::envoy::config::core::v3::HeaderValue;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as LimitUnit;
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
pub(crate) use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The path of the method that Envoy calls.
pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The messages as a description of themselves, for reflection.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
