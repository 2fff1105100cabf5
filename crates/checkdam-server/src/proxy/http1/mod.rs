//! HTTP/1.1 to upstreams, on connections that are kept.
//!
//! hyper's client would do, but it hands every request to a task of its own and
//! its answer back, and copies heads from map to map: a third of what a request
//! through the proxy cost. Here a request's own task writes and reads.
//!
//! What can be read in two ways is read in none: an answer whose end is
//! ambiguous is an error, and a connection is kept only if its last answer ended
//! where it said and nothing came after it.

mod chunked_decoder;
mod connection;
mod exchange;
mod lazy_timer;
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
