//! The contract, the vectors, and random sequences: Rust, memory, Redis and
//! Valkey answer alike.

use std::sync::Arc;

use checkdam::conformance::{self, Harness, TestBucket};
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Store, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Limiter, Quota, Request, Rule, RuleSet};
use testkit::{Cluster, Engine, Redis};

use crate::setup::{Answering, OnRedis};

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

/// A key that another node has made anew for a smaller burst must outlive what the
/// larger one, back in force, lets it owe.
#[tokio::test]
async fn a_key_outlives_its_debt_however_rules_come_and_go() {
    let server = Redis::start();
    let limiter = |burst: &str| {
        let rule = Rule::new("r", "k".parse().unwrap(), vec![format!("10/s burst {burst}").parse().unwrap()]);
        RuleSet::new(vec![rule]).unwrap()
    };
    let nodes = [0, 1].map(|_| {
        let store = RedisStore::new(RedisOptions::new(server.url())).unwrap();
        Limiter::new(limiter("1000"), Answering(store))
    });
    let left_ms = || server.command(&["EVAL", "return redis.call('PTTL', redis.call('KEYS', '*')[1])", "0"]).int();
    assert!(nodes[0].check(&Request::new()).await.is_allowed());
    assert!(left_ms() > 100_000, "{}", left_ms());
    server.command(&["FLUSHALL"]).expect_ok();
    nodes.iter().for_each(|node| node.set_rules(limiter("10")));
    assert!(nodes[1].check(&Request::new()).await.is_allowed());
    assert!(left_ms() < 10_000, "{}", left_ms());
    nodes.iter().for_each(|node| node.set_rules(limiter("1000")));
    assert!(nodes[0].check(&Request::new()).await.is_allowed());
    assert!(left_ms() > 100_000, "{}", left_ms());
    // Nor does a node that still has the smaller burst shorten it.
    nodes[1].set_rules(limiter("10"));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(nodes[1].check(&Request::new()).await.is_allowed());
    assert!(left_ms() > 100_000, "{}", left_ms());
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

fn any_quota(random: &mut Random, algorithm: Algorithm) -> Quota {
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
