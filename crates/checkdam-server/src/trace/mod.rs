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
mod traced;
mod tracer;

use self::current_span::parent;
pub(crate) use self::traced::Traced;
pub(crate) use self::tracer::Tracer;
