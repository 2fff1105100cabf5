use std::collections::HashMap;
use std::time::Duration;

use checkdam::{Definitions, Outcome, Request, RuleSet};

use super::*;
use crate::replay::{PreviewRules, Replay, preview};

/// Requests of many users, decided by no rule.
struct Traffic {
    recent: RecentRequests,
    replay: Replay,
    at_us: u64,
    decided: DecidedTotals,
}

impl Traffic {
    fn new(entries_max: usize) -> Self {
        let replay = Replay::new(RuleSet::default(), 1);
        Self { recent: RecentRequests::new(entries_max), replay, at_us: 1_000_000, decided: DecidedTotals::default() }
    }

    /// A second in which each of these users asks once, and then the tick.
    fn second(&mut self, users: impl Iterator<Item = usize>) {
        users.for_each(|user| self.ask(user));
        self.tick();
    }

    fn tick(&mut self) {
        self.recent.tick(self.decided);
    }

    fn sample(&self) -> RequestSample {
        self.recent.sample(self.decided)
    }

    fn ask(&mut self, user: usize) {
        self.at_us += 10;
        let request = Request::new().with("user", user.to_string()).unwrap();
        self.decide(&request);
    }

    fn decide(&mut self, request: &Request<'_>) {
        let outcome: Outcome = self.replay.check(self.at_us, request);
        let (requests, outcomes) = (std::slice::from_ref(request), std::slice::from_ref(&outcome));
        self.decided.allowed += 1;
        self.recent.record(&Observation::new(requests, outcomes, true, Duration::ZERO));
    }

    /// How often each user is in the sample.
    fn users(&self) -> HashMap<String, usize> {
        let sample = self.sample();
        let mut users = HashMap::new();
        for one in sample.entries() {
            let requests = one.entry.requests().unwrap();
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
    let sample = traffic.sample();
    assert_eq!((sample.sampling_ratio(), sample.seconds), (1, 9));
    let times: Vec<u64> = sample.entries().iter().map(|one| one.entry.at_us()).collect();
    assert!(times.is_sorted());
}

#[test]
fn clients_are_left_out_and_those_that_are_kept_are_kept_whole() {
    let mut traffic = Traffic::new(10_000);
    for _ in 0..100 {
        traffic.second(0..1_000);
    }
    let (users, sample) = (traffic.users(), traffic.sample());
    assert!([8, 16].contains(&sample.sampling_ratio()), "one in {}", sample.sampling_ratio());
    assert!(sample.seconds >= SECONDS_MIN, "{} seconds", sample.seconds);
    assert!(users.values().all(|count| *count as u64 == sample.seconds), "{} seconds of {users:?}", sample.seconds);
    let expected = 1_000 / sample.sampling_ratio() as usize;
    assert!((expected / 2..=expected * 2).contains(&users.len()), "{} users of about {expected}", users.len());

    // Less traffic: all are kept again, in the end.
    for _ in 0..600 {
        traffic.second(0..10);
    }
    let users = traffic.users();
    assert_eq!((users.len(), traffic.sample().sampling_ratio()), (10, 1));
    assert!(users.values().all(|count| *count == SECONDS_MAX as usize), "{users:?}");
}

#[test]
fn one_client_alone_is_kept_for_a_shorter_time() {
    let mut traffic = Traffic::new(1_000);
    for _ in 0..20 {
        traffic.second(std::iter::repeat_n(1, 100));
    }
    let (users, sample) = (traffic.users(), traffic.sample());
    assert_eq!((users["1"], sample.sampling_ratio(), sample.seconds), (1_000, 1, 10));
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
    assert_eq!((traffic.users().len(), traffic.sample().seconds), (0, 0));
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
        traffic.tick();
    }
    let sample = traffic.sample();
    assert!(sample.sampling_ratio() >= 4, "one in {}", sample.sampling_ratio());
    let limited = |key: &str, limit: &str| {
        let text = format!("rules:\n  - {{ name: new, key: \"{key}\", limits: [\"{limit}\"] }}\n");
        let definitions = checkdam::rule_file::parse_definitions(&text).unwrap();
        let (before, after) =
            (PreviewRules::new(Definitions::default(), None), PreviewRules::new(definitions, Some("new".to_owned())));
        let counts = preview(&sample, before, after).unwrap().rule_after;
        assert!(counts.concerned > 0);
        100 * counts.limited / counts.concerned
    };
    assert_eq!((limited("{user}", "2/s"), limited("{user}:{ip}", "2/s"), limited("{user}", "1/m") / 10), (0, 0, 9));
    // Of 250 a second and address 100 pass; of 1,000 in all, 500.
    assert!((40..=75).contains(&limited("{ip}", "100/s")), "{}", limited("{ip}", "100/s"));
    assert!((42..=58).contains(&limited("global", "500/s")), "{}", limited("global", "500/s"));
}

/// Two thousand users ask once a second each, and three ask three hundred times.
struct Busy {
    traffic: Traffic,
    second: u64,
}

impl Busy {
    fn new() -> Self {
        Self { traffic: Traffic::new(20_000), second: 0 }
    }

    fn seconds(&mut self, count: u64, busy: std::ops::Range<usize>) {
        for _ in 0..count {
            self.second += 1;
            self.traffic.at_us = self.second * 1_000_000;
            for round in 0..300 {
                busy.clone().for_each(|user| self.traffic.ask(1_000_000 + user));
                (0..2_000).filter(|user| user % 300 == round).for_each(|user| self.traffic.ask(user));
            }
            self.traffic.tick();
        }
    }
}

#[test]
fn clients_that_ask_most_are_kept_whatever_their_hash_is() {
    // Hashes are keyed at random: of many attempts none may be lucky.
    for _ in 0..2 {
        let mut busy = Busy::new();
        busy.seconds(12, 0..3);
        // One that comes when clients are left out already.
        busy.seconds(8, 0..4);
        let (users, sample) = (busy.traffic.users(), busy.traffic.sample());
        assert!(sample.sampling_ratio() >= 4, "one in {}", sample.sampling_ratio());
        let seconds = sample.seconds as usize;
        for user in ["1000000", "1000001", "1000002"] {
            assert_eq!(users.get(user), Some(&(300 * seconds)), "{user} in {seconds} s");
        }
        let late = users.get("1000003").copied().unwrap_or(0);
        assert!((8 * 300 - 100..=8 * 300).contains(&late), "{late} of the one that came late");
    }
}

#[test]
fn a_preview_of_a_busy_node_tells_what_would_be_limited() {
    for _ in 0..2 {
        let mut busy = Busy::new();
        busy.seconds(20, 0..3);
        let sample = busy.traffic.sample();
        assert!(sample.sampling_ratio() >= 4, "one in {}", sample.sampling_ratio());
        let side = |limit: &str| {
            let text = format!("rules:\n  - {{ name: own, key: \"user:{{user}}\", limits: [\"{limit}\"] }}\n");
            PreviewRules::new(checkdam::rule_file::parse_definitions(&text).unwrap(), Some("own".to_owned()))
        };
        let preview_of_edit = preview(&sample, side("1000/s"), side("10/s")).unwrap();
        let seconds = sample.seconds;
        let (asked, limited) = (2_900 * seconds, 3 * 290 * seconds);
        assert!(preview_of_edit.requests.abs_diff(asked) <= 2, "{} of {asked}", preview_of_edit.requests);
        let apart = preview_of_edit.after.limited.abs_diff(limited);
        assert!(apart * 50 < limited, "{} of {limited} limited", preview_of_edit.after.limited);
        assert_eq!((preview_of_edit.before.limited, preview_of_edit.newly_limited), (0, preview_of_edit.after.limited));
        assert_eq!(preview_of_edit.subjects[0].concerned, 300 * seconds, "a busy one is exact");
    }
}
