//! The script's work for one request is bounded, whatever a bucket holds: a client
//! with a long log must not delay all others on the server.

use checkdam::conformance::{Harness, TestBucket};
use checkdam::store::{Operation, Store, Tier};
use checkdam::{Algorithm, Decision, Quota};
use testkit::Redis;

use crate::setup::OnRedis;

/// The most commands that the script may call for one tier.
const COMMANDS_MAX: u64 = 48;
/// The most that a log holds.
const LOG_MAX: u64 = 10_000;
const HOUR_US: u64 = 3_600_000_000;
const BEGAN_US: u64 = 20_000_000_000_000;

/// Applies an operation, and asserts how many commands the script called.
async fn bounded(server: &Redis, redis: &OnRedis, operation: Operation, tiers: &[Tier<'_>], about: &str) -> Decision {
    server.command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let answer = redis.store().apply(operation, tiers).await;
    let mut called = 0;
    for line in server.info("commandstats").lines() {
        let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else {
            continue;
        };
        if !["evalsha", "eval", "info", "config|resetstat"].contains(&name) {
            called += rest.split(',').next().unwrap().parse::<u64>().unwrap();
        }
    }
    assert!(called > 0, "{about}: nothing was called");
    assert!(called <= COMMANDS_MAX * tiers.len() as u64, "{about}: {called} commands for {} tiers", tiers.len());
    answer.decisions[0]
}

#[tokio::test]
async fn no_request_walks_a_log() {
    let server = Redis::start();
    let redis = OnRedis::new(server.url());
    let quota = Quota::new("10000/h".parse().unwrap(), Algorithm::SlidingLog).unwrap();
    let empty = Quota::new("1/y".parse().unwrap(), Algorithm::TokenBucket).unwrap();
    let (bucket, other) = (TestBucket::new("log", "full"), TestBucket::new("other", "empty"));
    for number in 0..LOG_MAX {
        redis.set_now_us(BEGAN_US + number * 1_000);
        let answer = redis.store().apply(Operation::Take, &[bucket.tier(&quota, 1)]).await;
        assert!(answer.decisions[0].is_allowed(), "take {number}");
    }
    let at = |now_us: u64| redis.set_now_us(now_us);
    let full_us = BEGAN_US + LOG_MAX * 1_000;
    at(full_us);
    for (operation, cost) in [
        (Operation::Take, 1),
        (Operation::Take, 4_321),
        (Operation::Take, LOG_MAX - 1),
        (Operation::Take, LOG_MAX),
        (Operation::Peek, LOG_MAX - 1),
        (Operation::Take, LOG_MAX + 1),
    ] {
        let about = format!("{operation:?} of {cost} from a full log");
        let decision = bounded(&server, &redis, operation, &[bucket.tier(&quota, cost)], &about).await;
        assert!(!decision.is_allowed(), "{about}");
        if cost <= LOG_MAX {
            // It fits when the entry of that number has left.
            assert_eq!(decision.retry_after_us, BEGAN_US + (cost - 1) * 1_000 + HOUR_US - full_us, "{about}");
        }
    }
    // As much again, as debt.
    for number in 0..LOG_MAX {
        at(full_us + number);
        let answer = redis.store().apply(Operation::Record, &[bucket.tier(&quota, 1)]).await;
        assert_eq!((answer.decisions[0].debt, answer.cut_off), (number + 1, 0), "record {number}");
    }
    at(full_us + LOG_MAX);
    for (operation, cost) in [
        (Operation::Record, 0),
        (Operation::Record, 7),
        (Operation::Take, 0),
        (Operation::Take, 4_321),
        (Operation::Charge, 1),
    ] {
        let about = format!("{operation:?} of {cost} on a log in debt");
        let decision = bounded(&server, &redis, operation, &[bucket.tier(&quota, cost)], &about).await;
        assert_eq!((decision.is_allowed(), decision.debt), (operation == Operation::Charge, LOG_MAX), "{about}");
    }
    let seen = bounded(&server, &redis, Operation::Refund, &[bucket.tier(&quota, LOG_MAX)], "a refund of debt").await;
    assert_eq!((seen.debt, seen.remaining), (0, 0));
    // Half of it has left, and nobody has written that down.
    at(BEGAN_US + HOUR_US + LOG_MAX / 2 * 1_000 - 1);
    let half = [bucket.tier(&quota, 1), other.tier(&empty, 1)];
    assert!(redis.store().apply(Operation::Take, &half[1..]).await.decisions[0].is_allowed());
    for _ in 0..2 {
        let seen = bounded(&server, &redis, Operation::Peek, &half[..1], "a look at a log that half left").await;
        assert_eq!(seen.remaining, LOG_MAX / 2);
        let seen = bounded(&server, &redis, Operation::Take, &half, "another tier denies").await;
        assert_eq!(seen.remaining, LOG_MAX / 2);
    }
    let tier = |cost| [bucket.tier(&quota, cost)];
    let seen = bounded(&server, &redis, Operation::Take, &tier(LOG_MAX / 2 + 1), "denied, and half has left").await;
    assert_eq!((seen.is_allowed(), seen.remaining, seen.retry_after_us), (false, LOG_MAX / 2, 1));
    let seen = bounded(&server, &redis, Operation::Take, &tier(10), "half has left").await;
    assert_eq!(seen.remaining, LOG_MAX / 2 - 10);
    let seen = bounded(&server, &redis, Operation::Refund, &tier(3_333), "a refund of much").await;
    assert_eq!(seen.remaining, LOG_MAX / 2 - 10 + 3_333);
    at(BEGAN_US);
    let seen = bounded(&server, &redis, Operation::Take, &tier(10), "a clock that has stepped back").await;
    assert_eq!(seen.remaining, LOG_MAX / 2 + 3_313);
    at(BEGAN_US + 2 * HOUR_US);
    let seen = bounded(&server, &redis, Operation::Take, &tier(1), "all has left").await;
    assert_eq!(seen.remaining, LOG_MAX - 1);
    let _ = bounded(&server, &redis, Operation::Reset, &tier(0), "a reset").await;
}

#[tokio::test]
async fn no_algorithm_does_more_for_large_limits() {
    let server = Redis::start();
    let redis = OnRedis::new(server.url());
    for algorithm in Algorithm::ALL {
        let text = if algorithm == Algorithm::SlidingLog { "10000/h" } else { "1000000000000/y" };
        let Ok(quota) = Quota::new(text.parse().unwrap(), algorithm) else {
            panic!("{algorithm:?}: {text}");
        };
        let buckets: Vec<TestBucket> =
            (0..16).map(|number| TestBucket::new(&format!("{algorithm:?}"), &number.to_string())).collect();
        let tiers = |cost| buckets.iter().map(|bucket| bucket.tier(&quota, cost)).collect::<Vec<_>>();
        redis.set_now_us(BEGAN_US);
        for (operation, cost) in [
            (Operation::Take, quota.limit() / 2),
            (Operation::Take, quota.limit() / 2),
            (Operation::Take, quota.limit() - 1),
            (Operation::Peek, quota.limit()),
            (Operation::Refund, quota.limit() - 1),
            (Operation::Record, quota.limit()),
            (Operation::Record, 500 * quota.limit()),
            (Operation::Take, 0),
        ] {
            let about = format!("{operation:?} of {cost} by {algorithm:?}");
            let _ = bounded(&server, &redis, operation, &tiers(cost), &about).await;
        }
    }
}
