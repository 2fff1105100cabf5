//! TTLs of keys, on the server's own clock: a key that expires before its debt is
//! paid would grant an extra burst.

use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Operation, Tier};
use checkdam::{Algorithm, Decision, Quota};
use testkit::Redis;

use crate::leases::{leased, warm};
use crate::setup::{ask, patient, store};

/// What time may take between a decision and the look at its key.
const SLACK_US: u64 = 100_000;

fn readable(server: &Redis) -> std::sync::Arc<RedisStore> {
    store(RedisOptions { readable_keys: true, ..patient(server.url()) })
}

/// Asserts that the key of a bucket lives for as long as it owes.
fn outlives(server: &Redis, tier: &Tier<'_>, decision: &Decision, about: &str) {
    if decision.remaining == decision.limit {
        return;
    }
    let subject = std::str::from_utf8(tier.subject).unwrap();
    let key = format!("cd:{{{subject}}}:ttl/0/{}", tier.quota.arithmetic());
    let left_ms = server.command(&["PTTL", &key]).int();
    let owed_us = decision.reset_after_us.saturating_sub(SLACK_US);
    assert!(left_ms >= 0 && left_ms as u64 * 1_000 >= owed_us, "{about}: {left_ms} ms to live, {owed_us} µs owed");
}

/// Every operation on every algorithm, for longer than the shortest TTL.
#[tokio::test]
async fn a_key_outlives_what_it_owes() {
    let server = Redis::start();
    let store = readable(&server);
    let mut quotas: Vec<Quota> = ["10/s burst 6", "3/s burst 2", "2/s burst 3 initial 1", "1/m burst 90"]
        .map(|text| Quota::new(text.parse().unwrap(), Algorithm::TokenBucket).unwrap())
        .to_vec();
    for algorithm in &Algorithm::ALL[1..] {
        quotas.push(Quota::new("6/700ms".parse().unwrap(), *algorithm).unwrap());
    }
    let bucket = TestBucket::new("ttl", "a");
    let (began, mut random, mut denied) = (Instant::now(), 0x9E37_79B9_u64, 0);
    while began.elapsed() < Duration::from_millis(2_500) {
        for quota in &quotas {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let operation = match random >> 60 {
                0 => Operation::Refund,
                1 => Operation::Peek,
                2 => Operation::Record,
                _ => Operation::Take,
            };
            let tier = bucket.tier(quota, 1 + (random >> 40) % 2);
            let decision = ask(&store, operation, tier).await.0;
            denied += u64::from(!decision.is_allowed());
            outlives(&server, &tier, &decision, &format!("{operation:?} by {quota} ({:?})", quota.algorithm()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(denied > 100, "the buckets must have been empty most of the time");
}

/// A node that still has the old limit, and gives back what it leased of it.
#[tokio::test]
async fn what_is_given_back_after_a_change_shortens_no_life() {
    let server = Redis::start();
    let (old, new) = (readable(&server), readable(&server));
    let before = Quota::new("1000/s burst 900".parse().unwrap(), Algorithm::TokenBucket).unwrap();
    let after = Quota::new("100/h".parse().unwrap(), Algorithm::TokenBucket).unwrap();
    let bucket = TestBucket::new("ttl", "a");
    warm(&old, leased(&bucket, &before, Duration::from_millis(400))).await;
    let owing = Tier { cost: 95, ..bucket.tier(&after, 1) };
    let decision = ask(&new, Operation::Take, owing).await.0;
    outlives(&server, &owing, &decision, "charged by the new limit");
    old.return_leases().await;
    let stats = old.lease_stats();
    assert!(stats.returned > 0, "nothing was given back: {stats:?}");
    let decision = ask(&new, Operation::Peek, owing).await.0;
    assert_eq!(decision.remaining, 5, "{stats:?}");
    outlives(&server, &owing, &decision, "given back by the old limit");
}
