//! Exports spans to a collector by OTLP over gRPC.
//!
//! A request puts its span into a bounded queue, or counts it as dropped; a task sends the
//! queue in batches. An unreachable collector costs an occasional warning. The SDK's batch
//! processor would need a thread of its own, and logs errors only with a feature that logs
//! everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tonic::transport::{Certificate, ClientTlsConfig};

use super::span::{SpanBuilder, trace_of};
use super::tracer::TracerError;
use crate::config::TraceOptions;
use crate::telemetry::Observation;
use crate::traceparent::{TraceId, TraceParent};

/// The most spans that wait: some megabytes.
const QUEUE_MAX: usize = 8_192;
/// The most spans in one message.
const BATCH_MAX: usize = 512;
/// How long a span waits for others, at most.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a message may take.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How long what is left may take at the end.
const FINISH_LIMIT: Duration = Duration::from_secs(2);
/// How often it is logged that the collector does not reply.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Sends spans.
#[derive(Debug)]
pub(super) struct ExportQueue {
    spans: SpanBuilder,
    queue: mpsc::Sender<SpanData>,
    dropped: Arc<AtomicU64>,
    finish: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
}

impl ExportQueue {
    pub(super) fn start(options: &TraceOptions) -> Result<Self, TracerError> {
        let refused = |reason: String| TracerError::Endpoint { endpoint: options.redacted_endpoint(), reason };
        let is_tls = options.endpoint.starts_with("https://");
        if !is_tls && !options.endpoint.starts_with("http://") {
            return Err(refused("it is neither http nor https".to_owned()));
        }
        if let Some(protocol) = options.protocol.as_deref().filter(|protocol| *protocol != "grpc") {
            return Err(refused(format!("{protocol:?} is spoken there, and spans are sent over gRPC")));
        }
        let builder = SpanExporter::builder().with_tonic().with_endpoint(&options.endpoint).with_timeout(SEND_LIMIT);
        let builder = match &options.ca {
            _ if !is_tls => builder,
            Some(pem) => builder.with_tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))),
            None => builder.with_tls_config(ClientTlsConfig::new().with_native_roots()),
        };
        let mut exporter = builder.build().map_err(|error| refused(error.to_string()))?;
        exporter.set_resource(&resource());
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (finish, finishing) = oneshot::channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let task = ExportTask { exporter, spans, dropped: Arc::clone(&dropped), warned: None };
        tokio::spawn(task.run(finishing));
        Ok(Self { spans: SpanBuilder::new(options.share), queue, dropped, finish: Mutex::new(Some(finish)) })
    }

    /// Requests were decided: their trace, if they are recorded.
    pub(super) fn record(&self, seen: &Observation<'_, '_>, parent: Option<TraceParent>) -> Option<TraceId> {
        let representative = seen.representative?.outcome;
        if !self.spans.is_sampled(parent) {
            return None;
        }
        let span = self.spans.span(seen, representative, parent);
        let trace = trace_of(&span);
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Some(trace)
    }

    pub(super) async fn finish(&self) {
        let Some(finish) = self.finish.lock().await.take() else { return };
        let (done, is_done) = oneshot::channel();
        if finish.send(done).is_ok() && tokio::time::timeout(FINISH_LIMIT, is_done).await.is_err() {
            tracing::warn!("the collector did not accept the last spans in time");
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct ExportTask {
    exporter: SpanExporter,
    spans: mpsc::Receiver<SpanData>,
    dropped: Arc<AtomicU64>,
    /// When that was last logged.
    warned: Option<Instant>,
}

impl ExportTask {
    async fn run(mut self, mut finishing: oneshot::Receiver<oneshot::Sender<()>>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let finished = loop {
            tokio::select! {
                finished = &mut finishing => break finished,
                () = self.fill_batch(&mut batch) => self.send(std::mem::take(&mut batch)).await,
            }
        };
        // What was gathered at the end is kept, and the rest is added.
        loop {
            while batch.len() < BATCH_MAX
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                break;
            }
            self.send(std::mem::take(&mut batch)).await;
        }
        // The send fails if the waiting side was dropped or timed out.
        let _ = finished.map(|done| done.send(()));
    }

    /// Gathers a full batch, or what has arrived some time after the first span.
    async fn fill_batch(&mut self, batch: &mut Vec<SpanData>) {
        if self.spans.recv_many(batch, BATCH_MAX).await == 0 {
            // All senders are gone, so the end follows.
            return std::future::pending().await;
        }
        let more = async {
            while batch.len() < BATCH_MAX && self.spans.recv_many(batch, BATCH_MAX - batch.len()).await > 0 {}
        };
        // A timeout only means that the batch is not full.
        let _ = tokio::time::timeout(PAUSE, more).await;
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len();
        let reason = match tokio::time::timeout(SEND_LIMIT, self.exporter.export(batch)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        let dropped = self.dropped.fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(reason, dropped, "dropping spans: the collector at --otlp-endpoint does not accept them");
        }
    }
}

/// The resource attributes, from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
fn resource() -> Resource {
    let named = Resource::builder().build();
    let is_named = named.get(&"service.name".into()).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if is_named { builder.build() } else { builder.with_service_name("checkdam").build() }
}

#[cfg(test)]
mod tests {
    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};

    use super::*;

    fn span() -> SpanData {
        SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Server,
            name: "".into(),
            start_time: std::time::UNIX_EPOCH,
            end_time: std::time::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    /// Else more spans in that time than wait at most would be lost.
    #[tokio::test]
    async fn a_full_message_waits_for_nothing() {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint("http://127.0.0.1:9").build().unwrap();
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let mut sending = ExportTask { exporter, spans, dropped: Arc::default(), warned: None };
        for _ in 0..=BATCH_MAX {
            queue.try_send(span()).unwrap();
        }
        let mut batch = Vec::new();
        let gathered = tokio::time::timeout(Duration::ZERO, sending.fill_batch(&mut batch)).await;
        assert_eq!((gathered.is_ok(), batch.len()), (true, BATCH_MAX));
        // The last one waits for others, and is not lost at shutdown.
        batch.clear();
        let gathered = tokio::time::timeout(Duration::ZERO, sending.fill_batch(&mut batch)).await;
        assert_eq!((gathered.is_err(), batch.len()), (true, 1));
    }

    #[tokio::test]
    async fn a_sender_that_is_dropped_ends_its_task() {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint("http://127.0.0.1:9").build().unwrap();
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (finish, finishing) = oneshot::channel();
        let task = tokio::spawn(ExportTask { exporter, spans, dropped: Arc::default(), warned: None }.run(finishing));
        drop((queue, finish));
        assert!(task.await.is_ok());
    }
}
