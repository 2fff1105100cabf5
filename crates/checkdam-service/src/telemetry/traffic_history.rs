//! Traffic by rule over the last minute, quarter of an hour and day.
//!
//! Once a second the counters are read, and the increase belongs to the second that
//! has just ended. A second without a reading is 0, and its requests are in the next
//! one; points are never moved in time.

mod rule_history;

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

pub(super) use self::rule_history::Counts;
use self::rule_history::RuleHistory;
pub(crate) use self::rule_history::{TrafficPoint, TrafficSeries, TrafficWindow};
use super::{DecisionCounters, RuleCounts};
use crate::lock;

const SECOND_US: u64 = 1_000_000;
/// The clock may be set back by this much without a reset of the history.
const BACK_MAX_S: u64 = 60;
/// Rates are means over this many seconds.
const RATE_S: u64 = 10;

/// What passed in the last minutes and hours, by rule.
#[derive(Debug)]
pub struct TrafficHistory {
    kept: Mutex<HistoryState>,
    /// The last second that is known whole.
    seconds: watch::Sender<u64>,
}

#[derive(Debug)]
struct HistoryState {
    /// The phase of readings within a second: seconds are counted from there, so that a
    /// reading that is a little late belongs to the right one.
    phase_us: u64,
    /// When the last known second ended.
    end_s: u64,
    start_s: u64,
    total: RuleHistory,
    /// Of those rules that had any traffic.
    rules: HashMap<String, RuleHistory>,
}

/// What passed in a window.
#[derive(Debug, PartialEq, Eq)]
pub struct WindowHistory {
    /// When the last point ends, in Unix seconds; it may still be running.
    pub end_s: u64,
    pub total: TrafficSeries,
    /// Busiest first.
    pub rules: Vec<(String, TrafficSeries)>,
    /// Whether the requested rule ever had traffic.
    pub is_known: bool,
}

/// What passed in one second.
#[derive(Debug, PartialEq, Eq)]
pub struct TrafficSecond {
    /// When it ended, in Unix seconds.
    pub end_s: u64,
    pub total: TrafficPoint,
    /// Those with traffic, busiest first.
    pub rules: Vec<(String, TrafficPoint)>,
}

/// How much passes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrafficRates {
    pub requests_per_s: f64,
    pub limited_per_s: f64,
}

impl TrafficHistory {
    pub(super) fn new() -> Self {
        Self::starting_at(now_us())
    }

    fn starting_at(now_us: u64) -> Self {
        let (phase_us, end_s) = (now_us % SECOND_US, now_us / SECOND_US);
        let kept =
            HistoryState { phase_us, end_s, start_s: end_s, total: RuleHistory::default(), rules: HashMap::new() };
        Self { kept: Mutex::new(kept), seconds: watch::Sender::new(end_s) }
    }

    /// To be called once a second.
    pub(super) fn tick(&self, counters: &DecisionCounters) {
        self.tick_at(now_us(), counters);
    }

    fn tick_at(&self, now_us: u64, counters: &DecisionCounters) {
        let all = counters.charted();
        let mut kept = lock(&self.kept);
        kept.advance(now_us);
        let end_s = kept.end_s;
        all.iter().for_each(|rule| kept.record(rule, end_s));
        kept.total.record(end_s, counters.totals());
        if kept.rules.len() >= all.len() {
            let names: std::collections::HashSet<&str> = all.iter().map(|rule| rule.name()).collect();
            kept.rules.retain(|name, _| names.contains(name.as_str()));
        }
        drop(kept);
        // A reading that is early or repeated makes no second: none is reported twice.
        self.seconds.send_if_modified(|last| std::mem::replace(last, end_s) != end_s);
    }

    /// Tells of every second.
    pub fn seconds(&self) -> watch::Receiver<u64> {
        self.seconds.subscribe()
    }

    /// Traffic in a window: in total, and by the busiest rules, at most `rules_max`.
    pub fn history(&self, window: TrafficWindow, rules_max: usize) -> WindowHistory {
        let kept = lock(&self.kept);
        let busiest = kept.busiest(rules_max, |line| line.sum(window));
        let rules = busiest.into_iter().map(|(name, line)| (name.clone(), line.series(window, kept.end_s))).collect();
        WindowHistory {
            end_s: window.end_s(kept.end_s),
            total: kept.total.series(window, kept.end_s),
            rules,
            is_known: true,
        }
    }

    /// The same for one rule, whether or not it had any traffic.
    pub fn rule_history(&self, window: TrafficWindow, rule: &str) -> WindowHistory {
        let kept = lock(&self.kept);
        let line = kept.rules.get(rule);
        let series = line.unwrap_or(&RuleHistory::default()).series(window, kept.end_s);
        let (end_s, total) = (window.end_s(kept.end_s), kept.total.series(window, kept.end_s));
        WindowHistory { end_s, total, rules: vec![(rule.to_owned(), series)], is_known: line.is_some() }
    }

    /// Traffic in the last second, by the busiest rules, at most `rules_max`.
    pub fn last_second(&self, rules_max: usize) -> TrafficSecond {
        let kept = lock(&self.kept);
        let busiest = kept.busiest(rules_max, |line| line.last(kept.end_s).sum());
        let rules = busiest.into_iter().map(|(name, line)| (name.clone(), line.last(kept.end_s))).collect();
        TrafficSecond { end_s: kept.end_s, total: kept.total.last(kept.end_s), rules }
    }

    /// How much passes, over the last ten seconds.
    pub fn rates(&self) -> TrafficRates {
        let kept = lock(&self.kept);
        let seconds = (kept.end_s - kept.start_s).clamp(1, RATE_S);
        let points = (0..seconds).map(|ago_s| kept.total.last(kept.end_s - ago_s));
        let (requests, limited) = points.fold((0, 0), |(requests, limited), point| {
            let passed = u64::from(point.allowed) + u64::from(point.limited);
            (requests + passed, limited + u64::from(point.limited))
        });
        let mean = |count: u64| count as f64 / seconds as f64;
        TrafficRates { requests_per_s: mean(requests), limited_per_s: mean(limited) }
    }
}

impl HistoryState {
    /// Goes on to the second that ends now, to the nearest.
    fn advance(&mut self, now_us: u64) {
        let now_s = now_us.saturating_sub(self.phase_us).saturating_add(SECOND_US / 2) / SECOND_US;
        if now_s + BACK_MAX_S < self.end_s {
            // Nothing that is kept has happened yet.
            self.total.forget();
            self.rules.values_mut().for_each(RuleHistory::forget);
            (self.start_s, self.end_s) = (now_s, now_s);
        }
        for line in self.rules.values_mut().chain([&mut self.total]) {
            line.clear(self.end_s, now_s);
        }
        self.end_s = self.end_s.max(now_s);
    }

    fn record(&mut self, rule: &RuleCounts, end_s: u64) {
        let counts = [rule.allowed(), rule.denied(), rule.shadow(), 0, rule.unavailable()];
        if let Some(line) = self.rules.get_mut(rule.name()) {
            line.record(end_s, counts);
        } else if counts != Counts::default() {
            let mut line = RuleHistory::default();
            line.record(end_s, counts);
            self.rules.insert(rule.name().to_owned(), line);
        }
    }

    /// Those with the most, if they have anything.
    fn busiest(&self, max: usize, much: impl Fn(&RuleHistory) -> u64) -> Vec<(&String, &RuleHistory)> {
        let mut all: Vec<_> = self.rules.iter().map(|(name, line)| (much(line), name, line)).collect();
        all.retain(|(much, ..)| *much > 0);
        all.sort_unstable_by(|(one, name, _), (other, second, _)| other.cmp(one).then(name.cmp(second)));
        all.truncate(max);
        all.into_iter().map(|(_, name, line)| (name, line)).collect()
    }
}

fn now_us() -> u64 {
    checkdam::time::unix_us()
}

#[cfg(test)]
mod tests;
