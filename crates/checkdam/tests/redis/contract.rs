//! The contract, the vectors, and random sequences: Rust, memory, Redis and Valkey
//! decide alike.

use std::sync::Arc;

use checkdam::conformance::oracle::{self, Take};
use checkdam::conformance::{self, Harness, TestBucket};
use checkdam::store::redis::RedisStore;
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Store, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Limiter, Quota, Request, Rule, RuleSet};
use testkit::{Cluster, Engine, Redis};

use crate::setup::{Answering, OnRedis, patient};

async fn passes_the_suite(url: String) {
    let checks = conformance::run(&OnRedis::new(url)).await.unwrap();
    assert!(checks > 2_000, "only {checks} checks ran");
}

#[tokio::test]
async fn redis_passes_the_suite() {
    let server = Redis::start();
    passes_the_suite(server.url()).await;
}

#[tokio::test]
async fn valkey_passes_the_suite() {
    let server = Redis::builder().engine(Engine::Valkey).start();
    passes_the_suite(server.url()).await;
}

#[tokio::test]
async fn a_cluster_passes_the_suite() {
    let cluster = Cluster::start(3, 0, Engine::Redis);
    passes_the_suite(cluster.url()).await;
}

/// Two servers on one Redis, one of which has the new limits already: each stays
/// within its own.
#[tokio::test]
async fn nodes_with_different_limits_stay_within_their_own() {
    let server = Redis::start();
    let clock = Arc::new(ManualClock::at(20_000_000_000_000));
    for algorithm in Algorithm::ALL {
        for [first, second] in [["100/s", "100/h"], ["1000/m", "10/m"], ["3/s", "100/s"]] {
            let quotas = [first, second].map(|text| Quota::new(text.parse().unwrap(), algorithm).unwrap());
            let nodes = quotas.map(|quota| {
                let store = RedisStore::with_clock(patient(server.url()), Some(Arc::clone(&clock))).unwrap();
                let name = format!("{algorithm:?} {first}");
                let rules = RuleSet::new(vec![Rule::new(&name, "k".parse().unwrap(), vec![quota])]).unwrap();
                Limiter::new(rules, Answering(store))
            });
            let mut taken = [Vec::new(), Vec::new()];
            for number in 0..600 {
                clock.advance(2_000);
                let outcome = nodes[number % 2].check(&Request::new()).await;
                taken[number % 2].push(Take { at_us: outcome.at_us(), cost: 1, admitted: outcome.is_allowed() });
            }
            for (quota, taken) in quotas.iter().zip(&mut taken) {
                oracle::verify(quota, taken).unwrap();
            }
        }
    }
}

/// A small generator with a seed: the same run again and again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

const QUOTAS: [&str; 12] = [
    "10/s burst 50",
    "3/s",
    "7/s burst 20",
    "17/m",
    "1000000/s burst 5",
    "16000000/s burst 40",
    "1/y burst 3",
    "100/h",
    "5/7s",
    "10/s burst 8 initial 2",
    "2/s burst 3 initial 0",
    "1000/d",
];

/// For fixed windows.
const CALENDAR_QUOTAS: [&str; 10] = [
    "20 per calendar day",
    "30 per calendar month",
    "40 per calendar week week_starts sunday",
    "30 per calendar month anchor 31",
    "20 per calendar day zone America/New_York",
    "20 per calendar day zone Africa/Cairo",
    "20 per calendar day zone Australia/Lord_Howe",
    "40 per calendar week zone Asia/Beirut week_starts saturday",
    "30 per calendar month zone Europe/Berlin anchor 30",
    "50 per calendar year zone Asia/Kathmandu",
];

fn any_quota(random: &mut Random, algorithm: Algorithm) -> Quota {
    if algorithm == Algorithm::FixedWindow && random.below(2) == 0 {
        let text = CALENDAR_QUOTAS[random.below(CALENDAR_QUOTAS.len() as u64) as usize];
        return Quota::parse(text, algorithm).unwrap();
    }
    loop {
        let mut spec: checkdam::QuotaSpec = QUOTAS[random.below(QUOTAS.len() as u64) as usize].parse().unwrap();
        if !matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            (spec.burst, spec.initial) = (None, None);
        }
        if let Ok(quota) = Quota::new(spec, algorithm) {
            return quota;
        }
    }
}

/// Random steps with one, two or three tiers, quotas that change, and a clock
/// that jumps; both stores must answer alike every time.
async fn agrees_with_memory(url: String, seed: u64, steps: u64) {
    let redis = OnRedis::new(url);
    let clock = Arc::new(ManualClock::default());
    let memory = MemoryStore::with_clock(MemoryOptions { max_buckets: 100_000 }, Arc::clone(&clock));
    let mut random = Random(seed);
    let mut now_us = 20_000_000_000_000;
    let mut quotas: Vec<Quota> =
        (0..24).map(|n| any_quota(&mut random, Algorithm::ALL[n % Algorithm::ALL.len()])).collect();
    let buckets: Vec<TestBucket> = (0..24).map(|n| TestBucket::new("random", &format!("{seed} {n}"))).collect();
    for step in 0..steps {
        if random.below(200) == 0 {
            let which = random.below(24) as usize;
            quotas[which] = any_quota(&mut random, Algorithm::ALL[which % Algorithm::ALL.len()]);
        }
        let reference = quotas[random.below(24) as usize].window_us().min(864_000_000_000);
        now_us = match random.below(60) {
            0 => now_us - random.below(4_000_000),
            1 => now_us - random.below(20_000_000_000),
            2 => now_us + random.below(reference * 3),
            _ => now_us + random.below(reference / 20 + 2),
        };
        clock.set(now_us);
        redis.set_now_us(now_us);
        let operation = match random.below(20) {
            0 => Operation::Peek,
            1 => Operation::Refund,
            3 => Operation::Charge,
            2 if random.below(5) == 0 => Operation::Reset,
            _ => Operation::Take,
        };
        let first = random.below(24) as usize;
        let tiers: Vec<Tier<'_>> = (0..1 + random.below(3) as usize)
            .map(|n| {
                let which = (first + n) % 24;
                let cost = random.below(quotas[which].limit().min(12) + 2);
                let group = if random.below(6) == 0 { 1 } else { 0 };
                Tier { group, ..buckets[which].tier(&quotas[which], cost) }
            })
            .collect();
        let (ours, theirs) = (memory.apply(operation, &tiers).await, redis.store().apply(operation, &tiers).await);
        assert_eq!(
            ours.decisions, theirs.decisions,
            "seed {seed}, step {step}, at {now_us}: {operation:?} of {tiers:?}: memory, then Redis"
        );
    }
}

/// Around the ends of calendar windows, with a clock that steps over them in both directions.
#[tokio::test]
async fn ends_of_calendar_windows_are_the_same_in_memory_and_redis() {
    let server = Redis::start();
    let redis = OnRedis::new(server.url());
    let clock = Arc::new(ManualClock::default());
    let memory = MemoryStore::with_clock(MemoryOptions { max_buckets: 100_000 }, Arc::clone(&clock));
    let mut random = Random(5);
    for (number, text) in CALENDAR_QUOTAS.into_iter().enumerate() {
        let quota = Quota::parse(text, Algorithm::FixedWindow).unwrap();
        let bucket = TestBucket::new("ends", &number.to_string());
        let mut now_us = 20_000_000_000_000;
        for _ in 0..60 {
            clock.set(now_us);
            let end_us =
                now_us + memory.apply(Operation::Peek, &[bucket.tier(&quota, 0)]).await.decisions[0].reset_after_us;
            for by_us in [-1, 0, 1, -1, -4_999_999, 2, -5_000_001, -9_000_000_000, 3] {
                now_us = end_us.saturating_add_signed(by_us);
                clock.set(now_us);
                redis.set_now_us(now_us);
                let operation = if random.below(8) == 0 { Operation::Refund } else { Operation::Take };
                let tiers = [bucket.tier(&quota, random.below(quota.limit()))];
                let (ours, theirs) =
                    (memory.apply(operation, &tiers).await, redis.store().apply(operation, &tiers).await);
                assert_eq!(ours.decisions, theirs.decisions, "{text} at {now_us}: memory, then Redis");
            }
        }
    }
}

#[tokio::test]
async fn random_steps_are_answered_alike_by_memory_and_redis() {
    let server = Redis::start();
    for seed in [1, 2, 3] {
        agrees_with_memory(server.url(), seed, 40_000).await;
    }
}

#[tokio::test]
async fn random_steps_are_answered_alike_by_memory_and_valkey() {
    let server = Redis::builder().engine(Engine::Valkey).start();
    agrees_with_memory(server.url(), 4, 40_000).await;
}
