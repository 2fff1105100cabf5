//! What was decided, by rule, and how long it took.

use std::sync::Arc;

use super::family::{ALLOWED, LATENCY, REJECTED, REQUESTS, RULE_DECISIONS};
use super::text::Text;
use crate::watch::{DECISIONS, RuleCounts, STORES, Watch};

/// Where passed requests stand in [`DECISIONS`].
const PASSED: usize = 0;

/// What a rule spoke for, read once: so the families that split it add up.
struct Spoken {
    counts: Arc<RuleCounts>,
    by_decision: [[u64; STORES.len()]; DECISIONS.len()],
}

impl Spoken {
    fn read(counts: Arc<RuleCounts>) -> Self {
        let of = |decision| std::array::from_fn(|store| counts.spoken(decision, store));
        Self { by_decision: std::array::from_fn(of), counts }
    }

    fn rejected(&self, store: usize) -> u64 {
        let decisions = self.by_decision.iter().enumerate().filter(|(decision, _)| *decision != PASSED);
        decisions.map(|(_, by_store)| by_store[store]).sum()
    }
}

/// Series that were never counted are left out: they would be rules times
/// decisions times stores.
pub(super) fn write(text: &mut Text, watch: &Watch) {
    let all: Vec<Spoken> = watch.counters().all().into_iter().map(Spoken::read).collect();
    text.family(&REQUESTS);
    for spoken in &all {
        for (decision, by_store) in DECISIONS.iter().zip(&spoken.by_decision) {
            for (store, count) in STORES.iter().zip(by_store).filter(|(_, count)| **count > 0) {
                text.sample(&[("rule", spoken.counts.name()), ("decision", decision), ("store", store)], count);
            }
        }
    }
    by_store(text.family(&ALLOWED), &all, |spoken, store| spoken.by_decision[PASSED][store]);
    by_store(text.family(&REJECTED), &all, Spoken::rejected);
    text.family(&RULE_DECISIONS);
    for counts in all.iter().map(|spoken| &spoken.counts) {
        let said = [("allowed", counts.allowed()), ("denied", counts.denied()), ("shadow_denied", counts.shadow())];
        for (decision, count) in said.into_iter().filter(|(_, count)| *count > 0) {
            text.sample(&[("rule", counts.name()), ("decision", decision)], count);
        }
    }
    text.family(&LATENCY);
    for counts in watch.latencies().all() {
        text.histogram(&counts);
    }
}

fn by_store(text: &mut Text, all: &[Spoken], count: impl Fn(&Spoken, usize) -> u64) {
    for spoken in all {
        for (place, store) in STORES.iter().enumerate() {
            let count = count(spoken, place);
            if count > 0 {
                text.sample(&[("rule", spoken.counts.name()), ("store", store)], count);
            }
        }
    }
}
