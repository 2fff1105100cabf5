use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Limiter, Request, RuleSet, rule_file};

use super::*;
use crate::telemetry::Observation;

/// Midnight of some day, and a little: readings are late in a second.
const START_S: u64 = 1_794_700_800;
const LATE_US: u64 = 999_000;

const RULES: &str = r#"{"rules": [
    {"name": "free", "key": "user:{user}", "limits": ["1/h burst 2"]},
    {"name": "tried", "key": "all", "limits": ["1/h burst 1"], "mode": "shadow"}]}"#;

/// Counters, and what is made of them.
struct Scene {
    limiter: Limiter<MemoryStore>,
    counters: DecisionCounters,
    traffic: TrafficHistory,
}

impl Scene {
    fn new() -> Self {
        Self::with_counters(DecisionCounters::new(100))
    }

    fn with_counters(counters: DecisionCounters) -> Self {
        let rules = RuleSet::compile(rule_file::parse_definitions(RULES).unwrap()).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::new(MemoryOptions { max_buckets: 1_000 }));
        counters.set_rules(&limiter.rules());
        Self { limiter, counters, traffic: TrafficHistory::starting_at(START_S * SECOND_US + LATE_US) }
    }

    async fn ask(&self, user: &str, times: usize) {
        for _ in 0..times {
            let request = Request::new().with("user", user.to_owned()).unwrap();
            let outcome = self.limiter.check(&request).await;
            let (requests, outcomes) = (std::slice::from_ref(&request), std::slice::from_ref(&outcome));
            let is_allowed = outcome.is_allowed();
            let latency = std::time::Duration::ZERO;
            self.counters.record(&Observation::new(requests, outcomes, is_allowed, latency));
        }
    }

    /// A reading after this many seconds, some milliseconds early or late.
    fn tick(&self, after_s: u64, late_ms: i64) {
        let at_us = (START_S + after_s) * SECOND_US + LATE_US;
        self.traffic.tick_at(at_us.saturating_add_signed(late_ms * 1_000), &self.counters);
    }
}

fn point(allowed: u32, limited: u32, shadow: u32) -> TrafficPoint {
    TrafficPoint { allowed, limited, shadow, ..TrafficPoint::default() }
}

#[tokio::test]
async fn every_request_is_in_its_second_once_and_in_every_window() {
    let scene = Scene::new();
    scene.ask("1", 3).await;
    scene.tick(1, 2);
    let second = scene.traffic.last_second(100);
    assert_eq!(
        (second.end_s, second.total),
        (START_S + 1, point(2, 1, 2)),
        "two pass, and the first only would pass both"
    );
    let rules: Vec<_> = second.rules.iter().map(|(name, point)| (name.as_str(), *point)).collect();
    assert_eq!(rules, [("free", point(2, 1, 0)), ("tried", point(1, 0, 2))]);
    scene.ask("2", 1).await;
    scene.tick(2, 400);
    scene.tick(3, -400);
    for (window, length, end_s) in [
        (TrafficWindow::Minute, 60, START_S + 3),
        (TrafficWindow::Quarter, 90, START_S + 10),
        (TrafficWindow::Day, 288, START_S + 300),
    ] {
        let history = scene.traffic.history(window, 20);
        assert_eq!((history.end_s, history.total.allowed.len()), (end_s, length), "{window:?}");
        assert_eq!(history.total.allowed.iter().sum::<u32>(), 3, "{window:?}");
        assert_eq!(history.total.limited.iter().sum::<u32>(), 1, "{window:?}");
        assert_eq!(history.rules.len(), 2, "{window:?}");
    }
    let minute = scene.traffic.history(TrafficWindow::Minute, 1);
    assert_eq!(minute.total.allowed[57..], [2, 1, 0]);
    assert_eq!(minute.rules.len(), 1, "the busiest only");
    assert_eq!(minute.rules[0].0, "free");
    assert_eq!(scene.traffic.rates(), TrafficRates { requests_per_s: 4.0 / 3.0, limited_per_s: 1.0 / 3.0 });
}

#[tokio::test]
async fn a_paused_process_leaves_a_gap_and_time_stays_right() {
    let scene = Scene::new();
    scene.ask("1", 1).await;
    scene.tick(1, 0);
    scene.ask("2", 1).await;
    scene.tick(31, 0);
    // Missed readings come all at once.
    scene.tick(31, 1);
    let history = scene.traffic.history(TrafficWindow::Minute, 20);
    assert_eq!((history.end_s, history.total.allowed[29], history.total.allowed[59]), (START_S + 31, 1, 1));
    assert_eq!(history.total.allowed.iter().sum::<u32>(), 2);
    scene.tick(100, 0);
    assert_eq!(scene.traffic.history(TrafficWindow::Minute, 20).total.allowed, [0; 60]);
    let quarter = scene.traffic.history(TrafficWindow::Quarter, 20);
    assert_eq!((quarter.total.allowed[80], quarter.total.allowed[83]), (1, 1), "{quarter:?}");
    scene.tick(100_000, 0);
    assert_eq!(scene.traffic.history(TrafficWindow::Day, 20).total.allowed, [0; 288]);
    assert!(scene.traffic.history(TrafficWindow::Day, 20).rules.is_empty());
}

#[tokio::test]
async fn a_clock_that_is_put_back_loses_nothing_new() {
    let scene = Scene::new();
    scene.tick(100, 0);
    scene.ask("1", 1).await;
    scene.tick(90, 0);
    assert_eq!(scene.traffic.last_second(1).total.allowed, 1, "a little: time waits");
    scene.tick(101, 0);
    scene.traffic.tick_at(1_000 * SECOND_US, &scene.counters);
    scene.ask("2", 1).await;
    scene.traffic.tick_at(1_001 * SECOND_US, &scene.counters);
    let history = scene.traffic.history(TrafficWindow::Minute, 20);
    assert_eq!(history.total.allowed.iter().sum::<u32>(), 1, "much: history begins anew");
}

#[tokio::test]
async fn a_rule_that_nobody_met_is_all_zero() {
    let scene = Scene::new();
    scene.tick(1, 0);
    let history = scene.traffic.rule_history(TrafficWindow::Minute, "free");
    assert_eq!(history.rules, [("free".to_owned(), history.total.clone())]);
    assert!(scene.traffic.history(TrafficWindow::Minute, 20).rules.is_empty());
}

#[tokio::test]
async fn rules_that_go_take_nothing_from_the_total() {
    let scene = Scene::with_counters(DecisionCounters::new(2));
    scene.ask("1", 3).await;
    scene.tick(1, 0);
    // There is no room for what is gone.
    let other = RULES.replace("\"free\"", "\"new\"");
    scene.limiter.set_rules(RuleSet::compile(rule_file::parse_definitions(&other).unwrap()).unwrap());
    scene.counters.set_rules(&scene.limiter.rules());
    scene.tick(2, 0);
    assert_eq!(scene.traffic.last_second(9).total, point(0, 0, 0), "nothing happened");
    scene.ask("2", 1).await;
    scene.tick(3, 0);
    assert_eq!(scene.traffic.last_second(9).total.allowed, 1);
}

#[test]
fn no_second_is_told_twice() {
    let scene = Scene::new();
    let mut seconds = scene.traffic.seconds();
    scene.tick(1, 0);
    assert!(seconds.has_changed().unwrap());
    seconds.mark_unchanged();
    scene.tick(1, 300);
    assert!(!seconds.has_changed().unwrap());
    scene.tick(2, 0);
    assert!(seconds.has_changed().unwrap());
}
