//! The oracle over the memory store: many threads, virtual time, every
//! algorithm; no bucket ever admits more than an ideal one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use checkdam::conformance::TestBucket;
use checkdam::conformance::oracle::{Take, verify};
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Quota};

const THREADS: u64 = 8;
const KEYS: usize = 1_000;

/// A small generator with a seed: the same run again and again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn quota(algorithm: Algorithm, key: usize) -> Quota {
    let text = match (algorithm, key % 4) {
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 0) => "10/s burst 50",
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 1) => "7/s",
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 2) => "17/s burst 20",
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, _) => "1000/m burst 30",
        (_, 0) => "10/s",
        (_, 1) => "30/5s",
        (_, 2) => "7/s",
        (_, _) => "100/m",
    };
    Quota::new(text.parse().unwrap(), algorithm).unwrap()
}

/// Random takes by many threads on one store. Returns what was asked of each key.
fn contend(store: &MemoryStore<Arc<ManualClock>>, algorithm: Algorithm, takes: u64) -> Vec<Vec<Take>> {
    let quotas: Vec<Quota> = (0..KEYS).map(|key| quota(algorithm, key)).collect();
    let buckets: Vec<TestBucket> = (0..KEYS).map(|key| TestBucket::new("oracle", &key.to_string())).collect();
    let mut seen: Vec<Vec<Take>> = vec![Vec::new(); KEYS];
    let parts: Vec<Vec<(u32, Take)>> = thread::scope(|scope| {
        let run = |seed: u64| {
            let (quotas, buckets) = (&quotas, &buckets);
            move || {
                let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let mut part = Vec::with_capacity((takes / THREADS) as usize);
                for _ in 0..takes / THREADS {
                    // A tenth of the keys get half of the traffic.
                    let spread = if random.below(2) == 0 { KEYS / 10 } else { KEYS };
                    let key = random.below(spread as u64) as usize;
                    let cost = [1, 1, 1, 1, 2, 3, 5][random.below(7) as usize];
                    // All together about 1,500 takes a second of virtual time.
                    store.clock().advance(random.below(1_300));
                    let answer = store.apply_now(Operation::Take, &[buckets[key].tier(&quotas[key], cost)]);
                    let admitted = answer.decisions[0].is_allowed();
                    part.push((key as u32, Take { at_us: answer.at_us, cost, admitted }));
                }
                part
            }
        };
        let threads: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (key, take) in parts.into_iter().flatten() {
        seen[key as usize].push(take);
    }
    seen
}

#[test]
fn no_bucket_admits_more_than_an_ideal_one_under_contention() {
    for algorithm in Algorithm::ALL {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 20_000 }, clock);
        let takes = 5_200_000;
        let (mut admitted, mut ideal) = (0, 0);
        for (key, mut takes) in contend(&store, algorithm, takes).into_iter().enumerate() {
            let finding = verify(&quota(algorithm, key), &mut takes).unwrap();
            admitted += finding.admitted;
            ideal += finding.ideal;
        }
        assert!(admitted > 1_000_000, "{algorithm:?}: only {admitted} was admitted");
        let utilisation = admitted as f64 / ideal as f64;
        println!("{algorithm:?}: {takes} takes, {admitted} admitted, {ideal} ideally, {:.4} %", utilisation * 100.0);
        let least = match algorithm {
            // A part that has half left still counts in full: 10/11, by design.
            Algorithm::SlidingWindow { strict: true } => 0.88,
            _ => 0.999,
        };
        assert!(utilisation >= least, "{algorithm:?}: {utilisation}");
    }
}

/// Far more keys than places: buckets come and go while they are charged, and
/// some takes are given back. Nobody may be over, whatever was evicted.
#[test]
fn no_bucket_is_over_while_buckets_are_evicted_under_contention() {
    const MANY: u64 = 30_000;
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 4_096 }, clock);
    let quota: Quota = "5/m burst 10".parse().unwrap();
    let parts: Vec<Vec<(u64, Take)>> = thread::scope(|scope| {
        let run = |seed: u64| {
            let store = &store;
            move || {
                let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let mut part = Vec::new();
                for _ in 0..100_000 {
                    let key = if random.below(2) == 0 { random.below(50) } else { random.below(MANY) };
                    let cost = 1 + random.below(3);
                    store.clock().advance(random.below(40));
                    let bucket = TestBucket::new("evicted", &key.to_string());
                    let answer = store.apply_now(Operation::Take, &[bucket.tier(&quota, cost)]);
                    let admitted = answer.decisions[0].is_allowed();
                    part.push((key, Take { at_us: answer.at_us, cost, admitted }));
                }
                part
            }
        };
        let threads: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen: HashMap<u64, Vec<Take>> = HashMap::new();
    for (key, take) in parts.into_iter().flatten() {
        seen.entry(key).or_default().push(take);
    }
    for (key, takes) in &mut seen {
        verify(&quota, takes).unwrap_or_else(|error| panic!("key {key}: {error}"));
    }
    assert!(store.stats().evicted > 1_000, "{:?}: the test must evict", store.stats());
}

/// Requests of three tiers on shared buckets: what each bucket admitted must be
/// what the requests that passed took, and no bucket may be over.
#[test]
fn tiers_are_charged_together_or_not_at_all_under_contention() {
    for (first, second) in [
        (Algorithm::TokenBucket, Algorithm::TokenBucket),
        (Algorithm::TokenBucket, Algorithm::FixedWindow),
        (Algorithm::LeakyBucket, Algorithm::SlidingLog),
    ] {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 20_000 }, clock);
        let user = Quota::new("10/s".parse().unwrap(), first).unwrap();
        let endpoint = Quota::new("60/s".parse().unwrap(), second).unwrap();
        let global = Quota::new("100/s burst 150".parse().unwrap(), Algorithm::TokenBucket).unwrap();
        let everyone = TestBucket::new("global", "");
        let (passed, asked) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut seen: HashMap<String, (Quota, Vec<Take>)> = HashMap::new();
        let parts: Vec<Vec<(String, String, Take)>> = thread::scope(|scope| {
            let run = |seed: u64| {
                let (store, everyone, passed, asked) = (&store, &everyone, &passed, &asked);
                let (user, endpoint, global) = (&user, &endpoint, &global);
                move || {
                    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    let mut part = Vec::new();
                    for _ in 0..60_000 {
                        let who = format!("user {}", random.below(20));
                        let what = format!("endpoint {}", random.below(3));
                        let cost = 1 + random.below(3);
                        store.clock().advance(random.below(700));
                        let (who_bucket, what_bucket) = (TestBucket::new("a", &who), TestBucket::new("b", &what));
                        let tiers: [Tier<'_>; 3] = [
                            who_bucket.tier(user, cost),
                            what_bucket.tier(endpoint, cost),
                            everyone.tier(global, cost),
                        ];
                        let answer = store.apply_now(Operation::Take, &tiers);
                        let admitted = answer.decisions.iter().all(|decision| decision.is_allowed());
                        asked.fetch_add(cost, Ordering::Relaxed);
                        passed.fetch_add(if admitted { cost } else { 0 }, Ordering::Relaxed);
                        part.push((who, what, Take { at_us: answer.at_us, cost, admitted }));
                    }
                    part
                }
            };
            let threads: Vec<_> = (1..=THREADS).map(|seed| scope.spawn(run(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (who, what, take) in parts.into_iter().flatten() {
            for (name, quota) in [(who, user), (what, endpoint), ("global".to_owned(), global)] {
                seen.entry(name).or_insert_with(|| (quota, Vec::new())).1.push(take);
            }
        }
        for (name, (quota, takes)) in &mut seen {
            verify(quota, takes).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        // Everything that passed was charged to the global bucket and nothing
        // else was: it holds exactly what the ideal bucket holds.
        let (quota, takes) = &seen["global"];
        let mut replayed = MemoryStore::with_clock(MemoryOptions { max_buckets: 1 }, Arc::new(ManualClock::default()));
        let admitted: Vec<_> = takes.iter().filter(|take| take.admitted).collect();
        for take in &admitted {
            replayed.clock().set(take.at_us);
            replayed.apply_now(Operation::Take, &[everyone.tier(quota, take.cost)]);
        }
        replayed.clock().set(store.clock_now());
        let left = |store: &mut MemoryStore<Arc<ManualClock>>| {
            store.apply_now(Operation::Peek, &[everyone.tier(quota, 1)]).decisions[0].reset_after_us
        };
        let mut store = store;
        assert!(left(&mut store).abs_diff(left(&mut replayed)) <= 1, "{first:?} {second:?}");
        assert!(passed.into_inner() < asked.into_inner() / 2, "the test must be tight");
    }
}

trait Now {
    fn clock_now(&self) -> u64;
}

impl Now for MemoryStore<Arc<ManualClock>> {
    fn clock_now(&self) -> u64 {
        checkdam::time::Clock::now_us(self.clock())
    }
}
