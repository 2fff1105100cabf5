//! The proxy: limits requests before it forwards them.
//!
//! `handler` is a request's way from end to end; `routes` says where it goes,
//! `upstreams` who is there, `forwarder` sends it by `http1` or `http2`. Bodies stream both ways
//! through `request_body` and `response_body` and are never held. A request is charged
//! exactly once, before anything of it is forwarded: neither another attempt
//! nor an upstream that is down charges it again or gives it back.
//!
//! It forwards to the upstreams of its settings and to nobody else, whatever a
//! request names.

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
