//! Totals of one rule set's decisions: by rule, by subject and over time, in bounded
//! memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use checkdam::{Outcome, Request, RuleSet};
use serde::Serialize;

/// The most points; beyond, two become one.
const POINTS_MAX: usize = 2_048;
/// The maximum number of rules with a timeline: the first that deny.
const TIMELINES_MAX: usize = 64;
/// The most that are counted: some hundred bytes each.
const SUBJECTS_MAX: usize = 400_000;

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

#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// Unix seconds of the first point.
    pub start: u64,
    pub step_s: u64,
    pub allowed: Vec<u64>,
    pub limited: Vec<u64>,
    #[serde(skip)]
    rules: BTreeMap<u32, Vec<u64>>,
}

impl Timeline {
    pub(super) const fn new() -> Self {
        Self { start: 0, step_s: 1, allowed: Vec::new(), limited: Vec::new(), rules: BTreeMap::new() }
    }

    /// A request at that time, which is never before the last one.
    pub(super) fn note(&mut self, unix_s: u64, is_allowed: bool) {
        if self.allowed.is_empty() {
            self.start = unix_s;
        }
        while ((unix_s - self.start) / self.step_s) as usize >= POINTS_MAX {
            self.step_s *= 2;
            for points in [&mut self.allowed, &mut self.limited].into_iter().chain(self.rules.values_mut()) {
                *points = points.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let place = self.place(unix_s);
        let length = self.allowed.len().max(place + 1);
        self.allowed.resize(length, 0);
        self.limited.resize(length, 0);
        if is_allowed {
            self.allowed[place] += 1;
        } else {
            self.limited[place] += 1;
        }
    }

    /// A rule limited the request that was just noted.
    pub(super) fn note_rule(&mut self, unix_s: u64, rule: u32) {
        let place = self.place(unix_s);
        if self.rules.len() >= TIMELINES_MAX && !self.rules.contains_key(&rule) {
            return;
        }
        let points = self.rules.entry(rule).or_default();
        if points.len() <= place {
            points.resize(place + 1, 0);
        }
        points[place] += 1;
    }

    fn place(&self, unix_s: u64) -> usize {
        (unix_s.saturating_sub(self.start) / self.step_s) as usize
    }

    /// How often the rule of that number limited.
    pub(super) fn of_rule(&self, rule: u32) -> Vec<u64> {
        let mut points = self.rules.get(&rule).cloned().unwrap_or_default();
        points.resize(self.allowed.len(), 0);
        points
    }
}

/// The busiest minute, updated as time advances.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Busiest {
    now: MinuteCount,
    most: MinuteCount,
}

/// The requests of a minute.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MinuteCount {
    /// The Unix second at which it begins.
    pub at: u64,
    pub requests: u64,
}

impl Busiest {
    pub(super) fn note(&mut self, unix_s: u64) {
        let at = unix_s / 60 * 60;
        if self.now.at != at {
            self.now = MinuteCount { at, requests: 0 };
        }
        self.now.requests += 1;
        if self.now.requests > self.most.requests {
            self.most = self.now;
        }
    }

    /// None if there was no request.
    pub(super) fn minute(&self) -> Option<MinuteCount> {
        Some(self.most).filter(|minute| minute.requests > 0)
    }
}

/// Counts by subject: exact up to a maximum of subjects, then heavy hitters only.
#[derive(Debug)]
pub(super) struct SubjectCounts<T> {
    counts: HashMap<(u32, Box<str>), T, foldhash::fast::RandomState>,
    /// The maximum count of a subject that is not listed.
    missing_at_most: u64,
}

pub(super) trait CountValue: Default + Copy {
    /// By what those are chosen that stay.
    fn weight(&self) -> u64;
}

impl<T> Default for SubjectCounts<T> {
    fn default() -> Self {
        Self { counts: HashMap::default(), missing_at_most: 0 }
    }
}

impl<T: CountValue> SubjectCounts<T> {
    /// The count of a subject of the rule of that number.
    pub(super) fn entry(&mut self, rule: u32, subject: String) -> &mut T {
        if self.counts.len() >= SUBJECTS_MAX {
            self.drop_lower_half();
        }
        self.counts.entry((rule, subject.into_boxed_str())).or_default()
    }

    fn drop_lower_half(&mut self) {
        let mut weights: Vec<u64> = self.counts.values().map(CountValue::weight).collect();
        let (_, middle, _) = weights.select_nth_unstable(SUBJECTS_MAX / 2);
        let middle = *middle;
        self.counts.retain(|_, count| count.weight() > middle);
        self.missing_at_most += middle;
    }

    /// The maximum count of a subject that is not listed, and the maximum error of those
    /// that are.
    pub(super) const fn missing_at_most(&self) -> u64 {
        self.missing_at_most
    }

    /// Those with most, most first.
    pub(super) fn top(&self, count: usize) -> Vec<(u32, &str, T)> {
        let mut all: Vec<_> = self.counts.iter().map(|((rule, name), count)| (*rule, &**name, *count)).collect();
        all.sort_unstable_by(|one, other| {
            (Reverse(one.2.weight()), one.0, one.1).cmp(&(Reverse(other.2.weight()), other.0, other.1))
        });
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_join_and_nothing_is_lost() {
        let mut timeline = Timeline::new();
        for second in 0..10_000 {
            timeline.note(1_000 + second, second % 10 != 0);
            if second % 10 == 0 {
                timeline.note_rule(1_000 + second, 3);
            }
        }
        let Timeline { start, step_s, allowed, limited, .. } = &timeline;
        assert_eq!((*start, *step_s, allowed.len()), (1_000, 8, 1_250));
        assert_eq!((allowed.iter().sum::<u64>(), limited.iter().sum::<u64>()), (9_000, 1_000));
        assert_eq!(timeline.of_rule(3), *limited);
    }
}
