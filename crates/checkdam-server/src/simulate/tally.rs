//! Totals of one rule set's decisions.

use checkdam::{Outcome, Request, RuleSet};

use super::subject_counts::{CountValue, SubjectCounts};
use super::timeline::{Busiest, Timeline};

/// What one rule set decided.
#[derive(Debug)]
pub(super) struct DecisionTally {
    pub(super) allowed: u64,
    pub(super) limited: u64,
    pub(super) banned: u64,
    /// By the rules' numbers.
    pub(super) rules: Vec<RuleTally>,
    pub(super) subjects: SubjectCounts<DenialCount>,
    pub(super) timeline: Timeline,
    /// The minute in which most was limited.
    pub(super) worst: Busiest,
}

/// What one rule decided.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RuleTally {
    pub(super) concerned: u64,
    /// Not let pass or, in shadow, not let pass if it were enforced.
    pub(super) limited: DenialCount,
    pub(super) worst: Busiest,
}

/// The denials of a subject, and their times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DenialCount {
    pub(super) count: u64,
    pub(super) first_s: u64,
    pub(super) last_s: u64,
}

impl CountValue for DenialCount {
    fn weight(&self) -> u64 {
        self.count
    }
}

impl DenialCount {
    const fn note(&mut self, unix_s: u64) {
        if self.count == 0 {
            self.first_s = unix_s;
        }
        self.last_s = unix_s;
        self.count += 1;
    }
}

impl DecisionTally {
    pub(super) fn new(rules: &RuleSet) -> Self {
        Self {
            allowed: 0,
            limited: 0,
            banned: 0,
            rules: vec![RuleTally::default(); rules.numbered().len()],
            subjects: SubjectCounts::default(),
            timeline: Timeline::new(),
            worst: Busiest::default(),
        }
    }

    /// Requests that were decided together, mostly one.
    pub(super) fn note(&mut self, unix_s: u64, is_allowed: bool, requests: &[Request<'_>], outcomes: &[Outcome]) {
        self.timeline.note(unix_s, is_allowed);
        if is_allowed {
            self.allowed += 1;
        } else {
            self.limited += 1;
            self.worst.note(unix_s);
            self.banned += u64::from(outcomes.iter().any(|outcome| outcome.ban().is_some()));
        }
        for (request, outcome) in requests.iter().zip(outcomes) {
            self.note_rules(unix_s, is_allowed, request, outcome);
        }
    }

    fn note_rules(&mut self, unix_s: u64, is_allowed: bool, request: &Request<'_>, outcome: &Outcome) {
        for mut tiers in outcome.by_rule() {
            let is_denied = tiers.clone().any(|tier| !tier.decision.is_allowed());
            let Some(tier) = tiers.next() else { continue };
            let Some(rule) = self.rules.get_mut(tier.number) else { continue };
            rule.concerned += 1;
            // A request that passes with others was not denied, whatever one of them decides.
            if is_denied && !(is_allowed && tier.is_enforced()) {
                rule.limited.note(unix_s);
                rule.worst.note(unix_s);
                let number = tier.number as u32;
                self.subjects.entry(number, tier.rule.key.render(request)).note(unix_s);
                self.timeline.note_rule(unix_s, number);
            }
        }
    }
}
