//! Which requests a listener sheds, and the response to them.

use axum::body::Body;
use axum::http::Response;

use super::load_shedding::{LoadShedding, SheddingListener};

/// Which requests a listener sheds, and the response to them.
#[derive(Debug, Clone, Copy)]
pub struct SheddingPolicy {
    /// The label under which they are counted.
    pub listener: SheddingListener,
    /// Whether a path is decided. Health is always answered.
    pub decides: fn(&str) -> bool,
    /// The response to a request that is shed.
    pub response: fn() -> Response<Body>,
}

impl SheddingPolicy {
    /// The response to a request that is shed, before anything but its head is read.
    pub(crate) fn shed_response(self, overload: &LoadShedding, path: &str, since: u64) -> Option<Response<Body>> {
        ((self.decides)(path) && overload.should_shed(self.listener, since)).then(self.response)
    }
}
