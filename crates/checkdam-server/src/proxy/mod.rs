//! The proxy: limits requests before it forwards them.
//!
//! `door` is a request's way from end to end; `route` says where it goes,
//! `upstream` who is there, `forwarder` sends it by `http1` or `http2`. Bodies stream both ways
//! through `upload` and `download` and are never held. A request is charged
//! exactly once, before anything of it is forwarded: neither another attempt
//! nor an upstream that is down charges it again or gives it back.
//!
//! It forwards to the upstreams of its settings and to nobody else, whatever a
//! request names.

mod charge;
mod connector;
mod door;
mod download;
mod forwarder;
mod head;
mod health;
mod http1;
mod http2;
mod received;
mod refusal;
mod route;
mod tunnel;
mod upload;
mod uploads;
mod upstream;

pub(crate) use self::door::Proxy;
