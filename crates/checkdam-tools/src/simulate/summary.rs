//! The results of a simulation, for printing, charts and JSON.

use checkdam::{Rule, RuleSet};
use checkdam_service::http::mode_name;
use serde::Serialize;

use super::suggested_limits::Suggestion;
use super::tally::{CountValue, DecisionTally, MinuteCount, RuleTally, SubjectCounts, Timeline};

#[derive(Debug, Serialize)]
pub struct Summary {
    pub logs: Vec<String>,
    pub lines: u64,
    pub requests: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// The first of them.
    pub faults: Vec<FaultAt>,
    /// Requests that were too late to be ordered.
    pub late: u64,
    /// Unix seconds of the first request and of the last.
    pub first: u64,
    pub last: u64,
    /// By how much the log was moved: our time begins in 2026.
    pub moved_s: u64,
    pub busiest_minute: Option<MinuteCount>,
    /// Whether it was interrupted before the log ended.
    pub is_interrupted: bool,
    /// Attributes that rules name and that no line had.
    pub absent_attributes: Vec<String>,
    /// One a rule file.
    pub results: Vec<CandidateSummary>,
    pub comparison: Option<Comparison>,
    pub suggestions: Vec<Suggestion>,
}

#[derive(Debug, Serialize)]
pub struct FaultAt {
    pub log: String,
    pub line: u64,
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub struct CandidateSummary {
    pub rules_file: String,
    pub allowed: u64,
    pub limited: u64,
    pub banned: u64,
    pub worst_minute: Option<MinuteCount>,
    /// Buckets for which there was no room: their owners may have been limited early.
    pub evicted: u64,
    /// Those that limit most first.
    pub rules: Vec<RuleSummary>,
    pub subjects: Vec<SubjectSummary>,
    /// A subject that is not listed was denied at most this much more often than the last
    /// listed.
    pub subjects_missing_at_most: u64,
    pub timeline: Timeline,
}

#[derive(Debug, Serialize)]
pub struct RuleSummary {
    pub rule: String,
    pub mode: &'static str,
    pub concerned: u64,
    pub limited: u64,
    pub first_limited: Option<u64>,
    pub last_limited: Option<u64>,
    pub worst_minute: Option<MinuteCount>,
    /// How often it limited, at the points of the timeline; empty if never.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub struct SubjectSummary {
    pub rule: String,
    pub subject: String,
    pub limited: u64,
    pub first: u64,
    pub last: u64,
}

/// Where two rule files differ.
#[derive(Debug, Serialize)]
pub struct Comparison {
    #[serde(flatten)]
    pub counts: DifferenceCounts,
    pub subjects: Vec<DifferingSubject>,
    pub subjects_missing_at_most: u64,
}

#[derive(Debug, Serialize)]
pub struct DifferingSubject {
    pub subject: String,
    #[serde(flatten)]
    pub counts: DifferenceCounts,
}

/// Requests that the two rule files decide differently.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DifferenceCounts {
    /// Allowed by the first only.
    pub newly_limited: u64,
    /// Allowed by the second only.
    pub newly_allowed: u64,
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
        Self {
            rules_file: rules_file.to_owned(),
            allowed: tally.allowed,
            limited: tally.limited,
            banned: tally.banned,
            worst_minute: tally.worst.minute(),
            evicted,
            rules: listed,
            subjects: subjects.collect(),
            subjects_missing_at_most: tally.subjects.missing_at_most(),
            timeline: tally.timeline.clone(),
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
            worst_minute: counts.worst.minute(),
            over_time: if is_limiting { tally.timeline.of_rule(number) } else { Vec::new() },
        }
    }
}

impl Comparison {
    pub(super) fn new(counts: DifferenceCounts, subjects: &SubjectCounts<DifferenceCounts>, top: usize) -> Self {
        let subject = |(_, subject, counts): (u32, &str, _)| DifferingSubject { subject: subject.to_owned(), counts };
        Self {
            counts,
            subjects: subjects.top(top).into_iter().map(subject).collect(),
            subjects_missing_at_most: subjects.missing_at_most(),
        }
    }
}
