//! The results of a simulation, for printing, charts and JSON.

use checkdam::{Rule, RuleSet};
use serde::Serialize;

use super::subject_counts::{CountValue, SubjectCounts};
use super::suggested_limits::Suggestion;
use super::tally::{DecisionTally, RuleTally};
use crate::http::mode_name;

/// The result of a simulation.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) logs: Vec<String>,
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    /// Lines that could not be read.
    pub(crate) unreadable: u64,
    /// The first of them.
    pub(crate) faults: Vec<FaultAt>,
    /// Requests that were too late to be ordered.
    pub(crate) late: u64,
    /// Unix seconds of the first request and of the last.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// By how much the log was moved: our time begins in 2026.
    pub(crate) moved_s: u64,
    pub(crate) busiest_minute: Option<MinuteCount>,
    /// Whether it was interrupted before the log ended.
    pub(crate) is_interrupted: bool,
    /// Attributes that rules name and that no line had.
    pub(crate) absent_attributes: Vec<String>,
    /// One a rule file.
    pub(crate) results: Vec<CandidateSummary>,
    pub(crate) comparison: Option<Comparison>,
    pub(crate) suggestions: Vec<Suggestion>,
}

/// A line that could not be read.
#[derive(Debug, Serialize)]
pub(crate) struct FaultAt {
    pub(crate) log: String,
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// A minute and how much happened in it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct MinuteCount {
    pub(crate) at: u64,
    pub(crate) requests: u64,
}

/// What one rule file decided.
#[derive(Debug, Serialize)]
pub(crate) struct CandidateSummary {
    pub(crate) rules_file: String,
    pub(crate) allowed: u64,
    pub(crate) limited: u64,
    pub(crate) banned: u64,
    pub(crate) worst_minute: Option<MinuteCount>,
    /// Buckets for which there was no room: their owners may have been limited early.
    pub(crate) evicted: u64,
    /// Those that limit most first.
    pub(crate) rules: Vec<RuleSummary>,
    pub(crate) subjects: Vec<SubjectSummary>,
    /// A subject that is not listed was denied at most this much more often than the last
    /// listed.
    pub(crate) subjects_missing_at_most: u64,
    pub(crate) timeline: TimelineSummary,
}

/// What one rule decided.
#[derive(Debug, Serialize)]
pub(crate) struct RuleSummary {
    pub(crate) rule: String,
    pub(crate) mode: &'static str,
    pub(crate) concerned: u64,
    pub(crate) limited: u64,
    pub(crate) first_limited: Option<u64>,
    pub(crate) last_limited: Option<u64>,
    pub(crate) worst_minute: Option<MinuteCount>,
    /// How often it limited, at the points of the timeline; empty if never.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) over_time: Vec<u64>,
}

/// The denials of a subject.
#[derive(Debug, Serialize)]
pub(crate) struct SubjectSummary {
    pub(crate) rule: String,
    pub(crate) subject: String,
    pub(crate) limited: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What passed over time.
#[derive(Debug, Serialize)]
pub(crate) struct TimelineSummary {
    pub(crate) start: u64,
    pub(crate) step_s: u64,
    pub(crate) allowed: Vec<u64>,
    pub(crate) limited: Vec<u64>,
}

/// Where two rule files differ.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Comparison {
    /// Requests that only the first lets pass.
    pub(crate) newly_limited: u64,
    /// Requests that only the second lets pass.
    pub(crate) newly_allowed: u64,
    /// The subjects with most differences.
    pub(crate) subjects: Vec<DifferingSubject>,
    pub(crate) subjects_missing_at_most: u64,
}

/// A subject for which the rule files differ.
#[derive(Debug, Serialize)]
pub(crate) struct DifferingSubject {
    pub(crate) subject: String,
    pub(crate) newly_limited: u64,
    pub(crate) newly_allowed: u64,
}

/// How often the fate of a subject's requests differs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DifferenceCounts {
    pub(super) newly_limited: u64,
    pub(super) newly_allowed: u64,
}

impl CountValue for DifferenceCounts {
    fn weight(&self) -> u64 {
        self.newly_limited + self.newly_allowed
    }
}

impl CandidateSummary {
    pub(super) fn new(rules_file: &str, rules: &RuleSet, tally: &DecisionTally, evicted: u64, top: usize) -> Self {
        let names: Vec<&str> = rules.numbered().map(|rule| rule.name.as_str()).collect();
        let name = |number: u32| names.get(number as usize).copied().unwrap_or_default().to_owned();
        let subjects = tally.subjects.top(top).into_iter().map(|(rule, subject, limited)| SubjectSummary {
            rule: name(rule),
            subject: subject.to_owned(),
            limited: limited.count,
            first: limited.first_s,
            last: limited.last_s,
        });
        let listed = (0..).zip(rules.numbered()).zip(&tally.rules);
        let listed = listed.map(|((number, rule), counts)| RuleSummary::new(number, rule, counts, tally));
        let mut listed: Vec<RuleSummary> = listed.collect();
        listed.sort_by_key(|rule| std::cmp::Reverse(rule.limited));
        let ((start, step_s), (allowed, limited)) = (tally.timeline.scale(), tally.timeline.points());
        Self {
            rules_file: rules_file.to_owned(),
            allowed: tally.allowed,
            limited: tally.limited,
            banned: tally.banned,
            worst_minute: tally.worst.minute().map(MinuteCount::new),
            evicted,
            rules: listed,
            subjects: subjects.collect(),
            subjects_missing_at_most: tally.subjects.missing_at_most(),
            timeline: TimelineSummary { start, step_s, allowed: allowed.to_vec(), limited: limited.to_vec() },
        }
    }
}

impl RuleSummary {
    fn new(number: u32, rule: &Rule, counts: &RuleTally, tally: &DecisionTally) -> Self {
        let limited = counts.limited;
        let is_limiting = limited.count > 0;
        Self {
            rule: rule.name.clone(),
            mode: mode_name(rule.mode),
            concerned: counts.concerned,
            limited: limited.count,
            first_limited: is_limiting.then_some(limited.first_s),
            last_limited: is_limiting.then_some(limited.last_s),
            worst_minute: counts.worst.minute().map(MinuteCount::new),
            over_time: if is_limiting { tally.timeline.of_rule(number) } else { Vec::new() },
        }
    }
}

impl MinuteCount {
    pub(super) const fn new((at, requests): (u64, u64)) -> Self {
        Self { at, requests }
    }
}

impl Comparison {
    pub(super) fn new(counts: DifferenceCounts, subjects: &SubjectCounts<DifferenceCounts>, top: usize) -> Self {
        let subject = |(_, subject, fates): (u32, &str, DifferenceCounts)| DifferingSubject {
            subject: subject.to_owned(),
            newly_limited: fates.newly_limited,
            newly_allowed: fates.newly_allowed,
        };
        Self {
            newly_limited: counts.newly_limited,
            newly_allowed: counts.newly_allowed,
            subjects: subjects.top(top).into_iter().map(subject).collect(),
            subjects_missing_at_most: subjects.missing_at_most(),
        }
    }
}
