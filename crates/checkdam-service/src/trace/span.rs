//! The span of a check.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use checkdam::{Outcome, Verdict};
use foldhash::quality::RandomState;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::SpanData;
use std::hash::BuildHasher;

use crate::telemetry::{Observation, decision_name};
use crate::traceparent::TraceParent;

const NAME: &str = "ratelimit.check";

/// Makes spans of checks, of those that are to be recorded.
#[derive(Debug)]
pub(super) struct SpanBuilder {
    /// The share of spans without a caller's decision, out of 2^64.
    share: u64,
    numbers: AtomicU64,
    random: RandomState,
    scope: InstrumentationScope,
}

impl SpanBuilder {
    pub(super) fn new(share: f64) -> Self {
        let scope = InstrumentationScope::builder("checkdam").with_version(env!("CARGO_PKG_VERSION")).build();
        // 1 becomes the largest number: no number is above it.
        let share = (share * u64::MAX as f64) as u64;
        Self { share, numbers: AtomicU64::new(0), random: RandomState::default(), scope }
    }

    /// Whether a check is recorded: as its caller does, or else by chance.
    pub(super) fn is_sampled(&self, parent: Option<TraceParent>) -> bool {
        match parent {
            Some(parent) => parent.is_sampled,
            None => self.share > 0 && self.number() <= self.share,
        }
    }

    /// The span of requests that were decided just now.
    pub(super) fn span(
        &self,
        seen: &Observation<'_, '_>,
        representative: &Outcome,
        parent: Option<TraceParent>,
    ) -> SpanData {
        let trace = parent.map_or_else(|| self.trace(), |parent| parent.trace.0);
        let end = UNIX_EPOCH + Duration::from_micros(checkdam::time::unix_us());
        let span = SpanId::from_bytes(self.nonzero().to_be_bytes());
        let flags = TraceFlags::SAMPLED;
        SpanData {
            span_context: SpanContext::new(trace.into(), span, flags, false, TraceState::default()),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span.to_be_bytes())),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            name: NAME.into(),
            start_time: end.checked_sub(seen.latency).unwrap_or(end),
            end_time: end,
            attributes: attributes(seen, representative),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            // A denial is a response, not an error.
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn trace(&self) -> u128 {
        u128::from(self.nonzero()) << 64 | u128::from(self.number())
    }

    fn nonzero(&self) -> u64 {
        self.number().max(1)
    }

    /// As good as a random one: each number is hashed with keys of this process.
    fn number(&self) -> u64 {
        self.random.hash_one(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

fn attributes(seen: &Observation<'_, '_>, representative: &Outcome) -> Vec<KeyValue> {
    let verdict = if seen.is_allowed { Verdict::Allowed } else { representative.verdict() };
    let rule = representative.governing().map(|tier| tier.rule.name.clone()).unwrap_or_default();
    vec![
        KeyValue::new("checkdam.rule", rule),
        KeyValue::new("checkdam.decision", decision_name(verdict)),
        KeyValue::new("checkdam.store", representative.decided_by().name()),
        KeyValue::new("checkdam.latency_us", seen.latency.as_micros() as i64),
    ]
}

/// The trace of a span, as the rest of the program knows it.
pub(super) fn trace_of(span: &SpanData) -> crate::traceparent::TraceId {
    let trace: TraceId = span.span_context.trace_id();
    crate::traceparent::TraceId(u128::from_be_bytes(trace.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_kept() {
        let recorded = |share: f64| {
            let maker = SpanBuilder::new(share);
            (0..10_000).filter(|_| maker.is_sampled(None)).count()
        };
        assert_eq!((recorded(0.0), recorded(1.0)), (0, 10_000));
        let some = recorded(0.1);
        assert!((800..1_200).contains(&some), "{some} of 10,000 at 0.1");
    }

    #[test]
    fn the_caller_decides_first() {
        let parent = |is_sampled| TraceParent { trace: crate::traceparent::TraceId(1), span: 1, is_sampled };
        assert!(SpanBuilder::new(0.0).is_sampled(Some(parent(true))));
        assert!(!SpanBuilder::new(1.0).is_sampled(Some(parent(false))));
    }
}
