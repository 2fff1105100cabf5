//! Tests of pacing against real limits in virtual time: the limiter's own rules and
//! headers, callers that always have a call to send, responses with latency.

use std::collections::VecDeque;
use std::sync::Arc;

use checkdam::headers::{self, Dialect};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Limiter, Request, rule_file};
use http::{Response, StatusCode};

use super::*;

const SECOND_US: u64 = 1_000_000;
const START_US: u64 = 1_000 * SECOND_US;

/// A limited server.
struct Server {
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    dialect: Dialect,
}

impl Server {
    fn new(limit: &str, algorithm: &str, dialect: Dialect) -> Self {
        let rules = format!("rules: [{{name: api, key: all, limits: [\"{limit}\"], algorithm: {algorithm}}}]");
        let clock = Arc::new(ManualClock::at(START_US));
        let store = MemoryStore::with_clock(MemoryOptions::default(), Arc::clone(&clock));
        Self { limiter: Limiter::new(rule_file::compile(&rules).unwrap(), store), clock, dialect }
    }

    fn answer(&self, at_us: u64) -> Signal {
        self.clock.set(at_us);
        let outcome = pollster::block_on(self.limiter.check(&Request::new()));
        let mut response = Response::new(());
        if !outcome.is_allowed() {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        let unix_s = (checkdam::time::EPOCH_UNIX_US + at_us) / SECOND_US;
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_s);
        response.headers_mut().insert("date", httpdate::fmt_http_date(date).parse().unwrap());
        headers::write(&outcome, self.dialect, |name, value| {
            response.headers_mut().insert(name, value.parse().unwrap());
        });
        Signal::read(&response)
    }
}

/// A caller that always has another call, and its results.
struct Caller {
    pace: Pace,
    /// Responses under way, by the time at which they arrive.
    answers: VecDeque<(u64, Signal)>,
    passed: u64,
    refused: u64,
}

impl Caller {
    fn new(seed: u64) -> Self {
        let pace = Pace::new(64, 10 * SECOND_US, Backoff::seeded(100_000, 30 * SECOND_US, seed));
        Self { pace, answers: VecDeque::new(), passed: 0, refused: 0 }
    }

    /// Does all that is due now, and returns the next time to poll.
    fn step(&mut self, server: &Server, now_us: u64, latency_us: u64) -> u64 {
        while self.answers.front().is_some_and(|(at_us, _)| *at_us <= now_us) {
            let Some((_, signal)) = self.answers.pop_front() else { break };
            self.pace.answered(now_us, signal);
        }
        let answer_us = self.answers.front().map_or(u64::MAX, |(at_us, _)| *at_us);
        match self.pace.next(now_us) {
            Turn::Now => {
                self.pace.sent(now_us);
                let signal = server.answer(now_us);
                self.passed += u64::from(!signal.is_refused);
                self.refused += u64::from(signal.is_refused);
                self.answers.push_back((now_us + latency_us, signal));
                now_us + 1
            }
            Turn::At(then_us) => then_us.min(answer_us),
            Turn::AfterAnswer => answer_us,
        }
    }
}

/// Callers of one server, for so long. The server decides at once, and its responses
/// have latency.
fn run(server: &Server, callers: u64, seconds: u64, latency_us: u64) -> Vec<Caller> {
    let mut callers: Vec<_> = (1..=callers).map(Caller::new).collect();
    let mut now_us = START_US;
    while now_us < START_US + seconds * SECOND_US {
        let next_us = callers.iter_mut().map(|caller| caller.step(server, now_us, latency_us)).min();
        now_us = next_us.unwrap_or(u64::MAX).max(now_us + 1);
    }
    callers
}

/// The quota, its algorithm, and which share of all that it allows in 30 s a
/// caller gets at least, with answers that take 0.4, 10 and 100 ms.
const CASES: &[(&str, &str, f64, [f64; 3])] = &[
    ("10/s burst 50", "token_bucket", 350.0, [0.98, 0.98, 0.98]),
    ("20/s burst 20", "token_bucket", 620.0, [0.98, 0.98, 0.98]),
    ("17/s burst 20", "token_bucket", 530.0, [0.98, 0.98, 0.98]),
    ("2/s burst 5", "token_bucket", 65.0, [0.95, 0.95, 0.95]),
    ("1/s burst 1", "token_bucket", 31.0, [0.93, 0.93, 0.87]),
    ("100/s burst 10", "token_bucket", 3_010.0, [0.97, 0.97, 0.8]),
    // 64 calls under way, 0.1 s each, are at most 640 a second.
    ("1000/s burst 500", "token_bucket", 30_500.0, [0.98, 0.98, 0.6]),
    ("50/s burst 20", "leaky_bucket", 1_520.0, [0.98, 0.98, 0.97]),
    // Windows end before the announced second does: the rest of it stays unused.
    ("100/10s", "fixed_window", 300.0, [0.9, 0.9, 0.9]),
    ("10/s", "fixed_window", 300.0, [0.5, 0.5, 0.5]),
    ("100/10s", "sliding_window", 300.0, [0.7, 0.7, 0.7]),
    ("100/10s", "sliding_log", 300.0, [0.75, 0.75, 0.75]),
];

#[test]
fn a_polite_caller_gets_nearly_all_that_is_allowed_and_is_hardly_ever_refused() {
    for (limit, algorithm, allowed, shares) in CASES {
        for (latency_us, least) in [400, 10_000, 100_000].into_iter().zip(shares) {
            let caller = &run(&Server::new(limit, algorithm, Dialect::Ietf), 1, 30, latency_us)[0];
            let share = caller.passed as f64 / allowed;
            let told =
                format!("{limit} {algorithm}, {latency_us} µs: {:.1} %, {} refused", share * 100.0, caller.refused);
            println!("{told}");
            assert!(share >= *least, "{told}");
            assert!(caller.refused * 100 < caller.passed + caller.refused, "{told}");
        }
    }
}

#[test]
fn the_customary_headers_are_as_good_where_their_seconds_are_short_enough() {
    for (limit, allowed) in [("10/s burst 50", 350.0), ("20/s burst 20", 620.0), ("100/s burst 10", 3_010.0)] {
        let caller = &run(&Server::new(limit, "token_bucket", Dialect::X), 1, 30, 1_000)[0];
        let share = caller.passed as f64 / allowed;
        assert!(share >= 0.97 && caller.refused == 0, "{limit}: {share}, {} refused", caller.refused);
    }
}

#[test]
fn callers_who_do_not_know_of_each_other_share_a_limit_without_many_refusals() {
    let callers = run(&Server::new("20/s burst 40", "token_bucket", Dialect::Both), 3, 60, 2_000);
    let passed: u64 = callers.iter().map(|caller| caller.passed).sum();
    let refused: u64 = callers.iter().map(|caller| caller.refused).sum();
    println!("three callers: {:?}, {refused} refused", callers.iter().map(|caller| caller.passed).collect::<Vec<_>>());
    assert!(passed as f64 >= 0.95 * 1_240.0, "{passed}");
    assert!(refused * 20 < passed, "{refused} of {passed}");
}

#[test]
fn without_headers_only_the_number_under_way_is_bounded() {
    let mut pace = Pace::new(2, SECOND_US, Backoff::seeded(1, 1, 1));
    assert_eq!(pace.next(0), Turn::Now);
    pace.sent(0);
    assert_eq!(pace.next(0), Turn::AfterAnswer, "the first asks alone");
    pace.answered(1, Signal::default());
    for _ in 0..2 {
        assert_eq!(pace.next(1), Turn::Now);
        pace.sent(1);
    }
    assert_eq!(pace.next(1), Turn::AfterAnswer);
}

#[test]
fn what_is_left_of_a_day_is_not_held_back_for_hours() {
    let mut pace = Pace::new(2, SECOND_US, Backoff::seeded(1, 1, 1));
    pace.sent(0);
    let standing = Standing { remaining: 10, reset_after_us: Some(86_400 * SECOND_US), ..Standing::default() };
    pace.answered(1, Signal { standing: Some(standing), ..Signal::default() });
    assert_eq!(pace.next(2), Turn::At(SECOND_US));
}

#[test]
fn whatever_a_server_claims_is_survived() {
    let mut pace = Pace::new(8, SECOND_US, Backoff::seeded(1, u64::MAX, 1));
    let mut now_us = 0;
    for number in [0, 1, u64::MAX, 3, u64::MAX / 2, 0, u64::MAX] {
        for is_refused in [false, true, false] {
            let _ = pace.next(now_us);
            pace.sent(now_us);
            let told = Some(number);
            let standing = Standing {
                policy: String::new(),
                remaining: number,
                reset_after_us: told,
                limit: told,
                window_us: told,
            };
            pace.answered(now_us, Signal { is_refused, retry_after_us: told, standing: Some(standing) });
            now_us += 300_000;
        }
    }
    let _ = pace.next(u64::MAX);
}
