//! Telemetry of decisions: counts, latencies, subjects.
//!
//! Nothing here decides, waits or fails. A request is observed once, with its
//! outcome; a tick adds to the history once a second.

mod attribute_usage;
mod counters;
mod denial_log;
mod latencies;
mod recent_requests;
mod top_subjects;
mod traffic_history;

pub use self::attribute_usage::{AttributeUsage, Unseen, unknown_attributes};
pub(crate) use self::counters::{DECISIONS, DecisionCounters, RuleCounts, STORES};
pub(crate) use self::latencies::{BOUNDS, Latencies, LatencyCounts};
pub(crate) use self::recent_requests::IDENTITIES;
use self::recent_requests::RecentRequests;
pub(crate) use self::recent_requests::{DecidedTotals, RequestSample, SampledRequest};
pub(crate) use self::top_subjects::{TopOf, TopSubjects, TopWindow};
pub(crate) use self::traffic_history::{TrafficHistory, TrafficPoint, TrafficSecond, TrafficSeries, TrafficWindow};

use std::sync::Arc;
use std::time::Duration;

use checkdam::normalize::PathNormalization;
use checkdam::{Outcome, Request, RuleSet, Verdict};

use self::counters::decision_index;
use self::denial_log::DenialLog;
use crate::audit::Redaction;
use crate::config::TelemetryOptions;
use crate::rulebook::Snapshot;
use crate::traceparent::TraceId;

/// What is seen of decisions.
#[derive(Debug)]
pub struct Telemetry {
    counters: DecisionCounters,
    latencies: Latencies,
    traffic: TrafficHistory,
    top: TopSubjects,
    recent: RecentRequests,
    denials: DenialLog,
    attributes: AttributeUsage,
    paths: PathNormalization,
}

/// Requests that were decided together, mostly one.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a, 'r> {
    pub requests: &'a [Request<'r>],
    /// One a request.
    pub outcomes: &'a [Outcome],
    /// Whether they pass.
    pub is_allowed: bool,
    /// How long the decision took.
    pub latency: Duration,
    /// The outcome that represents all, if there is one.
    pub representative: Option<Representative<'a>>,
}

/// The outcome that represents all: the first that denies, if they do not pass.
#[derive(Debug, Clone, Copy)]
pub struct Representative<'a> {
    pub outcome: &'a Outcome,
    /// The index of their decision in [`DECISIONS`].
    decision: usize,
    /// The index in [`STORES`] of where it was decided.
    store: usize,
}

impl<'a, 'r> Observation<'a, 'r> {
    pub(crate) fn new(
        requests: &'a [Request<'r>],
        outcomes: &'a [Outcome],
        is_allowed: bool,
        latency: Duration,
    ) -> Self {
        let denying = outcomes.iter().find(|outcome| !is_allowed && !outcome.is_allowed());
        let representative = denying.or_else(|| outcomes.first()).map(|outcome| {
            let verdict = if is_allowed { Verdict::Allowed } else { outcome.verdict() };
            Representative { outcome, decision: decision_index(verdict), store: outcome.decided_by().number() }
        });
        Self { requests, outcomes, is_allowed, latency, representative }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a Request<'r>, &'a Outcome)> {
        self.requests.iter().zip(self.outcomes)
    }
}

impl Telemetry {
    pub fn new(options: &TelemetryOptions, paths: PathNormalization, redaction: Redaction) -> Self {
        Self {
            counters: DecisionCounters::new(options.rules_max),
            latencies: Latencies::new(options.exemplars),
            traffic: TrafficHistory::new(),
            top: TopSubjects::new(),
            recent: RecentRequests::new(options.recent_max),
            denials: DenialLog::new(options.log_denials, redaction),
            attributes: AttributeUsage::new(),
            paths,
        }
    }

    pub fn set_rules(&self, rules: &Arc<RuleSet>, snapshot: &Snapshot) {
        self.counters.set_rules(rules);
        self.attributes.set_rules(rules, snapshot.trees.iter().map(|tree| tree.domain.clone()).collect());
        attribute_usage::warn_of_unmatched_paths(rules, &self.paths);
    }

    pub fn record(&self, seen: Observation<'_, '_>) {
        self.counters.record(&seen);
        self.latencies.record(&seen);
        self.top.record(&seen);
        self.recent.record(&seen);
        self.denials.record(&seen);
        self.attributes.record(seen.requests);
    }

    /// Counts by rule what a request used, which was recorded afterwards.
    pub fn record_usage(&self, request: &Request<'_>, outcome: &Outcome) {
        self.counters.record_usage(request.cost(), outcome);
    }

    /// Counts what was used and not charged because of `max_debt`.
    pub fn add_cut_off(&self, cut_off: u64) {
        if cut_off > 0 {
            self.counters.add_cut_off(cut_off);
        }
    }

    /// Requests that were noted belong to this trace.
    pub fn set_trace(&self, seen: &Observation<'_, '_>, trace: TraceId) {
        self.latencies.set_trace(seen, trace);
    }

    /// To be called once a second.
    pub fn tick(&self) {
        self.traffic.tick(&self.counters);
        self.top.tick();
        self.recent.tick(self.decided_totals());
        self.denials.tick();
        self.attributes.tick();
    }

    pub const fn counters(&self) -> &DecisionCounters {
        &self.counters
    }

    pub const fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    pub const fn traffic(&self) -> &TrafficHistory {
        &self.traffic
    }

    pub const fn top(&self) -> &TopSubjects {
        &self.top
    }

    pub const fn attributes(&self) -> &AttributeUsage {
        &self.attributes
    }

    pub fn sample(&self) -> RequestSample {
        self.recent.sample(self.decided_totals())
    }

    /// All that was decided until now.
    fn decided_totals(&self) -> DecidedTotals {
        let [allowed, limited, ..] = self.counters.totals();
        DecidedTotals { allowed, limited }
    }
}

/// What metrics and spans call a verdict.
#[cfg(feature = "otlp")]
pub(crate) const fn decision_name(verdict: checkdam::Verdict) -> &'static str {
    DECISIONS[decision_index(verdict)]
}
