//! Decides which decisions belong to a trace, and which spans are exported.

use crate::config::TraceOptions;
use crate::telemetry::Observation;
use crate::traceparent::TraceId;

/// Finds the trace of a decision, if exemplars or spans are enabled.
#[derive(Debug, Default)]
pub struct Tracer {
    wants_exemplars: bool,
    #[cfg(feature = "otlp")]
    sender: Option<super::otlp_exporter::ExportQueue>,
}

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracerError {
    #[cfg(not(feature = "otlp"))]
    #[error(
        "otlp_endpoint is {endpoint:?}, and this build sends no spans: build it with \
         `cargo build --release --features otlp`, or leave --otlp-endpoint out"
    )]
    NotBuilt { endpoint: String },
    #[cfg(feature = "otlp")]
    #[error("otlp_endpoint is {endpoint:?}: {reason}; use for example http://127.0.0.1:4317")]
    Endpoint { endpoint: String, reason: String },
}

impl Tracer {
    /// A tracer as the settings say. It connects when it first has something to
    /// send; whether a collector is there decides nothing.
    #[cfg(feature = "otlp")]
    pub fn new(wants_exemplars: bool, options: Option<&TraceOptions>) -> Result<Self, TracerError> {
        let sender = match options.map(super::otlp_exporter::ExportQueue::start).transpose() {
            // What was said to every program here may not be for this one.
            Err(error) if options.is_some_and(|options| options.is_general) => {
                tracing::warn!(%error, "no spans are sent: OTEL_EXPORTER_OTLP_ENDPOINT is not usable");
                None
            }
            started => started?,
        };
        Ok(Self { wants_exemplars, sender })
    }

    /// The same in a build that sends none.
    #[cfg(not(feature = "otlp"))]
    pub fn new(wants_exemplars: bool, options: Option<&TraceOptions>) -> Result<Self, TracerError> {
        match options {
            None => Ok(Self { wants_exemplars }),
            Some(options) if options.is_general => {
                let endpoint = options.redacted_endpoint();
                tracing::warn!(endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT is set, but this build has no OTLP support");
                Ok(Self { wants_exemplars })
            }
            Some(options) => Err(TracerError::NotBuilt { endpoint: options.redacted_endpoint() }),
        }
    }

    /// Whether what callers say of their traces is to be read.
    pub fn reads_traceparent(&self) -> bool {
        #[cfg(feature = "otlp")]
        let sends = self.sender.is_some();
        #[cfg(not(feature = "otlp"))]
        let sends = false;
        self.wants_exemplars || sends
    }

    /// Requests were decided: the trace that they belong to, if it is recorded.
    pub fn record(&self, seen: &Observation<'_, '_>) -> Option<TraceId> {
        if !self.reads_traceparent() {
            return None;
        }
        let parent = super::parent();
        #[cfg(feature = "otlp")]
        if let Some(sender) = &self.sender {
            return sender.record(seen, parent);
        }
        let _ = seen;
        parent.filter(|parent| parent.is_sampled).map(|parent| parent.trace)
    }

    /// Sends what is still to be sent, and no longer than a moment.
    pub async fn finish(&self) {
        #[cfg(feature = "otlp")]
        if let Some(sender) = &self.sender {
            sender.finish().await;
        }
    }

    /// Spans that were not sent, because the collector was away or slow; none if
    /// none are sent at all.
    pub fn dropped(&self) -> Option<u64> {
        #[cfg(feature = "otlp")]
        return self.sender.as_ref().map(super::otlp_exporter::ExportQueue::dropped);
        #[cfg(not(feature = "otlp"))]
        None
    }
}
