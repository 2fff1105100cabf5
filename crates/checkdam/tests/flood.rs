//! Ten million keys against a bound of one million: memory stays under the bound that
//! docs/proofs.md states, and no bucket is reset.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use checkdam::conformance::TestBucket;
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Tier};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Quota};

const MIB: u64 = 1 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn flood(algorithm: Algorithm, keys: u64, max_buckets: usize, bound_bytes: u64) {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let before = resident_bytes();
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets }, Arc::clone(&clock));
    let quota = Quota::new("100/h".parse().unwrap(), algorithm).unwrap();
    // Every key of the flood owes longer than the flood lasts: all are live.
    let victims: Vec<TestBucket> = (0..50).map(|n| TestBucket::new("flood", &format!("victim {n}"))).collect();
    for victim in &victims {
        let answer = store.apply_now(Operation::Take, &[victim.tier(&quota, 100)]);
        assert!(answer.decisions[0].is_allowed());
    }
    let name = TestBucket::new("flood", "");
    let mut most = 0;
    for key in 0..keys {
        let subject = key.to_le_bytes();
        store.apply_now(Operation::Take, &[Tier { subject: &subject, ..name.tier(&quota, 1) }]);
        if key % 1_000 == 0 {
            clock.advance(1_000);
        }
        if key % 1_000_000 == 0 {
            most = most.max(resident_bytes());
            for victim in &victims {
                let decision = store.apply_now(Operation::Take, &[victim.tier(&quota, 1)]).decisions[0];
                assert!(!decision.is_allowed(), "{algorithm:?}: an exhausted key passed after {key} keys");
            }
        }
    }
    let grown = most.max(resident_bytes()) - before;
    let stats = store.stats();
    println!("{algorithm:?}: {keys} keys, {} buckets, {} evicted, {} MiB", stats.buckets, stats.evicted, grown / MIB);
    assert!(stats.buckets <= max_buckets, "{algorithm:?}: {} buckets", stats.buckets);
    assert!(grown < bound_bytes, "{algorithm:?}: grew by {} MiB", grown / MIB);
    // The exhausted recover in their time, as if there had been no flood.
    clock.advance(2 * 3_600_000_000);
    for victim in &victims {
        assert!(store.apply_now(Operation::Take, &[victim.tier(&quota, 100)]).decisions[0].is_allowed());
    }
}

/// One after the other, so that none counts the memory of another.
#[test]
fn a_flood_of_keys_neither_exhausts_memory_nor_resets_anyone() {
    flood(Algorithm::TokenBucket, 10_000_000, 1_000_000, 24 * MIB);
    flood(Algorithm::FixedWindow, 2_000_000, 100_000, 24 * MIB);
    flood(Algorithm::SlidingWindow { strict: false }, 2_000_000, 100_000, 24 * MIB);
    flood(Algorithm::SlidingWindow { strict: true }, 2_000_000, 100_000, 40 * MIB);
    flood(Algorithm::SlidingLog, 2_000_000, 100_000, 40 * MIB);
    logs_that_have_been_long_give_their_memory_back();
}

/// A log that was long keeps no memory that its weight does not count.
fn logs_that_have_been_long_give_their_memory_back() {
    const SUBJECTS: u64 = 200;
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 4_000 }, Arc::clone(&clock));
    let quota = Quota::new("10000/m".parse().unwrap(), Algorithm::SlidingLog).unwrap();
    let before = resident_bytes();
    for number in 0..SUBJECTS {
        let bucket = TestBucket::new("logs", &number.to_string());
        let take = || store.apply_now(Operation::Take, &[bucket.tier(&quota, 1)]).decisions[0].is_allowed();
        for _ in 0..6_000 {
            clock.advance(1);
            assert!(take());
        }
        // All but the last of them leave; the bucket stays.
        clock.advance(59_999_999);
        assert!(take());
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{} logs, {} KiB", store.stats().buckets, grown >> 10);
    assert!(grown < 4 * MIB, "grew by {} MiB", grown / MIB);
}
