//! Metrics of decisions: counts by rule, and latencies.

use std::sync::Arc;

use super::text_writer::TextWriter;
use crate::telemetry::{DECISIONS, RuleCounts, STORES, Telemetry};

/// The index of allowed requests in [`DECISIONS`].
const PASSED: usize = 0;
/// The decisions that every rule makes, from the first in [`DECISIONS`].
const USUAL: usize = 2;

/// What a rule spoke for, read once: so the families that split it add up.
struct RuleDecisions {
    counts: Arc<RuleCounts>,
    by_decision: [[u64; STORES.len()]; DECISIONS.len()],
}

impl RuleDecisions {
    fn read(counts: Arc<RuleCounts>) -> Self {
        let of = |decision| std::array::from_fn(|store| counts.represented(decision, store));
        Self { by_decision: std::array::from_fn(of), counts }
    }

    fn denied(&self, store: usize) -> u64 {
        let decisions = self.by_decision.iter().enumerate().filter(|(decision, _)| *decision != PASSED);
        decisions.map(|(_, by_store)| by_store[store]).sum()
    }
}

/// The usual decisions of every rule in the `usual` store begin at 0: `rate()` does
/// not see the first count of a series that starts with one. Others that were never
/// counted are omitted: they would be rules times decisions times stores.
pub(super) fn write(text: &mut TextWriter, telemetry: &Telemetry, usual: &str) {
    let all: Vec<RuleDecisions> = telemetry.counters().all().into_iter().map(RuleDecisions::read).collect();
    let help = "Requests decided, each once, by governing rule (empty if none), decision and decider.";
    text.family("rate_limiter_requests_total", help);
    for spoken in &all {
        for (place, (decision, by_store)) in DECISIONS.iter().zip(&spoken.by_decision).enumerate() {
            let is_told = |(store, count): &(&&str, &u64)| **count > 0 || place < USUAL && **store == usual;
            for (store, count) in STORES.iter().zip(by_store).filter(is_told) {
                text.sample(&[("rule", spoken.counts.name()), ("decision", decision), ("store", store)], count);
            }
        }
    }
    text.family("rate_limiter_allowed_total", "Allowed requests, each once, by governing rule.");
    by_store(text, &all, usual, |spoken, store| spoken.by_decision[PASSED][store]);
    text.family("rate_limiter_rejected_total", "Denied requests, each once, by governing rule.");
    by_store(text, &all, usual, RuleDecisions::denied);
    let help = "Decisions of each rule on the requests that it matched; shadow_denied would have been denied.";
    text.family("rate_limiter_rule_decisions_total", help);
    // Requests that no rule applies to belong to no rule.
    for counts in all.iter().map(|spoken| &spoken.counts).filter(|counts| !counts.name().is_empty()) {
        let said = [("allowed", counts.allowed()), ("denied", counts.denied()), ("shadow_denied", counts.shadow())];
        for (decision, count) in said {
            text.sample(&[("rule", counts.name()), ("decision", decision)], count);
        }
    }
    text.family(
        "rate_limiter_recorded_cost_total",
        "Cost recorded after it was used, once for each rule that applied.",
    );
    // Most rules have none of it.
    for counts in all.iter().map(|spoken| &spoken.counts).filter(|counts| counts.recorded() > 0) {
        text.sample(&[("rule", counts.name())], counts.recorded());
    }
    let help = "Recorded cost that was not charged because a debt would have exceeded max_debt, summed over limits.";
    text.family("rate_limiter_record_cut_off_total", help).sample(&[], telemetry.counters().cut_off());
    text.histogram_family("rate_limiter_latency_seconds", "How long decisions took, the store included.");
    for counts in telemetry.latencies().all() {
        text.histogram(&counts);
    }
}

fn by_store(text: &mut TextWriter, all: &[RuleDecisions], usual: &str, count: impl Fn(&RuleDecisions, usize) -> u64) {
    for spoken in all {
        for (place, store) in STORES.iter().enumerate() {
            let count = count(spoken, place);
            if count > 0 || *store == usual {
                text.sample(&[("rule", spoken.counts.name()), ("store", store)], count);
            }
        }
    }
}
