//! Entry points of the fuzz targets: every parser of untrusted input in this crate.

use axum::http::HeaderMap;

use crate::traceparent::TraceParent;

pub use crate::grpc::fuzzing as grpc;
pub use crate::http::fuzzing as http;
pub use crate::nodes::fuzzing as nodes;

/// The trace as text, the span, and whether it is sampled.
pub fn trace_parent(headers: &HeaderMap) -> Option<(String, u64, bool)> {
    let parent = TraceParent::from_headers(headers)?;
    Some((parent.trace.to_string(), parent.span, parent.is_sampled))
}
