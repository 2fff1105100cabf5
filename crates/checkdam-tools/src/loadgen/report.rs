//! The report of a load test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use checkdam::DecidedBy;
use serde_json::{Map, Value, json};

use super::schedule::Schedule;
use super::{LoadPlan, LoadTally, PlannedRequest};

/// The reported percentiles, and their names.
pub const PERCENTILES: [(f64, &str); 5] =
    [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];
/// With so large a share of late starts or of busy time the generator is too slow.
const LATE_SHARE_MAX: f64 = 0.01;
const BUSY_SHARE_MAX: f64 = 0.95;

#[derive(Debug)]
pub struct LoadReport {
    pub plan: LoadPlan,
    pub threads: u64,
    pub tally: LoadTally,
    /// From the start of counting to the last response.
    pub elapsed: Duration,
    /// For how much of the time the generator's threads had something to do.
    pub busy_share: f64,
    pub is_interrupted: bool,
}

impl LoadReport {
    pub(super) fn new(
        plan: LoadPlan,
        threads: u64,
        tally: LoadTally,
        schedule: &Schedule,
        busy: Duration,
        is_stopped: &Arc<AtomicBool>,
    ) -> Self {
        let elapsed = tally.ended.map(|ended| ended.duration_since(schedule.counted_from())).unwrap_or_default();
        let whole = (plan.options.warmup + elapsed).as_secs_f64() * threads as f64;
        let busy_share = if whole > 0.0 { (busy.as_secs_f64() / whole).min(1.0) } else { 0.0 };
        let is_interrupted = is_stopped.load(Ordering::Relaxed);
        Self { plan, threads, tally, elapsed, busy_share, is_interrupted }
    }

    pub fn responses_per_s(&self) -> f64 {
        self.tally.responses() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Whether every request was sent and decided.
    pub fn is_clean(&self) -> bool {
        self.tally.errors() == 0 && self.tally.unsent == 0
    }

    /// Caveats of the figures.
    pub fn warnings(&self) -> Vec<String> {
        let LoadTally { late, queued, unsent, .. } = self.tally;
        let requests = self.tally.requests().max(1);
        let share = |part: u64| part as f64 / requests as f64;
        let mut remarks = Vec::new();
        match self.plan.options.rate_per_s {
            None => remarks.push(
                "this was a closed loop: no requests are sent while the server stalls, so these latencies hide waiting; \
                 use --rate to measure what users would see"
                    .to_owned(),
            ),
            Some(rate_per_s) if unsent > 0 => remarks.push(format!(
                "{unsent} requests were due and never sent: the server did {:.0}/s of {rate_per_s}/s. They count with \
                 the time they had waited, so true latencies are longer",
                self.responses_per_s()
            )),
            Some(_) if share(queued) > LATE_SHARE_MAX => remarks.push(format!(
                "{:.1}% of the requests waited for a free connection: that is in the latencies; more --connections \
                 tell whether it must be",
                share(queued) * 100.0
            )),
            Some(_) => {}
        }
        if share(late) > LATE_SHARE_MAX {
            remarks.push(format!(
                "{:.1}% of the requests began more than 1 ms late because the generator was slow: the latencies are \
                 partly its own. Use a lower --rate, more --threads, or another machine",
                share(late) * 100.0
            ));
        }
        if self.busy_share > BUSY_SHARE_MAX {
            remarks.push(format!(
                "the generator was busy for {:.0}% of the time: the server may do more. Use more --threads, or \
                 another machine",
                self.busy_share * 100.0
            ));
        }
        if let Some(other) = &self.tally.other {
            remarks.push(format!("the first of the other errors: {other}"));
        }
        if self.is_interrupted {
            remarks.push("interrupted: this is what was measured until then".to_owned());
        }
        remarks
    }

    pub fn json(&self) -> Value {
        let Self { plan, tally, .. } = self;
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let mut latency: Map<String, Value> = PERCENTILES
            .iter()
            .map(|(percent, name)| ((*name).to_owned(), us(tally.percentile(*percent)).into()))
            .collect();
        latency.insert("max".to_owned(), us(tally.percentile(100.0)).into());
        latency.insert("mean".to_owned(), (tally.latencies.mean() / 1e3).into());
        let statuses: Map<String, Value> =
            tally.statuses.iter().map(|(status, count)| (status.to_string(), (*count).into())).collect();
        json!({
            "target": plan.target.url,
            "address": plan.endpoint.address().to_string(),
            "listener": match plan.asked { PlannedRequest::Http(_) => "http", PlannedRequest::Grpc(_) => "grpc" },
            "loop": if plan.options.rate_per_s.is_some() { "open" } else { "closed" },
            "rate_per_s": plan.options.rate_per_s,
            "connections": plan.options.connections,
            "keys": plan.options.keys,
            "spread": plan.options.spread.name(),
            "seed": plan.options.seed,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "interrupted": self.is_interrupted,
            "requests": tally.requests(),
            "answers_per_s": self.responses_per_s(),
            "allowed": tally.allowed,
            "limited": tally.limited,
            "errors": {
                "refused": tally.refused, "reset": tally.reset, "timeout": tally.timeouts,
                "status": tally.undecided, "other": tally.others,
            },
            "statuses": statuses,
            "decided_by": self.decided_by().collect::<Map<_, _>>(),
            "unsent": tally.unsent,
            "warmup_requests": tally.warmup,
            "sent_bytes": tally.sent_bytes,
            "received_bytes": tally.received_bytes,
            "latency_us": latency,
            "generator": {
                "threads": self.threads, "busy_share": self.busy_share,
                "late_starts": tally.late, "waited_for_connection": tally.queued,
            },
            "remarks": self.warnings(),
        })
    }

    fn decided_by(&self) -> impl Iterator<Item = (String, Value)> {
        let counts = DecidedBy::ALL.into_iter().zip(self.tally.decided_by);
        counts.filter(|(_, count)| *count > 0).map(|(by, count)| (by.name().to_owned(), count.into()))
    }
}
