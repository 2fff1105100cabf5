//! A responder that attaches the caller's trace to its requests.

use std::sync::Arc;

use axum::http::Request;
use checkdam_net::{RequestArrival, Responder, ResponderResponse};
use hyper::body::Incoming;

use super::current_span::with_parent;
use super::tracer::Tracer;
use crate::traceparent::TraceParent;

/// A responder that attaches the caller's trace to its requests.
#[derive(Clone)]
pub(crate) struct Traced<R> {
    tracer: Arc<Tracer>,
    responder: R,
}

impl<R> Traced<R> {
    /// `responder` answers; parents are parsed if the tracer needs them.
    pub(crate) const fn new(tracer: Arc<Tracer>, responder: R) -> Self {
        Self { tracer, responder }
    }
}

impl<R: Responder> Responder for Traced<R> {
    const IS_STRICT: bool = R::IS_STRICT;

    type Own = R::Own;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<Self::Own> {
        let parent = if self.tracer.reads_traceparent() { TraceParent::from_headers(request.headers()) } else { None };
        match parent {
            None => self.responder.respond(request, arrival).await,
            // Boxed, so that requests without a trace do not carry the room for it.
            Some(parent) => with_parent(parent, Box::pin(self.responder.respond(request, arrival))).await,
        }
    }
}
