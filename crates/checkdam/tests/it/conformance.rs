//! The memory store keeps the contract, and the pure functions the vectors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use checkdam::algorithm::{WindowState, leaky_bucket, token_bucket};
use checkdam::conformance::{self, Harness, TestBucket, vectors};
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, DecidedBy, Decision, Quota, Verdict};

struct Memory {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
}

impl Memory {
    fn new(max_buckets: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: MemoryStore::with_clock(MemoryOptions { max_buckets }, Arc::clone(&clock)), clock }
    }
}

impl Harness for Memory {
    type Store = MemoryStore<Arc<ManualClock>>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn set_now_us(&self, now_us: u64) {
        self.clock.set(now_us);
    }
}

#[test]
fn the_memory_store_passes_the_suite() {
    let checks = pollster::block_on(conformance::run(&Memory::new(100_000))).unwrap();
    assert!(checks > 1_000, "only {checks} checks ran");
}

/// A pure bucket: the functions of the algorithms and nothing else.
#[derive(Default)]
struct Pure {
    full_at: token_bucket::State,
    window: Option<WindowState>,
    /// What the last record did not charge.
    cut_off: u64,
}

impl Pure {
    fn apply(&mut self, quota: &Quota, operation: Operation, now_us: u64, cost: u64) -> Decision {
        if operation == Operation::Reset {
            *self = Self::default();
            return match quota.algorithm() {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::peek(quota, None, now_us, 0),
                _ => WindowState::peek(quota, None, now_us, 0),
            };
        }
        let (decision, kept) = match (quota.algorithm(), operation) {
            (Algorithm::TokenBucket, Operation::Take) => token_bucket::decide(quota, self.full_at, now_us, cost),
            (Algorithm::TokenBucket, Operation::Peek) => {
                (token_bucket::peek(quota, self.full_at, now_us, cost), self.full_at)
            }
            (Algorithm::LeakyBucket, Operation::Take) => leaky_bucket::decide(quota, self.full_at, now_us, cost),
            (Algorithm::LeakyBucket, Operation::Peek) => {
                (leaky_bucket::peek(quota, self.full_at, now_us, cost), self.full_at)
            }
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, Operation::Charge) => {
                token_bucket::charge(quota, self.full_at, now_us, cost)
            }
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, Operation::Record) => {
                let (decision, kept, cut_off) = token_bucket::record(quota, self.full_at, now_us, cost);
                self.cut_off = cut_off;
                (decision, kept)
            }
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, _) => {
                token_bucket::refund(quota, self.full_at, now_us, cost)
            }
            (_, Operation::Take) => return WindowState::take(quota, &mut self.window, now_us, cost),
            (_, Operation::Charge) => return WindowState::charge(quota, &mut self.window, now_us, cost),
            (_, Operation::Record) => {
                let (decision, cut_off) = WindowState::record(quota, &mut self.window, now_us, cost);
                self.cut_off = cut_off;
                return decision;
            }
            (_, Operation::Peek) => return WindowState::peek(quota, self.window.as_ref(), now_us, cost),
            (_, _) => return WindowState::refund(quota, &mut self.window, now_us, cost),
        };
        self.full_at = kept;
        decision
    }
}

#[test]
fn the_pure_functions_answer_every_vector() {
    let mut steps = 0;
    for case in vectors::load().unwrap() {
        // One for each quota that cannot read the others' state.
        let mut buckets: Vec<(Quota, Pure)> = Vec::new();
        for (number, step) in case.steps.iter().enumerate() {
            let place = buckets.iter().position(|(quota, _)| quota.shares_bucket_with(&step.quota));
            let place = place.unwrap_or_else(|| {
                buckets.push((step.quota, Pure::default()));
                buckets.len() - 1
            });
            let decision = buckets[place].1.apply(&step.quota, step.operation, step.at_us, step.cost);
            assert_eq!(decision, step.expected, "{} step {number}: {step:?}", case.name);
            if step.operation == Operation::Record {
                assert_eq!(buckets[place].1.cut_off, step.cut_off, "{} step {number}: {step:?}", case.name);
            }
            steps += 1;
        }
    }
    assert!(steps > 500, "only {steps} steps ran");
}

#[test]
fn every_algorithm_has_its_module_and_at_least_25_cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = vectors::load().unwrap();
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        assert!(root.join(format!("src/algorithm/{name}.rs")).exists(), "{name} has no module");
        assert!(root.join(format!("vectors/{name}.json")).exists(), "{name} has no vectors");
        let count = cases.iter().filter(|case| case.name.starts_with(&format!("{name}: "))).count();
        assert!(count >= 25, "{name} has {count} cases");
    }
}

/// The contract asks for different buckets; a request that names one twice is
/// refused whole, in every algorithm and with any number of tiers.
#[test]
fn a_take_that_names_one_bucket_twice_is_refused_and_charges_nothing() {
    let memory = Memory::new(1_000);
    memory.set_now_us(1_000_000_000);
    for algorithm in Algorithm::ALL {
        let quota = Quota::new("100/h".parse().unwrap(), algorithm).unwrap();
        for count in [2, 3, 40] {
            let bucket = |number| TestBucket::new("twice", &format!("{algorithm:?} {count} {number}"));
            let buckets: Vec<TestBucket> = (0..count).map(bucket).collect();
            // Once with buckets that are new, once with buckets that are there.
            for _ in 0..2 {
                let mut tiers: Vec<Tier<'_>> = buckets.iter().map(|bucket| bucket.tier(&quota, 1)).collect();
                assert!(memory.store.apply_now(Operation::Take, &tiers).decisions.iter().all(Decision::is_allowed));
                tiers[0] = tiers[count - 1];
                let answer = memory.store.apply_now(Operation::Take, &tiers);
                assert_eq!((answer.decisions.len(), answer.by), (count, DecidedBy::Policy), "{algorithm:?}");
                assert!(answer.decisions.iter().all(|decision| decision.verdict == Verdict::Unavailable));
            }
            for bucket in &buckets {
                let left = memory.store.apply_now(Operation::Peek, &[bucket.tier(&quota, 0)]).decisions[0].remaining;
                assert_eq!(left, 98, "{algorithm:?}");
            }
        }
    }
}
