//! Reverse proxy: limits requests before it forwards them.
//!
//! `handler` handles a request from end to end; `routes` selects the upstreams,
//! `upstreams` tracks their health, `forwarder` sends over `http1` or `http2`.
//! Bodies are streamed both ways through `request_body` and `response_body`, never
//! buffered whole. A request is charged exactly once, before anything of it is
//! forwarded: neither a retry nor an upstream that is down charges it again or
//! refunds it.
//!
//! It forwards only to configured upstreams, whatever host a request names.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "a part of the checkdam program, no public interface"
)]

mod connector;
mod error_responses;
mod forwarded_headers;
mod forwarder;
mod handler;
mod http1;
mod http2;
mod request_body;
mod response_body;
mod routes;
mod tunnel;
mod upload_limit;
mod upstreams;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::http1::fuzzing;

pub use self::handler::{Proxy, ProxyResponder, ProxyServer};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic with a lock held leaves nothing half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
