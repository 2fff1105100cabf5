//! Fast path of the HTTP listener: checks, by far the most frequent, bypass the
//! router, which would box and copy each of them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, Request};
use axum::response::IntoResponse;
use checkdam_net::{RequestArrival, Responder, ResponderResponse, route};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::same_origin::AllowedHosts;
use super::v1;
use crate::app::App;

/// Answers checks itself, and hands everything else to the router.
#[derive(Clone)]
pub(crate) struct FastPath {
    app: Arc<App>,
    hosts: Arc<AllowedHosts>,
    others: Router,
}

impl FastPath {
    pub(super) const fn new(app: Arc<App>, hosts: Arc<AllowedHosts>, others: Router) -> Self {
        Self { app, hosts, others }
    }
}

impl Responder for FastPath {
    const IS_STRICT: bool = false;

    type Own = Full<Bytes>;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<Self::Own> {
        if request.method() != Method::POST || request.uri().path() != v1::CHECK {
            // Boxed, so that checks do not carry the room for it.
            return Box::pin(route(&self.others, request, arrival)).await.map(Either::Right);
        }
        if let Some(problem) = self.hosts.refuse(request.headers(), request.uri()) {
            return problem.into_response().map(Either::Right);
        }
        match v1::check_body(&self.app, request.into_body()).await {
            Ok(response) => response.map(Either::Left),
            Err(problem) => problem.into_response().map(Either::Right),
        }
    }
}
