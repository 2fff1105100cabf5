//! Audit log of violations, which are denied requests.
//!
//! On the request path a denial increments a counter and, within its rule's sampling
//! rate, is put into a bounded queue; the request path never waits. A task writes
//! the queue in batches. What is not written is counted: denied = written + sampled
//! out + dropped + waiting.

mod record_sampling;
mod redaction;
mod shadow_effects;
mod writer;

pub use self::redaction::Redaction;
pub(crate) use self::shadow_effects::{Effect, ShadowEffects};

use std::sync::atomic::{AtomicU64, Ordering};

use checkdam::{Outcome, Request, Verdict};
use tokio::sync::mpsc;

use self::record_sampling::RecordSampling;
pub use self::writer::ViolationWriter;
use crate::config::AuditOptions;
use crate::rulebook::Violation;

/// Under this name requests of banned subjects are recorded.
pub(crate) const BAN: &str = "ban";

/// Notes denials.
#[derive(Debug)]
pub struct Audit {
    queue: mpsc::Sender<Violation>,
    sample: RecordSampling,
    counters: AuditCounters,
    node: String,
    redaction: Redaction,
}

#[derive(Debug, Default)]
struct AuditCounters {
    denied: AtomicU64,
    written: AtomicU64,
    sampled_out: AtomicU64,
    dropped: AtomicU64,
}

/// What became of the denials so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, utoipa::ToSchema)]
pub struct AuditCounts {
    /// Requests denied by a limit or a ban since the start.
    pub denied: u64,
    /// Of these, in the database.
    pub written: u64,
    /// Of these, left out because their rule had written enough that second.
    pub sampled_out: u64,
    /// Of these, lost because the queue was full or the database away too long.
    pub dropped: u64,
    /// Of these, waiting to be written.
    pub waiting: u64,
}

impl Audit {
    /// What notes denials, and what is to write them.
    pub fn new(options: &AuditOptions, node: String, redaction: Redaction) -> (Self, mpsc::Receiver<Violation>) {
        let (queue, receiver) = mpsc::channel(options.queue_max);
        let sample = RecordSampling::new(options.per_rule_and_second);
        (Self { queue, sample, counters: AuditCounters::default(), node, redaction }, receiver)
    }

    /// Records the outcome if it is a denial. A denial because the store did not reply is
    /// not caused by the client, and not a violation.
    pub fn record(&self, request: &Request<'_>, outcome: &Outcome) {
        if !matches!(outcome.verdict(), Verdict::Denied | Verdict::CostExceedsBurst | Verdict::Banned) {
            return;
        }
        self.counters.denied.fetch_add(1, Ordering::Relaxed);
        let now_us = unix_us();
        let rule = outcome.violated().map_or(BAN, |tier| tier.rule.name.as_str());
        if !self.sample.count_and_sample(rule, now_us / 1_000_000) {
            self.counters.sampled_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Ok(place) = self.queue.try_reserve() else {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        place.send(self.violation(request, outcome, rule, now_us));
    }

    fn violation(&self, request: &Request<'_>, outcome: &Outcome, rule: &str, now_us: u64) -> Violation {
        let attribute = |name: &str| self.redaction.attribute(request, name);
        let violated = outcome.violated();
        let subject = match (&violated, outcome.ban()) {
            (Some(tier), _) => self.redaction.subject(&tier.rule.key, request),
            (None, Some(ban)) => self.redaction.ban_subject(ban),
            (None, None) => String::new(),
        };
        Violation {
            bucket_key: format!("{rule}:{subject}"),
            user_id: attribute("user"),
            // As Envoy calls it.
            ip_address: ["ip", "remote_address", "masked_remote_address"].into_iter().find_map(attribute),
            endpoint: attribute("endpoint"),
            method: attribute("method"),
            tenant: attribute("tenant"),
            requested_at_ms: (now_us / 1_000) as i64,
            tokens_at_time: violated.as_ref().map_or(0.0, |tier| tier.decision.remaining as f64),
            rule: Some(rule.to_owned()),
            subject: Some(subject),
            cost: i64::try_from(request.cost()).unwrap_or(i64::MAX),
            limit: violated.as_ref().map(|tier| tier.quota.to_string()),
            retry_after_ms: outcome.retry_after().map(|wait| wait.as_micros().div_ceil(1_000) as i64),
            node: Some(self.node.clone()),
            decided_by: Some(outcome.decided_by().name().to_owned()),
            ..Violation::default()
        }
    }

    /// What became of the denials so far.
    pub fn counts(&self) -> AuditCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read last, so that nothing seems to wait that is counted elsewhere.
        let (written, sampled_out) = (count(&self.counters.written), count(&self.counters.sampled_out));
        let (dropped, denied) = (count(&self.counters.dropped), count(&self.counters.denied));
        let waiting = denied.saturating_sub(written + sampled_out + dropped);
        AuditCounts { denied, written, sampled_out, dropped, waiting }
    }

    /// How often each rule denied since the start, most often first.
    pub fn denials_by_rule(&self) -> Vec<(String, u64)> {
        self.sample.denials_by_rule()
    }

    fn count_written(&self, count: usize) {
        self.counters.written.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn count_dropped(&self, count: usize) {
        self.counters.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The time of day: a record is dated by the node that made it.
fn unix_us() -> u64 {
    checkdam::time::unix_us()
}
