//! Leases on real servers: how few calls they cost, and what is put back, returned
//! and lost.

use std::time::{Duration, Instant};

use checkdam::Lease;
use checkdam::conformance::TestBucket;
use checkdam::lease::LeaseTerms;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{FailurePolicy, Operation, Store, Tier};
use checkdam::{DecidedBy, Decision, Quota, Verdict};
use testkit::{Cluster, Engine, Redis, Sentinel};

use crate::setup::{ask, patient, quota, remaining, script_calls, store, take, with_policy};

pub(crate) fn leased<'a>(bucket: &'a TestBucket, quota: &'a Quota, length: Duration) -> Tier<'a> {
    let lease = LeaseTerms::of(Lease::For(length.as_micros() as u64), quota);
    assert!(lease.is_some(), "{quota} cannot be leased for {length:?}");
    Tier { lease, ..bucket.tier(quota, 1) }
}

/// Takes until tokens are held here; how many passed.
pub(crate) async fn warm(store: &RedisStore, tier: Tier<'_>) -> u64 {
    let began = Instant::now();
    let mut passed = 0;
    loop {
        let (decision, by) = take(store, tier).await;
        passed += u64::from(decision.is_allowed());
        if by == DecidedBy::Lease && store.lease_stats().held > 2 {
            return passed;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "nothing is prepaid: {:?}", store.lease_stats());
    }
}

#[tokio::test]
async fn a_hot_subject_costs_few_calls() {
    let server = Redis::start();
    let (quota, bucket) = (quota("1000000/s burst 500000"), TestBucket::new("hot", "k"));
    let tier = leased(&bucket, &quota, Duration::from_millis(100));
    let store = store(patient(server.url()));
    warm(&store, tier).await;
    let (calls_before, checks) = (script_calls(&server), 30_000);
    for number in 0..checks {
        assert!(take(&store, tier).await.0.is_allowed());
        if number % 100 == 0 {
            // What asks for more must have its turn on this one thread.
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    }
    let calls = script_calls(&server) - calls_before;
    println!("{checks} checks, {calls} calls: {:?}", store.lease_stats());
    assert!(calls * 100 <= checks, "{calls} calls for {checks} checks");
}

#[tokio::test]
async fn what_another_tier_denies_is_put_back() {
    let server = Redis::start();
    let (global, user) = (quota("100/m burst 1000"), quota("5/h"));
    let (all, one) = (TestBucket::new("global", "all"), TestBucket::new("user", "user:1"));
    let store = store(patient(server.url()));
    let tier = leased(&all, &global, Duration::from_secs(30));
    let mut passed = warm(&store, tier).await;
    let mut denied = 0;
    for _ in 0..40 {
        let answer = store.apply(Operation::Take, &[tier, one.tier(&user, 1)]).await;
        assert_eq!(answer.by, DecidedBy::Redis);
        let is_allowed = answer.decisions.iter().all(Decision::is_allowed);
        passed += u64::from(is_allowed);
        denied += u64::from(!is_allowed);
    }
    assert_eq!(denied, 35);
    let began = Instant::now();
    store.return_leases().await;
    assert!(began.elapsed() < Duration::from_secs(5));
    let stats = store.lease_stats();
    // Of each lease time has paid for less than one token.
    assert!(stats.held == 0 && stats.lost <= 2, "{stats:?}");
    // All that is owed is what passed, and what a grant takes for granted.
    let left = remaining(server.url(), all.tier(&global, 1)).await;
    let floor = 50;
    assert!((1_000 - passed - floor..=1_000 - passed + 5).contains(&left), "{left} left, {passed} passed: {stats:?}");
    assert_eq!(stats.granted, stats.spent + stats.returned + stats.lost, "{stats:?}");
}

#[tokio::test]
async fn peeks_refunds_and_resets_know_what_is_held() {
    let server = Redis::start();
    let (quota, bucket) = (quota("100/m burst 1000"), TestBucket::new("held", "k"));
    let tier = leased(&bucket, &quota, Duration::from_secs(30));
    let store = store(patient(server.url()));
    let passed = warm(&store, tier).await;
    let held = store.lease_stats().held;
    let by_redis = remaining(server.url(), tier).await;
    let (decision, by) = ask(&store, Operation::Peek, tier).await;
    assert_eq!((decision.remaining, by), (by_redis + held, DecidedBy::Redis), "{passed} passed");
    // It could be more than nodes hold.
    assert_eq!(ask(&store, Operation::Refund, tier).await.1, DecidedBy::Lease);
    assert_eq!(remaining(server.url(), tier).await, by_redis);
    // Also for a node that leases nothing itself.
    let other = self::store(patient(server.url()));
    let _ = ask(&other, Operation::Refund, Tier { cost: passed, ..tier }).await;
    assert_eq!(remaining(server.url(), tier).await, by_redis);
    let _ = ask(&store, Operation::Reset, tier).await;
    assert_eq!(store.lease_stats().held, 0);
    assert_eq!(remaining(server.url(), tier).await, 1_000);
    // A rule in shadow is spent as any other, and denies nobody.
    let shadow = TestBucket::new("shadow", "k");
    let tiers = [tier, Tier { group: 1, ..leased(&shadow, &quota, Duration::from_secs(30)) }];
    let mut by = DecidedBy::Redis;
    for _ in 0..30 {
        let answer = store.apply(Operation::Take, &tiers).await;
        assert!(answer.decisions.iter().all(Decision::is_allowed));
        by = answer.by;
    }
    assert_eq!(by, DecidedBy::Lease);
}

#[tokio::test]
async fn an_empty_bucket_denies_from_here_until_it_has_more() {
    let server = Redis::start();
    let (quota, bucket) = (quota("20/s burst 40"), TestBucket::new("dry", "k"));
    let tier = leased(&bucket, &quota, Duration::from_millis(500));
    let store = store(patient(server.url()));
    let began = Instant::now();
    let (mut passed, mut checks, mut longest_us) = (0, 0, 0);
    while began.elapsed() < Duration::from_millis(1_500) {
        let (decision, _) = take(&store, tier).await;
        (passed, checks) = (passed + u64::from(decision.is_allowed()), checks + 1);
        if decision.verdict == Verdict::Denied {
            longest_us = longest_us.max(decision.retry_after_us);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let stats = store.lease_stats();
    println!("{passed} of {checks} passed, waits up to {longest_us} µs: {stats:?}");
    assert!(stats.cached_denials > stats.asks, "{stats:?}");
    assert!((50..=71).contains(&passed), "{passed} passed of at most 40 + 1.5 × 20");
    assert!(longest_us <= 1_000_000);
}

#[tokio::test]
async fn without_redis_what_is_prepaid_is_spent_and_then_the_policy_decides() {
    let server = Redis::start();
    let (quota, bucket) = (quota("1000/s burst 1000"), TestBucket::new("gone", "k"));
    let store = store(RedisOptions { deadline: Some(Duration::from_millis(50)), ..RedisOptions::new(server.url()) });
    let tier = with_policy(leased(&bucket, &quota, Duration::from_millis(400)), FailurePolicy::Closed);
    warm(&store, tier).await;
    server.kill();
    let held = store.lease_stats().held;
    let (mut prepaid, mut refused, mut slowest) = (0, 0, Duration::ZERO);
    let began = Instant::now();
    while refused < 50 {
        let asked = Instant::now();
        let (decision, by) = take(&store, tier).await;
        slowest = slowest.max(asked.elapsed());
        match (decision.verdict, by) {
            (Verdict::Allowed, DecidedBy::Lease) => prepaid += 1,
            (Verdict::Unavailable, DecidedBy::Policy) => refused += 1,
            (Verdict::Denied, DecidedBy::Lease) => tokio::time::sleep(Duration::from_millis(1)).await,
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    println!("{held} held, {prepaid} spent, {refused} refused, slowest {slowest:?}");
    assert!(prepaid <= held, "{prepaid} passed, {held} were held");
    assert!(slowest < Duration::from_millis(200), "{slowest:?}");
}

#[tokio::test]
async fn sentinels_and_clusters_grant_too() {
    let sentinel = Sentinel::start();
    let cluster = Cluster::start(3, 0, Engine::Redis);
    for url in [sentinel.url(), cluster.url()] {
        let quota = quota("100/m burst 1000");
        let store = store(patient(url));
        // In a cluster these are in different slots, and need not share one.
        let buckets: Vec<TestBucket> = (0..4).map(|n| TestBucket::new("many", &format!("subject {n}"))).collect();
        let tiers: Vec<Tier<'_>> = buckets.iter().map(|it| leased(it, &quota, Duration::from_secs(30))).collect();
        let mut by_lease = 0;
        for _ in 0..100 {
            let answer = store.apply(Operation::Take, &tiers).await;
            assert!(answer.decisions.iter().all(Decision::is_allowed));
            by_lease += usize::from(answer.by == DecidedBy::Lease);
        }
        store.return_leases().await;
        let stats = store.lease_stats();
        assert!(by_lease > 80, "{by_lease}: {stats:?}");
        assert_eq!((stats.subjects, stats.held), (4, 0), "{stats:?}");
        assert_eq!(stats.granted, stats.spent + stats.returned + stats.lost, "{stats:?}");
        assert!(stats.returned > stats.lost, "{stats:?}");
    }
}
