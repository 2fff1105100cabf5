//! Models of the store that loom runs through the interleavings of two threads,
//! with up to two or three preemptions:
//! `RUSTFLAGS="--cfg checkdam_loom" cargo test -p checkdam --lib --no-default-features models`.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::store::{BucketName, FailurePolicy};
use crate::time::ManualClock;

type ModelStore = MemoryStore<ManualClock>;

const NOW_US: u64 = 1_000_000_000;

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

fn store() -> Arc<ModelStore> {
    Arc::new(MemoryStore::with_clock(MemoryOptions { max_buckets: 1 }, ManualClock::at(NOW_US)))
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Takes from all subjects at once; whether it passed.
fn take(store: &ModelStore, quota: &Quota, subjects: &[&str], cost: u64) -> bool {
    let name = BucketName::new("model", 0);
    let tiers: Vec<Tier<'_>> = subjects
        .iter()
        .map(|subject| Tier {
            quota,
            bucket: &name,
            subject: subject.as_bytes(),
            cost,
            group: 0,
            on_failure: FailurePolicy::Closed,
            lease: None,
        })
        .collect();
    store.apply_now(Operation::Take, &tiers).decisions.iter().all(Decision::is_allowed)
}

#[test]
fn two_takes_of_the_last_token_of_a_new_bucket() {
    model(3, || {
        let (store, quota) = (store(), quota("1/h"));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["a"], 1))
        };
        let here = take(&store, &quota, &["a"], 1);
        assert!(here ^ other.join().unwrap(), "one of the two passes");
    });
}

#[test]
fn two_requests_of_two_tiers_in_opposite_order() {
    model(3, || {
        let (store, quota) = (store(), quota("2/h"));
        assert!(take(&store, &quota, &["b"], 1));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["a", "b"], 1))
        };
        let here = take(&store, &quota, &["b", "a"], 1);
        assert!(here ^ other.join().unwrap(), "b has one token left");
        assert!(take(&store, &quota, &["a"], 1), "the denied request charged nothing");
        assert!(!take(&store, &quota, &["a"], 1));
    });
}

#[test]
fn two_requests_of_two_tiers_that_are_there() {
    model(3, || {
        let (store, quota) = (store(), quota("3/h"));
        assert!(take(&store, &quota, &["a"], 1));
        assert!(take(&store, &quota, &["b"], 2));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["a", "b"], 1))
        };
        let here = take(&store, &quota, &["b", "a"], 1);
        assert!(here ^ other.join().unwrap(), "b has one token left");
        assert!(take(&store, &quota, &["a"], 1), "the denied request charged nothing");
        assert!(!take(&store, &quota, &["a"], 1));
    });
}

#[test]
fn a_take_of_one_tier_beside_one_of_two() {
    model(3, || {
        let (store, quota) = (store(), quota("2/h"));
        assert!(take(&store, &quota, &["a"], 1));
        assert!(take(&store, &quota, &["b"], 1));
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["a"], 1))
        };
        let here = take(&store, &quota, &["a", "b"], 1);
        assert!(here ^ other.join().unwrap(), "a has one token left");
        assert_eq!(take(&store, &quota, &["b"], 1), !here, "b is charged with a or not at all");
    });
}

#[test]
fn a_bucket_that_is_evicted_while_it_is_charged() {
    model(2, || {
        let (store, quota) = (store(), quota("4/h"));
        // Four places; the victim owes least and is the one to go. The newcomer
        // then owes as much as the victim did: only the generation of the place
        // tells their words apart.
        assert!(take(&store, &quota, &["victim"], 1));
        for busy in ["x", "y", "z"] {
            assert!(take(&store, &quota, &[busy], 3));
        }
        let newcomer = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["newcomer"], 1))
        };
        let mut admitted = 1;
        admitted += u64::from(take(&store, &quota, &["victim"], 1));
        newcomer.join().unwrap();
        for _ in 0..4 {
            admitted += u64::from(take(&store, &quota, &["victim"], 1));
        }
        assert!(admitted <= 4, "the victim of an eviction got {admitted} of 4");
    });
}
