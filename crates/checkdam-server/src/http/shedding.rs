//! Who is turned away at a door when there is too much to do, and with which words.

use axum::body::Body;
use axum::http::Response;
use axum::response::IntoResponse;
use tonic::Status;

use super::auth;
use super::problem::Problem;
use crate::overload::{Entrance, Overload};

/// Whom a door turns away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shedding {
    entrance: Entrance,
    /// Whether a path leads to a decision. Whoever asks for health is answered always.
    decides: fn(&str) -> bool,
}

impl Shedding {
    /// Those who ask in JSON. Proxies are answered by `auth` in the way that they
    /// understand.
    pub(super) const HTTP: Self = Self {
        entrance: Entrance::Http,
        decides: |path| (path.starts_with("/v1/") && !path.starts_with(auth::PATH)) || path == "/json",
    };
    /// Those who ask as Envoy does.
    pub(super) const GRPC: Self =
        Self { entrance: Entrance::Grpc, decides: |path| path.starts_with("/envoy.service.ratelimit.") };

    /// The answer to a request that must go, before anything but its head is read.
    pub(super) fn turn_away(self, overload: &Overload, path: &str) -> Option<Response<Body>> {
        let must_go = (self.decides)(path) && overload.turns_away(self.entrance);
        must_go.then(|| match self.entrance {
            Entrance::Grpc => Status::unavailable("there is too much to do: nothing was charged").into_http(),
            Entrance::Http | Entrance::Proxy => Problem::overloaded().into_response(),
        })
    }
}
