//! gRPC: Envoy's rate limit service v3 (`envoy.service.ratelimit.v3`), health and
//! reflection.
//!
//! Compatible with the clients of envoyproxy/ratelimit. A denied request is a normal
//! response; a gRPC error means that nothing was decided, and by default Envoy lets
//! such requests pass (`failure_mode_deny`). So input that a client of Envoy controls
//! must never cause an error here.

mod decision_error;
mod dynamic_metadata;
mod fast_path;
mod listener;
mod proto;
mod request;
mod response;
mod service;
mod unary;

pub(crate) use self::decision_error::DecisionError;
pub(crate) use self::listener::GrpcListener;
pub(crate) use self::proto::{
    Code, DescriptorStatus, Entry, LimitUnit, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, SHOULD_RATE_LIMIT,
};
pub(crate) use self::service::EnvoyRateLimits;
