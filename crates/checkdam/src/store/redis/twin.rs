//! Leases in Rust and in Lua: the same, whatever comes before and between.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::script::{Held, Packed};
use super::{RedisOptions, RedisStore};
use crate::algorithm::token_bucket::{self, LeaseAsk, State};
use crate::conformance::TestBucket;
use crate::quota::Quota;
use crate::store::Operation;
use crate::time::ManualClock;

const STEPS: usize = 150;

/// Xorshift: every failure names the seed that it began with.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

/// A bucket in Redis and the same bucket in Rust.
struct Twin<'a> {
    redis: &'a RedisStore,
    quota: Quota,
    bucket: TestBucket,
    state: State,
    now_us: u64,
}

impl Twin<'_> {
    async fn lease(&mut self, ask: LeaseAsk, about: &str) {
        let key = self.redis.keys.key(&self.bucket.tier(&self.quota, 1));
        let packed = Packed::lease(&self.quota, key, ask);
        let deadline = Instant::now() + Duration::from_secs(10);
        let (at_us, values) = self.redis.topology.call(0, packed, 1, deadline).await.unwrap();
        let held = Held::read(&self.quota, at_us, &values[0]).unwrap();
        let (grant, next) = token_bucket::lease(&self.quota, self.state, self.now_us, ask);
        assert_eq!(held.grant(&self.quota, ask), Some(grant), "{about}: {ask:?}");
        self.state = next;
    }

    async fn put_back(&mut self, cost: u64, since_us: u64, about: &str) {
        let key = self.redis.keys.key(&self.bucket.tier(&self.quota, 1));
        let packed = Packed::put_back(&self.quota, cost, key, since_us);
        let deadline = Instant::now() + Duration::from_secs(10);
        let (at_us, values) = self.redis.topology.call(0, packed, 1, deadline).await.unwrap();
        let held = Held::read(&self.quota, at_us, &values[0]).unwrap();
        let (back, next) = token_bucket::put_back(&self.quota, self.state, self.now_us, cost, since_us);
        assert_eq!(held.put_back(&self.quota, cost, since_us), back, "{about}: {cost} put back");
        self.state = next;
    }

    async fn apply(&mut self, operation: Operation, cost: u64, about: &str) {
        let (quota, tier) = (self.quota, self.bucket.tier(&self.quota, cost));
        let answered = self.redis.try_apply(operation, &[tier]).await.unwrap().decisions[0];
        let (expected, next) = match operation {
            Operation::Take => token_bucket::decide(&quota, self.state, self.now_us, cost),
            Operation::Refund => token_bucket::refund(&quota, self.state, self.now_us, cost),
            _ => (token_bucket::peek(&quota, self.state, self.now_us, cost), self.state),
        };
        assert_eq!(answered, expected, "{about}: {operation:?} of {cost}");
        self.state = next;
    }
}

#[tokio::test]
async fn leases_are_granted_alike_in_rust_and_in_redis() {
    let server = testkit::Redis::start();
    let clock = Arc::new(ManualClock::default());
    let options = RedisOptions { deadline: Duration::from_secs(10), ..RedisOptions::new(server.url()) };
    let redis = RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap();
    let quotas =
        ["1000/s burst 500", "3/s burst 7", "10000000/s", "100/s burst 50 initial 0", "7/m burst 90 initial 3"];
    let began: u64 = 0x9E37_79B9_7F4A_7C15 ^ crate::time::unix_us();
    for (number, text) in quotas.into_iter().enumerate() {
        let seed = began.wrapping_add(number as u64) | 1;
        let mut random = Random(seed);
        let quota: Quota = text.parse().unwrap();
        let bucket = TestBucket::new("twin", text);
        let mut twin = Twin { redis: &redis, quota, bucket, state: None, now_us: 20_000_000_000_000 };
        for step in 0..STEPS {
            twin.now_us += random.below(quota.window_us() / 4 + 2);
            clock.set(twin.now_us);
            let about = format!("{text}, seed {seed:#x}, step {step}");
            let cost = random.below(quota.limit() / 3 + 2);
            match random.below(6) {
                0 | 1 => {
                    let least = random.below(cost + 2);
                    let length_us = random.below(quota.window_us());
                    twin.lease(LeaseAsk { wanted: cost.max(least), least, length_us }, &about).await;
                }
                2 => twin.apply(Operation::Take, cost, &about).await,
                3 => twin.apply(Operation::Refund, cost, &about).await,
                4 => {
                    let since_us = twin.now_us - random.below(quota.window_us() / 4);
                    twin.put_back(cost.min(quota.limit()), since_us, &about).await;
                }
                _ => twin.apply(Operation::Peek, cost, &about).await,
            }
        }
    }
}
