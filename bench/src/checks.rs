//! Whole checks in this process: rules made for it, requests as they come.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Condition, Definitions, Limiter, Quota, Request, Rule, RuleSet};

use crate::Walk;
use crate::rivals::QUOTA;

/// So few at a time that the requests themselves stay in the cache, as requests
/// do that were just read.
const BATCH: usize = 256;

/// A rule that lets all pass.
///
/// # Panics
/// If the key is not understood: they are fixed.
#[must_use]
pub fn rule(name: &str, key: &str) -> Rule {
    let key = key.parse().unwrap_or_else(|error| panic!("{key}: {error}"));
    Rule::new(name, key, vec![quota(QUOTA)])
}

/// A quota.
///
/// # Panics
/// If it is not understood: they are fixed.
#[must_use]
pub fn quota(text: &str) -> Quota {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A rule for one tenant.
#[must_use]
pub fn tenant(number: usize) -> Rule {
    let name = format!("tenant-{number}");
    let rule = rule(&name, "tenant:{tenant}");
    rule.when("tenant", Condition::is(name))
}

/// A limiter in memory.
///
/// # Panics
/// If the rules are refused: they are made here.
#[must_use]
pub fn limiter(definitions: Definitions) -> Limiter<MemoryStore> {
    let rules = RuleSet::compile(definitions).unwrap_or_else(|error| panic!("the rules: {error}"));
    Limiter::new(rules, MemoryStore::new(MemoryOptions { max_buckets: 1_000_000 }))
}

/// A request of a user of `tenant-0`.
///
/// # Panics
/// If the user is no attribute: they are numbers.
#[must_use]
pub fn request(user: &str) -> Request<'_> {
    let attributes = [("user", user), ("tenant", "tenant-0"), ("method", "GET"), ("endpoint", "/api/search")];
    let mut request = Request::new();
    for (name, value) in attributes {
        request.insert(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    request
}

/// How many tiers let it pass. The memory store never waits, so neither does this.
#[must_use]
pub fn check(limiter: &Limiter<MemoryStore>, request: &Request<'_>) -> usize {
    let mut checked = pin!(limiter.check(request));
    match checked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => usize::from(outcome.is_allowed()) * outcome.tiers().len(),
        Poll::Pending => 0,
    }
}

/// Nanoseconds for one of so many users, the middle of all batches; `act` is
/// given a batch of users to be timed with.
pub fn batches_ns(users: usize, length: Duration, act: impl Fn(&[String]) -> Duration) -> f64 {
    let mut walk = Walk::new(42, users);
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < length || times.is_empty() {
        let batch: Vec<String> = (0..BATCH).map(|_| format!("user-{:07}", walk.step())).collect();
        times.push(act(&batch).as_nanos() as f64 / BATCH as f64);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds a check by that limiter of requests that are there already.
///
/// # Panics
/// If not so many tiers let a request pass.
#[must_use]
pub fn checks_ns(limiter: &Limiter<MemoryStore>, tiers: usize, users: usize, length: Duration) -> f64 {
    batches_ns(users, length, |users| {
        let requests: Vec<Request<'_>> = users.iter().map(|user| request(user)).collect();
        let start = Instant::now();
        for request in &requests {
            assert_eq!(black_box(check(limiter, request)), tiers);
        }
        start.elapsed()
    })
}
