//! Parity of leases in Rust and Lua, under random sequences of operations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::reply::RequestReply;
use super::script::ScriptCall;
use super::{RedisOptions, RedisStore};
use crate::algorithm::token_bucket::{self, LeaseRequest, Ledger, State};
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
struct ParityBucket<'a> {
    redis: &'a RedisStore,
    quota: Quota,
    bucket: TestBucket,
    state: State,
    ledger: Option<Ledger>,
    /// The ledger after each lease.
    marks: Vec<u64>,
    now_us: u64,
}

impl ParityBucket<'_> {
    async fn call(&self, packed: ScriptCall) -> RequestReply {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.redis.topology.call(0, packed, 1, deadline).await.unwrap()
    }

    fn key(&self) -> Vec<u8> {
        self.redis.keys.key(&self.bucket.tier(&self.quota, 1))
    }

    async fn lease(&mut self, ask: LeaseRequest, about: &str) {
        let reply = self.call(ScriptCall::lease(&self.quota, &self.key(), ask)).await;
        let (grant, next) = token_bucket::lease(&self.quota, self.state, self.now_us, ask);
        let mut mark = 0;
        if grant.granted > 0 {
            let ledger = self.ledger.unwrap_or_else(|| Ledger::new(self.now_us));
            let ledger = ledger.with(grant.granted, ask.length_us, self.now_us);
            (mark, self.ledger) = (ledger.granted, Some(ledger));
            self.marks.push(mark);
        }
        assert_eq!(reply.lease(&self.quota, ask), Some((grant, mark)), "{about}: {ask:?}");
        self.state = next;
    }

    async fn give_back(&mut self, tokens: u64, mark: u64, about: &str) {
        let reply = self.call(ScriptCall::give_back(&self.quota, tokens, &self.key(), mark)).await;
        let ledger = self.ledger.unwrap_or_else(|| Ledger::new(self.now_us));
        let (back, next) = token_bucket::give_back(&self.quota, self.state, self.now_us, (tokens, mark), &ledger);
        assert_eq!(reply.back(), Some(back), "{about}: {tokens} given back, {mark}");
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
    let options = RedisOptions { deadline: Some(Duration::from_secs(10)), ..RedisOptions::new(server.url()) };
    let redis = RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap();
    let quotas =
        ["1000/s burst 500", "3/s burst 7", "10000000/s", "100/s burst 50 initial 0", "7/m burst 90 initial 3"];
    let began: u64 = 0x9E37_79B9_7F4A_7C15 ^ crate::time::unix_us();
    for (number, text) in quotas.into_iter().enumerate() {
        let seed = began.wrapping_add(number as u64) | 1;
        let mut random = Random(seed);
        let quota: Quota = text.parse().unwrap();
        let bucket = TestBucket::new("parity", text);
        let mut pair = ParityBucket {
            redis: &redis,
            quota,
            bucket,
            state: None,
            ledger: None,
            marks: Vec::new(),
            now_us: 20_000_000_000_000,
        };
        for step in 0..STEPS {
            pair.now_us += random.below(quota.window_us() / 4 + 2);
            clock.set(pair.now_us);
            let about = format!("{text}, seed {seed:#x}, step {step}");
            let cost = random.below(quota.limit() / 3 + 2);
            match random.below(6) {
                0 | 1 => {
                    let least = random.below(cost + 2);
                    let length_us = random.below(quota.window_us());
                    pair.lease(LeaseRequest { wanted: cost.max(least), least, length_us }, &about).await;
                }
                2 => pair.apply(Operation::Take, cost, &about).await,
                3 => pair.apply(Operation::Refund, cost, &about).await,
                4 => {
                    // Mostly of the last lease, sometimes of one before.
                    let back = pair.marks.len().saturating_sub(1 + (random.below(6) / 4) as usize);
                    let mark = pair.marks.get(back).copied().unwrap_or(0);
                    pair.give_back(cost, mark, &about).await;
                }
                _ => pair.apply(Operation::Peek, cost, &about).await,
            }
        }
    }
}
