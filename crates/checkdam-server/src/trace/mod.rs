//! Whose request a check is part of, and the span that tells it.
//!
//! Callers say in a `traceparent` header (W3C Trace Context) which trace a
//! request belongs to. It is read only if somebody wants to know: latencies with
//! exemplars, or a collector that spans are sent to. Nothing here is waited for,
//! and without either nothing here is done.

mod current_span;
#[cfg(feature = "otlp")]
mod otlp_exporter;
#[cfg(feature = "otlp")]
mod span;
mod traceparent;
mod tracer;

pub(crate) use self::current_span::{parent, with_parent};
pub(crate) use self::traceparent::{TraceId, TraceParent};
pub(crate) use self::tracer::Tracer;
