//! The checkdam service: rules, decisions, telemetry, and the HTTP, gRPC and admin
//! listeners.
//!
//! Dependencies point one way: [`http`] and [`grpc`] call [`app`], and `app` calls the
//! library. `checkdam-net` transports requests and depends on none of these.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "a part of the checkdam program, no public interface"
)]

pub mod access;
pub mod app;
pub mod audit;
pub mod client_identity;
pub mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod grpc;
mod heavy_hitters;
pub mod http;
pub mod logging;
mod metrics;
pub mod nodes;
mod operator_warnings;
mod polled_file;
mod readiness;
pub mod replay;
pub mod rulebook;
pub mod store;
pub mod telemetry;
pub mod trace;
mod traceparent;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose last holder panicked: no state here is left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
