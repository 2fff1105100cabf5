//! Decisions in memory, or from prepaid tokens, do not allocate.
//!
//! Each path runs once before it is counted: the first use of a window bucket
//! allocates it, and so do thread-local buffers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use checkdam::headers::{self, Dialect};
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{
    Algorithm, DecidedBy, KeyedLimiter, Lease, Limiter, Mode, Outcome, Quota, QuotaSpec, Request, Rule, RuleSet,
};

const FAST: &str = "1000000/s burst 1000000000";
const SPENT: &str = "1/d";

fn spec(limit: &str) -> QuotaSpec {
    limit.parse::<Quota>().unwrap().spec()
}

fn rule(name: &str, key: &str, limits: &[&str], algorithm: Algorithm) -> Rule {
    let quota = |limit: &&str| Quota::new(spec(limit), algorithm).unwrap();
    Rule::new(name, key.parse().unwrap(), limits.iter().map(quota).collect())
}

/// So many tiers, two to a rule at most, the last with the limit `last`.
fn rules(tiers: usize, last: &str, algorithm: Algorithm, limit: &str) -> Vec<Rule> {
    let keys = ["user:{user}", "tenant:{tenant}", "global", "method:{method}"];
    let mut limits = vec![limit; tiers];
    limits[tiers - 1] = last;
    let per_rule = tiers.div_ceil(keys.len());
    let rules = limits.chunks(per_rule).zip(keys).enumerate();
    rules.map(|(number, (limits, key))| rule(&format!("rule-{number}"), key, limits, algorithm)).collect()
}

fn limiter(rules: Vec<Rule>) -> Limiter<MemoryStore> {
    Limiter::new(RuleSet::new(rules).unwrap(), MemoryStore::new(MemoryOptions { max_buckets: 10_000 }))
}

fn request<'a>(user: &'a str) -> Request<'a> {
    let mut request = Request::new();
    for (name, value) in [("user", user), ("tenant", "acme"), ("method", "GET"), ("endpoint", "/api/search")] {
        request.insert(name, value).unwrap();
    }
    request
}

/// The memory store never waits.
fn check(limiter: &Limiter<MemoryStore>, request: &Request<'_>) -> Outcome {
    match pin!(limiter.check(request)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("the memory store waited"),
    }
}

/// How often `run` allocates.
fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

#[test]
fn checks_of_a_key_allocate_nothing() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let store = MemoryStore::new(MemoryOptions { max_buckets: 10_000 });
        let limiter = KeyedLimiter::<str>::with_store(Quota::parse("10/s burst 50", algorithm).unwrap(), store);
        let keys: Vec<String> = (0..100).map(|number| format!("user:{number}")).collect();
        assert_eq!(
            allocations(|| keys
                .iter()
                .cycle()
                .take(10_000)
                .for_each(|key| assert!(black_box(limiter.check(key)).limit > 0))),
            0,
            "{algorithm:?}, new and known keys, allowed and denied"
        );
    }
}

#[test]
fn checks_in_memory_allocate_nothing() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        for tiers in [1, 3, 8] {
            for (last, allowed) in [(FAST, true), (SPENT, false)] {
                let limiter = limiter(rules(tiers, last, algorithm, FAST));
                let request = request("42");
                let _ = check(&limiter, &request);
                let counted = allocations(|| {
                    for _ in 0..100 {
                        let outcome = black_box(check(&limiter, &request));
                        assert_eq!((outcome.is_allowed(), outcome.tiers().len()), (allowed, tiers));
                    }
                });
                assert_eq!(counted, 0, "{} with {tiers} tiers, allowed: {allowed}", algorithm.name());
            }
        }
    }
}

#[test]
fn buckets_that_are_new_allocate_nothing() {
    let limiter = limiter(rules(3, FAST, Algorithm::TokenBucket, FAST));
    let _ = check(&limiter, &request("somebody"));
    let users: Vec<String> = (0..1_000).map(|number| format!("user-{number}")).collect();
    let counted = allocations(|| {
        for user in &users {
            assert!(check(&limiter, &request(user)).is_allowed());
        }
    });
    assert_eq!(counted, 0);
}

#[test]
fn windows_that_exist_allocate_nothing() {
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindow { strict: false }, Algorithm::SlidingWindow { strict: true }]
    {
        let limiter = limiter(rules(3, "1000000/d", algorithm, "1000000/h"));
        let request = request("42");
        let _ = check(&limiter, &request);
        let counted = allocations(|| {
            for _ in 0..100 {
                assert!(black_box(check(&limiter, &request)).is_allowed());
            }
        });
        assert_eq!(counted, 0, "{}", algorithm.name());
    }
}

#[test]
fn rules_in_shadow_allocate_nothing() {
    let mut rules = rules(3, SPENT, Algorithm::TokenBucket, FAST);
    rules[2].mode = Mode::Shadow;
    let limiter = limiter(rules);
    let request = request("42");
    let _ = check(&limiter, &request);
    let counted = allocations(|| assert!(check(&limiter, &request).is_allowed()));
    assert_eq!(counted, 0);
}

#[test]
fn requests_and_headers_allocate_nothing() {
    assert_eq!(allocations(|| drop(black_box(request("42")))), 0, "a request of borrowed values");
    for last in [FAST, SPENT] {
        let limiter = limiter(rules(3, last, Algorithm::TokenBucket, FAST));
        let request = request("42");
        let _ = check(&limiter, &request);
        let outcome = check(&limiter, &request);
        for dialect in [Dialect::Both, Dialect::X, Dialect::Ietf, Dialect::None] {
            let mut length = 0;
            let counted =
                allocations(|| headers::write(&outcome, dialect, |name, value| length += name.len() + value.len()));
            assert_eq!(counted, 0, "{dialect:?}");
            assert!(length > 0 || outcome.is_allowed());
        }
    }
}

#[tokio::test]
async fn prepaid_checks_allocate_nothing_but_to_fetch_more() {
    let server = testkit::Redis::start();
    let mut leased = rule("leased", "user:{user}", &[FAST], Algorithm::TokenBucket);
    leased.lease = Lease::For(100_000);
    let store = RedisStore::new(RedisOptions::new(server.url())).unwrap();
    let limiter = Limiter::new(RuleSet::new(vec![leased]).unwrap(), store);
    let request = request("42");
    let (mut prepaid, mut allocating) = (0, 0);
    for _ in 0..20_000 {
        if prepaid == 1_000 {
            break;
        }
        let mut by = None;
        let counted = allocations(|| {
            let checked = pin!(limiter.check(&request));
            if let Poll::Ready(outcome) = checked.poll(&mut Context::from_waker(Waker::noop())) {
                assert!(outcome.is_allowed());
                by = Some(outcome.decided_by());
            }
        });
        if by == Some(DecidedBy::Lease) {
            prepaid += 1;
            allocating += u64::from(counted > 0);
        } else {
            let _ = limiter.check(&request).await;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(prepaid, 1_000, "no lease came");
    // A check that finds too few tokens starts a task that fetches more.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let asks = limiter.store().lease_stats().asks;
    assert!(allocating <= asks, "{allocating} of {prepaid} checks allocated, and {asks} fetched more");
}
