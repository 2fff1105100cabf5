//! Distributed tracing: W3C Trace Context in, OTLP spans out.
//!
//! Callers send the trace of a request in a `traceparent` header. It is parsed only if
//! exemplars or a collector are configured. Tracing never waits, and does nothing if
//! neither is configured.

#[cfg(feature = "otlp")]
mod otlp_exporter;
#[cfg(feature = "otlp")]
mod span;
mod tracer;

use std::sync::Arc;

use axum::http::Request;
use checkdam_net::{RequestArrival, Responder, ResponderResponse};
use hyper::body::Incoming;

pub use self::tracer::Tracer;
use crate::traceparent::TraceParent;

tokio::task_local! {
    /// The caller's span, for everything that handles its request.
    static PARENT: TraceParent;
}

/// The caller's span, if it sent one.
fn parent() -> Option<TraceParent> {
    PARENT.try_with(|parent| *parent).ok()
}

/// A responder that attaches the caller's trace to its requests.
#[derive(Clone)]
pub struct Traced<R> {
    tracer: Arc<Tracer>,
    responder: R,
}

impl<R> Traced<R> {
    /// `responder` answers; parents are parsed if the tracer needs them.
    pub const fn new(tracer: Arc<Tracer>, responder: R) -> Self {
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
            Some(parent) => PARENT.scope(parent, Box::pin(self.responder.respond(request, arrival))).await,
        }
    }
}
