//! Reverse proxy: limits requests before it forwards them.
//!
//! `handler` handles a request from end to end; `routes` selects the upstreams,
//! `upstreams` knows which are healthy, `forwarder` sends by `http1` or `http2`.
//! Bodies are streamed both ways through `request_body` and `response_body`, never
//! buffered whole. A request is charged exactly once, before anything of it is
//! forwarded: neither a retry nor an upstream that is down charges it again or
//! refunds it.
//!
//! It forwards only to the upstreams of its settings, whatever a request names.

mod charge_by_bytes;
mod connector;
mod error_responses;
mod forwarded_headers;
mod forwarder;
mod handler;
mod health_checks;
mod http1;
mod http2;
mod request_body;
mod response_body;
mod routes;
mod tunnel;
mod upload_limit;
mod upstream_body;
mod upstreams;

pub(crate) use self::handler::{Proxy, ProxyServer};
