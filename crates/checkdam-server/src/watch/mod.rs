//! What is seen of decisions once they are made: how many, how fast, whose.
//!
//! Nothing here decides anything, waits, or fails. A request is seen once, with
//! its outcome; once a second a tick makes history of it.

mod attributes;
mod counters;
mod denials;
mod latencies;
mod recent;
mod top;
mod traffic;

pub(crate) use self::attributes::{Attributes, Unseen, unknown_attributes};
pub(crate) use self::counters::{Counters, DECISIONS, RuleCounts, STORES};
pub(crate) use self::latencies::{BOUNDS, Latencies, LatencyCounts};
use self::recent::Recent;
pub(crate) use self::recent::{IDENTITIES, Live, Sample, Sampled};
pub(crate) use self::top::{Kind, Span, Top};
pub(crate) use self::traffic::{Point, Second, Series, Traffic, Window};

use std::sync::Arc;
use std::time::Duration;

use checkdam::normalize::PathNormalization;
use checkdam::{Outcome, Request, RuleSet, Verdict};

use self::counters::decision_place;
use self::denials::Denials;
use crate::audit::Recorded;
use crate::config::WatchOptions;
use crate::rulebook::Book;
use crate::trace::TraceId;

/// What is seen of decisions.
#[derive(Debug)]
pub(crate) struct Watch {
    counters: Counters,
    latencies: Latencies,
    traffic: Traffic,
    top: Top,
    recent: Recent,
    denials: Denials,
    attributes: Attributes,
    paths: PathNormalization,
}

/// Requests that were decided together, mostly one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a, 'r> {
    pub(crate) requests: &'a [Request<'r>],
    /// One a request.
    pub(crate) outcomes: &'a [Outcome],
    /// Whether they pass.
    pub(crate) is_allowed: bool,
    /// How long the decision took.
    pub(crate) latency: Duration,
    /// What speaks for all, if there is anything.
    pub(crate) speaking: Option<Speaking<'a>>,
}

/// The outcome that speaks for all: the first that denies, if they do not pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speaking<'a> {
    pub(crate) outcome: &'a Outcome,
    /// Where what became of them stands in [`DECISIONS`].
    decision: usize,
    /// Where who decided stands in [`STORES`].
    store: usize,
}

impl<'a, 'r> Seen<'a, 'r> {
    pub(crate) fn new(
        requests: &'a [Request<'r>],
        outcomes: &'a [Outcome],
        is_allowed: bool,
        latency: Duration,
    ) -> Self {
        let denying = outcomes.iter().find(|outcome| !is_allowed && !outcome.is_allowed());
        let speaking = denying.or_else(|| outcomes.first()).map(|outcome| {
            let verdict = if is_allowed { Verdict::Allowed } else { outcome.verdict() };
            Speaking { outcome, decision: decision_place(verdict), store: outcome.decided_by().number() }
        });
        Self { requests, outcomes, is_allowed, latency, speaking }
    }

    /// Each request with its outcome.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'a Request<'r>, &'a Outcome)> {
        self.requests.iter().zip(self.outcomes)
    }
}

impl Watch {
    /// Nothing has been seen yet.
    pub(crate) fn new(options: &WatchOptions, paths: PathNormalization, recorded: Recorded) -> Self {
        Self {
            counters: Counters::new(options.rules_max),
            latencies: Latencies::new(options.exemplars),
            traffic: Traffic::new(),
            top: Top::new(),
            recent: Recent::new(options.recent_max),
            denials: Denials::new(options.log_denials, recorded),
            attributes: Attributes::new(),
            paths,
        }
    }

    /// Other rules are in force.
    pub(crate) fn follow(&self, rules: &Arc<RuleSet>, book: &Book) {
        self.counters.follow(rules);
        self.attributes.follow(rules, book.trees.iter().map(|tree| tree.domain.clone()).collect());
        attributes::warn_of_unmatched_paths(rules, &self.paths);
    }

    /// Requests were decided.
    pub(crate) fn note(&self, seen: Seen<'_, '_>) {
        self.counters.note(&seen);
        self.latencies.note(&seen);
        self.top.note(&seen);
        self.recent.note(&seen);
        self.denials.note(&seen);
        self.attributes.note(seen.requests);
    }

    /// Requests that were noted belong to this trace.
    pub(crate) fn mark(&self, seen: &Seen<'_, '_>, trace: TraceId) {
        self.latencies.mark(seen, trace);
    }

    /// To be called once a second.
    pub(crate) fn tick(&self) {
        self.traffic.tick(&self.counters);
        self.top.tick();
        self.recent.tick(self.live());
        self.denials.tick();
        self.attributes.tick();
    }

    /// How many requests were decided how, by rule.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long decisions took.
    pub(crate) const fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// What passed in the last minutes and hours, by rule.
    pub(crate) const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Who asks and who is limited most.
    pub(crate) const fn top(&self) -> &Top {
        &self.top
    }

    /// Which attributes rules name and requests have.
    pub(crate) const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// What was asked last.
    pub(crate) fn sample(&self) -> Sample {
        self.recent.sample(self.live())
    }

    /// All that was decided until now.
    fn live(&self) -> Live {
        let [allowed, limited, ..] = self.counters.totals();
        Live { allowed, limited }
    }
}

/// What metrics and spans call a verdict.
#[cfg(feature = "otlp")]
pub(crate) const fn decision_name(verdict: checkdam::Verdict) -> &'static str {
    DECISIONS[decision_place(verdict)]
}
