use std::collections::HashMap;
use std::time::Duration;

use checkdam::{Definitions, Outcome, Request, RuleSet};

use super::*;
use crate::replay::{Replay, Side, preview};

/// Requests of many users, decided by no rule.
struct Traffic {
    recent: Recent,
    replay: Replay,
    at_us: u64,
}

impl Traffic {
    fn new(entries_max: usize) -> Self {
        let replay = Replay::new(RuleSet::default(), 1);
        Self { recent: Recent::new(entries_max), replay, at_us: 1_000_000 }
    }

    /// A second in which each of these users asks once, and then the tick.
    fn second(&mut self, users: impl Iterator<Item = usize>) {
        users.for_each(|user| self.ask(user));
        self.recent.tick();
    }

    fn ask(&mut self, user: usize) {
        self.at_us += 10;
        let request = Request::new().with("user", user.to_string()).unwrap();
        self.decide(&request);
    }

    fn decide(&mut self, request: &Request<'_>) {
        let outcome: Outcome = self.replay.check(self.at_us, request);
        let (requests, outcomes) = (std::slice::from_ref(request), std::slice::from_ref(&outcome));
        self.recent.note(&Seen::new(requests, outcomes, true, Duration::ZERO));
    }

    /// How often each user is in the sample.
    fn users(&self) -> HashMap<String, usize> {
        let sample = self.recent.sample();
        let mut users = HashMap::new();
        for entry in sample.entries() {
            let requests = entry.requests().unwrap();
            *users.entry(requests[0].get("user").unwrap().to_owned()).or_default() += 1;
        }
        users
    }
}

#[test]
fn everything_is_kept_where_it_fits() {
    let mut traffic = Traffic::new(1_000);
    for _ in 0..9 {
        traffic.second(0..100);
    }
    (0..50).for_each(|user| traffic.ask(user));
    let users = traffic.users();
    assert_eq!((users.len(), users["7"], users["77"]), (100, 10, 9), "what is not a second old is there too");
    let sample = traffic.recent.sample();
    assert_eq!((sample.one_in(), sample.seconds), (1, 9));
    let times: Vec<u64> = sample.entries().iter().map(|entry| entry.at_us()).collect();
    assert!(times.is_sorted());
}

#[test]
fn clients_are_left_out_and_those_that_are_kept_are_kept_whole() {
    let mut traffic = Traffic::new(10_000);
    for _ in 0..100 {
        traffic.second(0..1_000);
    }
    let (users, sample) = (traffic.users(), traffic.recent.sample());
    assert!([16, 32].contains(&sample.one_in()), "one in {}", sample.one_in());
    assert!(users.values().all(|count| *count == 100), "{users:?}");
    let expected = 1_000 / sample.one_in() as usize;
    assert!((expected / 2..=expected * 2).contains(&users.len()), "{} users of about {expected}", users.len());

    // Less traffic: all are kept again, in the end.
    for _ in 0..600 {
        traffic.second(0..10);
    }
    let users = traffic.users();
    assert_eq!((users.len(), traffic.recent.sample().one_in()), (10, 1));
    assert!(users.values().all(|count| *count == SECONDS_MAX as usize), "{users:?}");
}

#[test]
fn one_client_alone_is_kept_for_a_shorter_time() {
    let mut traffic = Traffic::new(1_000);
    for _ in 0..20 {
        traffic.second(std::iter::repeat_n(1, 100));
    }
    let (users, sample) = (traffic.users(), traffic.recent.sample());
    assert_eq!((users["1"], sample.one_in(), sample.seconds), (1_000, 1, 10));
    // More than fits in a second.
    traffic.second(std::iter::repeat_n(1, 5_000));
    assert_eq!(traffic.users()["1"], 1_000);
    traffic.second(std::iter::repeat_n(1, 10));
    assert_eq!(traffic.users()["1"], 10, "there is no gap in what is kept");
}

#[test]
fn nothing_is_kept_for_longer_than_it_should_or_if_it_must_not() {
    let mut traffic = Traffic::new(1_000);
    traffic.second(0..10);
    for _ in 1..SECONDS_MAX {
        traffic.second(0..0);
    }
    assert_eq!(traffic.users().len(), 10);
    traffic.second(0..0);
    assert_eq!((traffic.users().len(), traffic.recent.sample().seconds), (0, 0));
    let mut none = Traffic::new(0);
    none.second(0..10);
    assert!(none.users().is_empty());
}

#[test]
fn a_preview_of_a_sample_knows_which_limits_are_shared_by_its_clients() {
    // A thousand users behind four addresses: users are sampled, so of each
    // address some requests are there only.
    let mut traffic = Traffic::new(10_000);
    for second in 1..=60 {
        for user in 0..1_000 {
            traffic.at_us = second * 1_000_000 + user * 1_000;
            let request = Request::new().with("user", user.to_string()).unwrap();
            let request = request.with("ip", format!("203.0.113.{}", user % 4)).unwrap();
            traffic.decide(&request);
        }
        traffic.recent.tick();
    }
    let sample = traffic.recent.sample();
    assert!(sample.one_in() >= 8, "one in {}", sample.one_in());
    let limited = |key: &str, limit: &str| {
        let text = format!("rules:\n  - {{ name: new, key: \"{key}\", limits: [\"{limit}\"] }}\n");
        let definitions = checkdam::rule_file::parse_definitions(&text).unwrap();
        let (before, after) = (Side::new(Definitions::default(), None), Side::new(definitions, Some("new".to_owned())));
        let counts = preview(&sample, before, after).unwrap().rule_after;
        assert!(counts.concerned > 0);
        100 * counts.limited / counts.concerned
    };
    assert_eq!((limited("{user}", "2/s"), limited("{user}:{ip}", "2/s"), limited("{user}", "1/m") / 10), (0, 0, 9));
    // Of 250 a second and address 100 pass; of 1,000 in all, 500.
    assert!((25..=85).contains(&limited("{ip}", "100/s")), "{}", limited("{ip}", "100/s"));
    assert!((10..=80).contains(&limited("global", "500/s")), "{}", limited("global", "500/s"));
}
