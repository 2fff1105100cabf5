//! Cancelled callers: at whatever await they are dropped, a request is charged whole
//! or not at all.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::rule_file::{self, FileOptions};
use checkdam::store::redis::RedisStore;
use checkdam::store::{Operation, Store, Tier};
use checkdam::{DecidedBy, Limiter, Request};
use testkit::{Cluster, Engine, FaultProxy, Mode, Redis};
use tokio::time::timeout;

use crate::leases::{leased, warm};
use crate::setup::{LIMIT, ask, patient, quota, store, take};

/// No request here is polled more often before it is decided.
const POLLS_MAX: usize = 64;
/// On a busy machine an answer may be there when it is first looked for: so often a
/// request is dropped at each of its awaits.
const ROUNDS: usize = 3;

/// Polls a request so often, each time when it is woken, and drops it; whether it
/// was decided before.
async fn dropped_after(polls: usize, request: impl Future) -> bool {
    let mut request = pin!(request);
    let mut left = polls;
    poll_fn(|context| {
        let is_decided = left > 0 && request.as_mut().poll(context).is_ready();
        left = left.saturating_sub(1);
        if is_decided || left == 0 { Poll::Ready(is_decided) } else { Poll::Pending }
    })
    .await
}

/// What was taken of a bucket, by Redis itself.
async fn taken(store: &RedisStore, tier: Tier<'_>) -> u64 {
    let (decision, by) = ask(store, Operation::Peek, tier).await;
    assert_eq!(by, DecidedBy::Redis);
    decision.limit - decision.remaining
}

/// Waits until so much was taken of a bucket: what callers began goes on.
async fn wait_for_taken(store: &RedisStore, tier: Tier<'_>, wanted: u64, what: &str) {
    let began = Instant::now();
    loop {
        let taken = taken(store, tier).await;
        if taken == wanted {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{what}: {taken} were taken, not {wanted}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_across_slots_that_is_dropped_leaves_no_part_of_itself() {
    let cluster = Cluster::start(3, 0, Engine::Redis);
    let (many, few) = (quota("1/h burst 100000"), quota("1/h burst 1"));
    let (store, elsewhere) = (store(patient(cluster.url())), store(patient(cluster.url())));
    let all = TestBucket::new("global", "all");
    let users: Vec<TestBucket> = (0..POLLS_MAX).map(|n| TestBucket::new("user", &format!("user:{n}"))).collect();
    // By another node: this one must not know whom to ask first.
    for user in &users {
        assert!(take(&elsewhere, user.tier(&few, 1)).await.0.is_allowed());
    }
    let (mut fresh, mut most) = (users.iter(), 0);
    for _ in 0..ROUNDS {
        let mut polls = 0;
        let mut user = fresh.next().unwrap();
        while !dropped_after(polls, store.apply(Operation::Take, &[all.tier(&many, 1), user.tier(&few, 1)])).await {
            wait_for_taken(&elsewhere, all.tier(&many, 1), 0, &format!("dropped at poll {polls}")).await;
            polls += 1;
            user = fresh.next().expect("it is never decided");
        }
        most = most.max(polls);
    }
    assert!(most > 2, "it was decided after {most} polls: nothing was reserved in turn");
    wait_for_taken(&elsewhere, all.tier(&many, 1), 0, "denied in full").await;

    // The same with many at once, by the clock.
    let hasty = (0..100).map(|n| {
        let (store, all, user) = (Arc::clone(&store), all.clone(), users[n % users.len()].clone());
        tokio::spawn(async move {
            let tiers = [all.tier(&many, 1), user.tier(&few, 1)];
            let _ = timeout(Duration::from_micros(100), store.apply(Operation::Take, &tiers)).await;
        })
    });
    for one in hasty.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    wait_for_taken(&elsewhere, all.tier(&many, 1), 0, "100 dropped after 100 µs").await;

    // What all tiers allow is charged to both or to none.
    let (left, right) = (TestBucket::new("left", "left"), TestBucket::new("right", "right"));
    for polls in 0.. {
        if dropped_after(polls, store.apply(Operation::Take, &[left.tier(&many, 1), right.tier(&many, 1)])).await {
            break;
        }
    }
    // A last one, whole: what was begun before has long been sent.
    let answer = store.apply(Operation::Take, &[left.tier(&many, 1), right.tier(&many, 1)]).await;
    assert_eq!(answer.by, DecidedBy::Redis);
    let began = Instant::now();
    loop {
        let both = (taken(&elsewhere, left.tier(&many, 1)).await, taken(&elsewhere, right.tier(&many, 1)).await);
        if both.0 == both.1 {
            assert!(both.0 >= 2, "{both:?}");
            break;
        }
        assert!(began.elapsed() < LIMIT, "taken of one and of the other: {both:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Of a request that is paid in part here and in part in Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_dropped_spends_of_a_lease_what_redis_charged() {
    let server = Redis::start();
    let (global, user) = (quota("1000/m burst 10000"), quota("1/h burst 1000"));
    let (all, one) = (TestBucket::new("global", "all"), TestBucket::new("user", "user:1"));
    let proxy = FaultProxy::start(server.addr());
    let (store, elsewhere) = (store(patient(proxy.url())), store(patient(server.url())));
    let tier = leased(&all, &global, Duration::from_secs(60));
    warm(&store, tier).await;
    let before = store.lease_stats().spent;
    // The caller leaves when Redis has charged its part and the answer is on its way.
    for charged in 1..=ROUNDS as u64 {
        proxy.set_replies(Mode::Hold);
        let tiers = [tier, one.tier(&user, 1)];
        let mut request = Box::pin(store.apply(Operation::Take, &tiers));
        assert!(poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await.is_pending());
        wait_for_taken(&elsewhere, one.tier(&user, 1), charged, "the call did not reach the server").await;
        drop(request);
        proxy.set_replies(Mode::Pass);
    }
    let began = Instant::now();
    while store.lease_stats().spent - before != ROUNDS as u64 {
        let spent = store.lease_stats().spent - before;
        assert!(began.elapsed() < LIMIT, "{spent} were spent here, {ROUNDS} charged in Redis");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Limits that deny only together with others: what the others were charged is
/// given back though nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_decided_together_and_dropped_give_back_what_they_took() {
    let server = Redis::start();
    let tree = "domain: edge\ndescriptors:\n\
        - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
        - { key: c, rate_limit: { unit: day, requests_per_unit: 1000 } }\n";
    let (rules, _) = rule_file::compile_all(&[tree], &FileOptions::default()).unwrap();
    let limiter = Limiter::new(rules, store(patient(server.url())));
    let requests = [("a", "x"), ("c", "x")].map(|entry| Request::from_entries("edge", [entry]).unwrap());
    assert!(limiter.check_batch(&requests).await.is_allowed());
    let (mut polls, mut most, mut rounds) = (0, 0, 0);
    while rounds < ROUNDS {
        assert!(polls < POLLS_MAX, "it is never decided");
        let is_decided = dropped_after(polls, limiter.check_batch(&requests)).await;
        let began = Instant::now();
        loop {
            let outcome = limiter.peek(&requests[1]).await;
            let left = outcome.tiers().next().unwrap().decision.remaining;
            if left == 999 {
                break;
            }
            assert!(began.elapsed() < LIMIT, "dropped after {polls} polls: {left} are left of 999");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        most = most.max(polls);
        (polls, rounds) = if is_decided { (0, rounds + 1) } else { (polls + 1, rounds) };
    }
    assert!(most > 2, "it was decided after {most} polls: nothing was given back in turn");
}

/// What was used is charged though nobody waits for it, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_dropped_is_charged() {
    let server = Redis::start();
    let (store, quota) = (store(patient(server.url())), quota("10/d"));
    let (mut polls, mut rounds) = (0, 0);
    while rounds < ROUNDS {
        assert!(polls < POLLS_MAX, "it is never answered");
        let bucket = TestBucket::new("dropped", &format!("{rounds} {polls}"));
        let tiers = [bucket.tier(&quota, 7)];
        let is_decided = dropped_after(polls, store.apply(Operation::Record, &tiers)).await;
        // What was never polled has done nothing.
        let wanted = if polls > 0 || is_decided { 7 } else { 0 };
        wait_for_taken(&store, bucket.tier(&quota, 0), wanted, &format!("dropped after {polls} polls")).await;
        (polls, rounds) = if is_decided { (0, rounds + 1) } else { (polls + 1, rounds) };
    }
}

/// A metered cost that does not fit is charged though nobody waits for it, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metered_request_that_is_denied_and_dropped_is_charged() {
    let server = Redis::start();
    let tree = "domain: edge\ndescriptors: [{ key: tokens, rate_limit: { unit: day, requests_per_unit: 10 } }]\n";
    let (rules, _) = rule_file::compile_all(&[tree], &FileOptions::default()).unwrap();
    let limiter = Limiter::new(rules, store(patient(server.url())));
    let request = |user: &str| Request::from_entries("edge", [("tokens", user.to_owned())]).unwrap();
    let (mut polls, mut most, mut rounds) = (0, 0, 0);
    for user in 0.. {
        assert!(user < POLLS_MAX, "it is never decided");
        let user = format!("user:{user}");
        let metered = [request(&user).costing(25).metered()];
        let is_decided = dropped_after(polls, limiter.check_batch(&metered)).await;
        let began = Instant::now();
        loop {
            let outcome = limiter.peek(&request(&user)).await;
            assert_eq!(outcome.decided_by(), DecidedBy::Redis);
            let debt = outcome.tiers().next().unwrap().decision.debt;
            // The first poll begins it.
            if debt == 15 || polls == 0 {
                break;
            }
            assert!(debt == 0 && began.elapsed() < LIMIT, "dropped after {polls} polls: a debt of {debt}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        most = most.max(polls);
        (polls, rounds) = if is_decided { (0, rounds + 1) } else { (polls + 1, rounds) };
        if rounds == ROUNDS {
            break;
        }
    }
    assert!(most > 2, "it was decided after {most} polls: nothing was recorded in turn");
}
