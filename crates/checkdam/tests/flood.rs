//! Ten million keys against a bound of one million: memory stays under the
//! bound that the README states, and nobody's bucket is reset.
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

#[test]
fn a_flood_of_keys_neither_exhausts_memory_nor_resets_anyone() {
    flood(Algorithm::TokenBucket, 10_000_000, 1_000_000, 24 * MIB);
    flood(Algorithm::FixedWindow, 2_000_000, 100_000, 24 * MIB);
    flood(Algorithm::SlidingWindow { strict: false }, 2_000_000, 100_000, 24 * MIB);
    flood(Algorithm::SlidingWindow { strict: true }, 2_000_000, 100_000, 40 * MIB);
    flood(Algorithm::SlidingLog, 2_000_000, 100_000, 40 * MIB);
}
