//! Which requests a listener sheds, and how they are answered.

use axum::body::Body;
use axum::http::Response;
use axum::response::IntoResponse;
use tonic::Status;

use super::auth;
use super::problem::Problem;
use crate::overload::{Overload, SheddingListener};

/// Which requests a listener sheds.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadShedding {
    entrance: SheddingListener,
    /// Whether a path leads to a decision. Health is always answered.
    decides: fn(&str) -> bool,
}

impl LoadShedding {
    /// Those who ask in JSON. Proxies are answered by `auth` in the way that they
    /// understand.
    pub(super) const HTTP: Self = Self {
        entrance: SheddingListener::Http,
        decides: |path| (path.starts_with("/v1/") && !path.starts_with(auth::PATH)) || path == "/json",
    };
    /// Those who ask as Envoy does.
    pub(super) const GRPC: Self =
        Self { entrance: SheddingListener::Grpc, decides: |path| path.starts_with("/envoy.service.ratelimit.") };

    /// The answer to a request that is shed, before anything but its head is read.
    pub(super) fn shed_response(self, overload: &Overload, path: &str, since: u64) -> Option<Response<Body>> {
        let is_shed = (self.decides)(path) && overload.should_shed(self.entrance, since);
        is_shed.then(|| match self.entrance {
            SheddingListener::Grpc => Status::unavailable("there is too much to do: nothing was charged").into_http(),
            SheddingListener::Http | SheddingListener::Proxy => Problem::overloaded().into_response(),
        })
    }
}
