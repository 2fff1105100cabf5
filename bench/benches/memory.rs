//! One take in memory: checkdam's table beside governor, beside the maps that
//! were tried for it, and beside the physical limit, a bare compare-and-swap.
//! One hot key and a million keys, one thread and two.
//!
//! Compare within one run only: `cargo bench -p bench --bench memory`.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::{Checkdam, Walk, write_key};
use checkdam::time::{Clock, SystemClock};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use governor::clock::QuantaClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

/// So fast that every take passes.
const RATE: &str = "1000000/s burst 1000000000";

type Governor = RateLimiter<String, DashMapStateStore<String>, QuantaClock>;

/// The same arithmetic over other maps, keyed by text as maps usually are.
struct OnMap<M> {
    map: M,
    clock: SystemClock,
}

const INTERVAL: u64 = 1;
const CAPACITY: u64 = 1_000_000_000;

fn advance(full_at: u64, now: u64) -> Option<u64> {
    let new = full_at.max(now) + INTERVAL;
    (new - now <= CAPACITY).then_some(new)
}

impl OnMap<dashmap::DashMap<String, AtomicU64>> {
    fn take(&self, key: &str) -> bool {
        let now = self.clock.now_us();
        let update = |word: &AtomicU64| {
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |full_at| advance(full_at, now)).is_ok()
        };
        match self.map.get(key) {
            Some(word) => update(&word),
            None => update(&self.map.entry(key.to_owned()).or_default()),
        }
    }
}

struct Shards {
    hasher: hashbrown::DefaultHashBuilder,
    shards: Vec<parking_lot::Mutex<hashbrown::HashMap<String, u64>>>,
}

impl OnMap<Shards> {
    fn take(&self, key: &str) -> bool {
        let now = self.clock.now_us();
        let mut shard = self.map.shards[(self.map.hasher.hash_one(key) >> 58) as usize].lock();
        match shard.get_mut(key) {
            Some(full_at) => advance(*full_at, now).map(|new| *full_at = new).is_some(),
            None => shard.insert(key.to_owned(), now + INTERVAL).is_none(),
        }
    }
}

/// Keys are made so many at a time, outside of the measured time: they come from
/// requests that were just read, and are in the cache whoever limits them.
const BATCH: u64 = 256;

/// The time of `threads` threads that each take `iterations` times from random
/// ones of `count` keys.
fn timed(threads: usize, iterations: u64, count: usize, take: &(impl Fn(usize, &String) -> bool + Sync)) -> Duration {
    let barrier = Barrier::new(threads);
    let run = |seed: usize| {
        let mut walk = Walk::new(seed as u64 * 0x9E37_79B9, count);
        let mut batch: Vec<(usize, String)> = (0..BATCH).map(|_| (0, String::with_capacity(20))).collect();
        let mut spent = Duration::ZERO;
        barrier.wait();
        for _ in 0..iterations.div_ceil(BATCH) {
            for (number, key) in &mut batch {
                *number = walk.step();
                write_key(key, *number);
            }
            let start = Instant::now();
            for (number, key) in &batch {
                black_box(take(*number, key));
            }
            spent += start.elapsed();
        }
        spent.mul_f64(iterations as f64 / (iterations.div_ceil(BATCH) * BATCH) as f64)
    };
    thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = (2..=threads).map(|seed| scope.spawn(move || run(seed))).collect();
        let mut longest = run(1);
        for other in others {
            longest = longest.max(other.join().unwrap());
        }
        longest
    })
}

/// One group of benchmarks: the same keys, the same threads.
struct Scene<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    threads: usize,
    count: usize,
}

impl Scene<'_> {
    fn run(&mut self, name: &str, take: impl Fn(usize, &String) -> bool + Sync) {
        let (threads, count) = (self.threads, self.count);
        self.group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|iterations| timed(threads, iterations, count, &take));
        });
    }
}

fn takes(criterion: &mut Criterion) {
    for (name, count) in [("hot key", 1), ("1M keys", 1_000_000)] {
        let checkdam = Checkdam::new(count, RATE);
        let per_second = NonZeroU32::new(1_000_000).unwrap();
        let quota = Quota::per_second(per_second).allow_burst(NonZeroU32::new(1_000_000_000).unwrap());
        let governor: Governor = RateLimiter::dashmap_with_clock(quota, QuantaClock::default());
        let dashmap = OnMap { map: dashmap::DashMap::<String, AtomicU64>::new(), clock: SystemClock::new() };
        let hasher = hashbrown::DefaultHashBuilder::default();
        let shard = || parking_lot::Mutex::new(hashbrown::HashMap::with_hasher(hasher.clone()));
        let shards = OnMap {
            map: Shards { hasher: hasher.clone(), shards: (0..64).map(|_| shard()).collect() },
            clock: SystemClock::new(),
        };
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let mut key = String::new();
        for number in 0..count {
            write_key(&mut key, number);
            assert!(checkdam.take(&key) && governor.check_key(&key).is_ok() && dashmap.take(&key) && shards.take(&key));
        }
        for threads in [1, 2] {
            let mut group = criterion.benchmark_group(format!("{name}, {threads} thread(s)"));
            group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
            let mut scene = Scene { group, threads, count };
            scene.run("bare compare-and-swap", |number, _| {
                let word = &words[number];
                let seen = word.load(Ordering::Acquire);
                word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
            });
            scene.run("checkdam", |_, key| checkdam.take(key));
            scene.run("governor keyed", |_, key| governor.check_key(key).is_ok());
            scene.run("DashMap", |_, key| dashmap.take(key));
            scene.run("64 x Mutex<hashbrown>", |_, key| shards.take(key));
            scene.group.finish();
        }
    }
}

criterion_group!(benches, takes);
criterion_main!(benches);
