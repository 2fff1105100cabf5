//! The hot paths in instructions, which do not depend on what else the machine
//! does: what each may cost is stated beside it, and the run fails beyond that.
//!
//! `cargo bench --profile instructions --no-default-features --features instructions
//! --bench instructions` in this folder. It needs Valgrind and `gungraun-runner`,
//! of the version that `Cargo.lock` has. Where a path needs more than it may, and
//! is worth it, replace the old count by the new one (the reported count divided
//! by `ROUNDS`).
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bench::{Checkdam, keyed_limiter, write_key};
use checkdam::headers::{self, Dialect};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Condition, KeyedLimiter, Limiter, Outcome, Request, Rule, RuleSet};
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};

/// How often a path is gone in one count, so that what comes before and after
/// it does not matter.
const ROUNDS: u64 = 100;
/// How much more than its count a path may need, in hundredths: processors have
/// different copies of `memcpy`, and random keys make different chains.
const TOLERANCE: u64 = 10;

const FAST: &str = "1000000/s burst 1000000000";
const SLOW: &str = "1/d";

/// A path that may need `count` instructions.
fn at_most(count: u64) -> LibraryBenchmarkConfig {
    let limit = ROUNDS * count * (100 + TOLERANCE) / 100;
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, limit)]));
    config
}

fn take_known(limit: &str) -> (Checkdam, Vec<String>) {
    let store = Checkdam::new(10_000, limit);
    let mut key = String::new();
    write_key(&mut key, 1);
    store.take(&key);
    (store, vec![key; ROUNDS as usize])
}

fn take_new(limit: &str) -> (Checkdam, Vec<String>) {
    let key = |number| {
        let mut key = String::new();
        write_key(&mut key, number);
        key
    };
    (Checkdam::new(10_000, limit), (0..ROUNDS as usize).map(key).collect())
}

#[library_benchmark]
#[bench::hot(args = (FAST), setup = take_known, config = at_most(188))]
#[bench::denied(args = (SLOW), setup = take_known, config = at_most(177))]
#[bench::new(args = (FAST), setup = take_new, config = at_most(1_040))]
fn take((store, keys): (Checkdam, Vec<String>)) -> (Checkdam, Vec<String>) {
    for key in &keys {
        black_box(store.take(key));
    }
    (store, keys)
}

fn keyed_known(limit: &str) -> (KeyedLimiter<str>, Vec<String>) {
    let (limiter, keys) = (keyed_limiter(10_000, limit), take_known(limit).1);
    let _ = black_box(limiter.check(&keys[0]));
    (limiter, keys)
}

#[library_benchmark]
#[bench::hot(args = (FAST), setup = keyed_known, config = at_most(188))]
#[bench::denied(args = (SLOW), setup = keyed_known, config = at_most(188))]
fn keyed((limiter, keys): (KeyedLimiter<str>, Vec<String>)) -> (KeyedLimiter<str>, Vec<String>) {
    for key in &keys {
        black_box(limiter.check(key).is_allowed());
    }
    (limiter, keys)
}

type Checked = (Limiter<MemoryStore>, Request<'static>);

fn request() -> Request<'static> {
    let mut request = Request::new();
    for (name, value) in
        [("user", "user-000000042"), ("tenant", "tenant-0"), ("method", "GET"), ("endpoint", "/api/search")]
    {
        request.insert(name, value).unwrap();
    }
    request
}

fn rule(name: &str, key: &str, limits: &[&str]) -> Rule {
    Rule::new(name, key.parse().unwrap(), limits.iter().map(|limit| limit.parse().unwrap()).collect())
}

fn limiter(rules: Vec<Rule>) -> Checked {
    let limiter = Limiter::new(RuleSet::new(rules).unwrap(), MemoryStore::new(MemoryOptions { max_buckets: 10_000 }));
    let request = request();
    check_once(&limiter, &request);
    (limiter, request)
}

/// Rules of so many tiers, the last of which has `last` as its limit.
fn tiers(count: usize, last: &str) -> Checked {
    let user = |limits: &[&str]| rule("user", "user:{user}", limits);
    let tenant = |limits: &[&str]| rule("tenant", "tenant:{tenant}", limits);
    let global = |limits: &[&str]| rule("global", "global", limits);
    limiter(match count {
        1 => vec![user(&[last])],
        3 => vec![user(&[FAST]), tenant(&[FAST]), global(&[last])],
        _ => vec![
            user(&[FAST, "900000/s burst 1000000000", "800000/s burst 1000000000"]),
            tenant(&[FAST, "900000/s burst 1000000000", "800000/s burst 1000000000"]),
            global(&[FAST, last]),
        ],
    })
}

/// Three rules that concern the request, and many that do not.
fn among(count: usize) -> Checked {
    let mut rules = vec![rule("user", "user:{user}", &[FAST]), rule("global", "global", &[FAST])];
    for number in 0..count - 2 {
        let name = format!("tenant-{number}");
        rules.push(rule(&name, "tenant:{tenant}", &[FAST]).when("tenant", Condition::is(name)));
    }
    limiter(rules)
}

/// The memory store never waits, so neither does this.
#[inline]
fn check_once(limiter: &Limiter<MemoryStore>, request: &Request<'_>) -> Option<Outcome> {
    let mut checked = pin!(limiter.check(request));
    match checked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[library_benchmark]
#[bench::one_tier(args = (1, FAST), setup = tiers, config = at_most(1_461))]
#[bench::three_tiers(args = (3, FAST), setup = tiers, config = at_most(3_047))]
#[bench::eight_tiers(args = (8, FAST), setup = tiers, config = at_most(4_965))]
#[bench::three_tiers_denied(args = (3, SLOW), setup = tiers, config = at_most(4_432))]
#[bench::among_10_rules(args = (10), setup = among, config = at_most(3_206))]
#[bench::among_10_000_rules(args = (10_000), setup = among, config = at_most(3_200))]
fn check((limiter, request): Checked) -> Checked {
    for _ in 0..ROUNDS {
        if let Poll::Ready(outcome) =
            pin!(limiter.check(black_box(&request))).poll(&mut Context::from_waker(Waker::noop()))
        {
            black_box(&outcome);
        }
    }
    (limiter, request)
}

#[library_benchmark]
#[bench::of_four_attributes(config = at_most(720))]
fn build() {
    for _ in 0..ROUNDS {
        black_box(request());
    }
}

fn outcome(last: &str) -> Outcome {
    let (limiter, request) = tiers(3, last);
    check_once(&limiter, &request).unwrap()
}

#[library_benchmark]
#[bench::allowed(args = (FAST), setup = outcome, config = at_most(1_131))]
#[bench::denied(args = (SLOW), setup = outcome, config = at_most(1_165))]
fn head(outcome: Outcome) -> Outcome {
    for _ in 0..ROUNDS {
        headers::write(black_box(&outcome), Dialect::Both, |name, value| {
            black_box((name, value));
        });
    }
    outcome
}

library_benchmark_group!(name = paths, benchmarks = [take, keyed, check, build, head]);
main!(library_benchmark_groups = paths);
