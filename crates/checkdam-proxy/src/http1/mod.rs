//! HTTP/1.1 client for upstreams (RFC 9112), on pooled connections.
//!
//! hyper's client is not used: it hands every request to another task and copies header
//! maps, a third of the cost of a proxied request. Here the request's own task writes and
//! reads.
//!
//! Ambiguous framing is an error, never interpreted: a response whose end is
//! ambiguous is rejected, and a connection is reused only if its last response ended
//! where it declared and nothing followed.

mod chunked_decoder;
mod connection;
mod exchange;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod pool;
mod request_writer;
mod response_body;
mod response_head;
mod stream;

pub(super) use self::connection::Connection;
pub(super) use self::exchange::{Exchange, ExchangeError};
pub(super) use self::pool::{IDLE, Pool, RESTING_MAX};
pub(super) use self::response_body::Body;
pub(super) use self::stream::Stream;
