//! Clocks that are stepped, and shards with different clocks.

use std::time::Instant;

use checkdam::conformance::TestBucket;
use checkdam::store::Operation;
use checkdam::store::redis::RedisOptions;
use checkdam::{DecidedBy, Verdict};
use testkit::{Cluster, Engine, Redis};

use crate::setup::{
    CLOCKS_APART_US, ask, patient, quota, remaining, script_calls, store, take, wait, wait_for_redis, without_breaker,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_gives_no_credit_and_locks_no_one_out() {
    for (engine, step_us) in
        [(Engine::Redis, 2_000_000), (Engine::Redis, 3_600_000_000_i64), (Engine::Valkey, 3_600_000_000)]
    {
        let server = Redis::builder().engine(engine).with_clock_shim().start();
        let (quota, bucket) = (quota("10/m burst 50"), TestBucket::new("back", "a"));
        let store = store(patient(server.url()));
        for _ in 0..50 {
            assert!(take(&store, bucket.tier(&quota, 1)).await.0.is_allowed());
        }
        let before = ask(&store, Operation::Peek, bucket.tier(&quota, 1)).await.0;
        server.step_clock(-step_us);
        let after = take(&store, bucket.tier(&quota, 1)).await.0;
        println!(
            "{engine:?}, {step_us} µs back: to wait before {} µs, after {} µs",
            before.retry_after_us, after.retry_after_us
        );
        assert_eq!(after.verdict, Verdict::Denied, "a step back must not give credit");
        // A short step is waited out; after a long one the bucket is empty at the new time.
        let held_us = if step_us <= 5_000_000 { step_us as u64 } else { 0 };
        assert!(after.retry_after_us <= 6_000_000 + held_us, "{after:?}");
        assert!(after.reset_after_us <= 300_000_000 + held_us, "{after:?}");
        assert_eq!(store.stats().refused + store.stats().unknown, 0, "{:?}", store.stats());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_forward_gives_no_more_than_the_step() {
    for (step_us, extra_max) in [(30_000_000_i64, 5), (3_600_000_000, 50)] {
        let server = Redis::builder().with_clock_shim().start();
        let (quota, bucket) = (quota("10/m burst 50"), TestBucket::new("forward", "a"));
        let store = store(patient(server.url()));
        let began = Instant::now();
        for _ in 0..50 {
            assert!(take(&store, bucket.tier(&quota, 1)).await.0.is_allowed());
        }
        server.step_clock(step_us);
        let mut extra = 0;
        for _ in 0..70 {
            let (decision, by) = take(&store, bucket.tier(&quota, 1)).await;
            assert_eq!(by, DecidedBy::Redis, "being late by the new clock must be put right: {:?}", store.stats());
            extra += u64::from(decision.is_allowed());
        }
        // What was earned in the real time of the test itself, at 10 a minute.
        let earned = began.elapsed().as_secs() / 6 + 1;
        println!("{step_us} µs forward: {extra} extra, bound {extra_max} + {earned}");
        assert!(extra <= extra_max + earned);
    }
}

/// The node sends the windows around its own time, and the server's clock decides which of them
/// counts. A clock that is in none of them decides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calendar_windows_of_a_server_whose_clock_is_days_ahead_are_not_guessed() {
    const DAY_US: i64 = 86_400_000_000;
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = Redis::builder().engine(engine).with_clock_shim().start();
        let (daily, hourly) = (quota("3 per calendar day zone Asia/Tokyo"), quota("100/h"));
        let store = store(patient(server.url()));
        let (daily_bucket, hourly_bucket) = (TestBucket::new("daily", "a"), TestBucket::new("hourly", "a"));
        let tiers = [daily_bucket.tier(&daily, 3), hourly_bucket.tier(&hourly, 10)];
        let answer = store.try_apply(Operation::Take, &tiers).await.unwrap();
        assert!(answer.decisions.iter().all(|decision| decision.is_allowed()), "{answer:?}");
        // In the next window, of which the server was told too.
        server.step_clock(DAY_US);
        let answer = store.try_apply(Operation::Take, &tiers).await.unwrap();
        assert!(answer.decisions.iter().all(|decision| decision.is_allowed()), "{answer:?}");
        server.step_clock(2 * DAY_US);
        for operation in [Operation::Take, Operation::Peek, Operation::Refund, Operation::Charge] {
            let error = store.try_apply(operation, &tiers).await.unwrap_err().to_string();
            assert!(error.contains("its clock shows") && error.contains("NTP"), "{operation:?}: {error}");
        }
        assert_eq!(take(&store, tiers[0]).await.1, DecidedBy::Policy);
        assert!(store.try_apply(Operation::Reset, &tiers[..1]).await.is_ok(), "a reset needs no window");
        // Nothing of what failed was charged, and others are decided as ever.
        let hourly_left = ask(&store, Operation::Peek, tiers[1]).await;
        assert_eq!((hourly_left.0.remaining, hourly_left.1), (100, DecidedBy::Redis));
        server.step_clock(-3 * DAY_US);
        assert_eq!(take(&store, tiers[0]).await.1, DecidedBy::Redis);
    }
}

/// A clock that was stepped back must not let late takes pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_takes_are_refused_after_a_step_back_too() {
    let server = Redis::builder().with_clock_shim().start();
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("late", "a"));
    let store = store(without_breaker(server.url()));
    wait_for_redis(&store, bucket.tier(&quota, 1)).await;
    server.step_clock(-3_600_000_000);
    wait_for_redis(&store, bucket.tier(&quota, 1)).await;
    let calls = script_calls(&server);
    server.pause();
    for _ in 0..2 {
        assert_eq!(take(&store, bucket.tier(&quota, 1)).await.1, DecidedBy::Policy);
    }
    server.resume();
    wait("the server to have read what was sent", || script_calls(&server) > calls);
    assert_eq!(remaining(server.url(), bucket.tier(&quota, 1)).await, 1_000);
}

/// Each shard gets a deadline in the time of its own clock: in any other, a shard that is
/// ahead would reject everything, and one that is behind would execute calls that have
/// timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_takes_are_refused_by_shards_whose_clocks_are_apart() {
    let cluster = Cluster::builder().replicas_per_master(0).clocks_ahead_us(CLOCKS_APART_US).start();
    let quota = quota("1/h burst 1000");
    let readable = |options| RedisOptions { readable_keys: true, ..options };
    let (hasty, patient) = (store(readable(without_breaker(cluster.url()))), store(readable(patient(cluster.url()))));
    for (number, node) in cluster.nodes().iter().enumerate() {
        let is_there = |subject: &String| {
            let slot = cluster.slot_of(&format!("cd:{{{subject}}}:x"));
            cluster.master_of_slot(slot) == number
        };
        let subject = (0..).map(|n| format!("late:{n}")).find(is_there).unwrap();
        let bucket = TestBucket::new("apart", &subject);
        let tier = bucket.tier(&quota, 1);
        wait_for_redis(&hasty, tier).await;
        assert!(take(&patient, tier).await.0.is_allowed());
        let calls = script_calls(node);
        node.pause();
        for _ in 0..2 {
            assert_eq!(take(&hasty, tier).await.1, DecidedBy::Policy);
        }
        node.resume();
        wait("the server to have read what was sent", || script_calls(node) > calls);
        let (left, by) = ask(&patient, Operation::Peek, tier).await;
        println!("{} µs ahead: {} of 999 left", CLOCKS_APART_US[number], left.remaining);
        assert_eq!((left.remaining, by), (999, DecidedBy::Redis), "a take landed after its caller had left");
    }
}
