//! Distributed tracing: W3C Trace Context in, OTLP spans out.
//!
//! Callers send the trace of a request in a `traceparent` header. It is parsed only
//! if exemplars or a collector are configured; nothing here is waited for, and
//! without either nothing is done.

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
