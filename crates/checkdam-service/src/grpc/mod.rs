//! gRPC: Envoy's rate limit service v3 (`envoy.service.ratelimit.v3`), health and
//! reflection.
//!
//! Compatible with the clients of envoyproxy/ratelimit. A denied request is a normal
//! response; a gRPC error means that nothing was decided, and by default Envoy lets
//! such requests pass (`failure_mode_deny`). So input that a client of Envoy controls
//! must never cause an error here.

mod dynamic_metadata;
mod fast_path;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod listener;
mod privileged;
mod request;
mod response;
mod service;
mod unary;

pub use self::listener::GrpcListener;
pub use self::request::DecisionError;
pub use self::service::EnvoyRateLimits;
