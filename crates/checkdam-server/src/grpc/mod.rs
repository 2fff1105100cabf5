//! The gRPC door: Envoy's rate limit service v3, health and reflection.
//!
//! Whoever speaks to envoyproxy/ratelimit can speak to this. A request that is
//! over its limit is an answer like any other; a gRPC error means that nothing
//! was decided, and Envoy lets such requests pass unless it is told otherwise.
//! So this door must never answer with an error what a client of Envoy can
//! cause by what it sends.

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
