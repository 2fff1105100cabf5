//! The HTTP door's responder: checks, of which there are most, are answered
//! without the router, which would box and copy every one of them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, Request};
use axum::response::IntoResponse;
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::decide;
use super::foreign::Hosts;
use super::responder::{Answered, Arrival, Responder, route};
use crate::app::App;

/// Answers checks itself, and hands everything else to the router.
#[derive(Clone)]
pub(crate) struct Checks {
    app: Arc<App>,
    hosts: Arc<Hosts>,
    others: Router,
}

impl Checks {
    pub(super) const fn new(app: Arc<App>, hosts: Arc<Hosts>, others: Router) -> Self {
        Self { app, hosts, others }
    }
}

impl Responder for Checks {
    const IS_STRICT: bool = false;

    type Own = Full<Bytes>;

    async fn answer(&self, request: Request<Incoming>, arrival: Arrival) -> Answered<Self::Own> {
        if request.method() != Method::POST || request.uri().path() != decide::CHECK {
            // Boxed, so that checks do not carry the room for it.
            return Box::pin(route(&self.others, request, arrival)).await.map(Either::Right);
        }
        if let Some(problem) = self.hosts.refuse(request.headers(), request.uri()) {
            return problem.into_response().map(Either::Right);
        }
        match decide::checked(&self.app, request.into_body()).await {
            Ok(response) => response.map(Either::Left),
            Err(problem) => problem.into_response().map(Either::Right),
        }
    }
}
