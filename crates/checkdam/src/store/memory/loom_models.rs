//! loom models of the store: all interleavings of two threads, with up to two or
//! three preemptions: `RUSTFLAGS="--cfg checkdam_loom" cargo test -p checkdam --lib
//! --no-default-features models`.

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
    take_of(store, &BucketName::new("model", 0), quota, subjects, cost)
}

fn take_of(store: &ModelStore, name: &BucketName, quota: &Quota, subjects: &[&str], cost: u64) -> bool {
    let tiers: Vec<Tier<'_>> = subjects
        .iter()
        .map(|subject| Tier {
            quota,
            bucket: name,
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
        // Four slots; the victim owes least and is evicted. The new bucket then owes as much
        // as the victim did: only the generation of the slot distinguishes their words.
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

#[test]
fn a_pinned_bucket_that_loses_its_place_while_it_is_charged() {
    model(2, || {
        let (store, quota) = (store(), quota("4/h"));
        let pinned = || BucketName::new("model", 0).pinned(true);
        // Five pinned buckets for four slots.
        assert!(take_of(&store, &pinned(), &quota, &["victim"], 1));
        for busy in ["x", "y", "z"] {
            assert!(take_of(&store, &pinned(), &quota, &[busy], 3));
        }
        let newcomer = {
            let (store, name) = (Arc::clone(&store), pinned());
            thread::spawn(move || take_of(&store, &name, &quota, &["newcomer"], 2))
        };
        let mut admitted = 1 + u64::from(take_of(&store, &pinned(), &quota, &["victim"], 1));
        assert!(newcomer.join().unwrap());
        for _ in 0..4 {
            admitted += u64::from(take_of(&store, &pinned(), &quota, &["victim"], 1));
        }
        assert_eq!(admitted, 4, "neither lost nor charged twice");
        assert!(take_of(&store, &pinned(), &quota, &["newcomer"], 2) && take_of(&store, &pinned(), &quota, &["x"], 1));
    });
}

#[test]
fn two_takes_of_a_bucket_that_inherits_what_denies_it() {
    model(2, || {
        let (store, quota) = (store(), quota("4/h"));
        // The sketch has one cell: a bucket that is added again owes what the victim owed.
        assert!(take(&store, &quota, &["victim"], 3));
        for busy in ["w", "x", "y", "z"] {
            assert!(take(&store, &quota, &[busy], 4) || busy == "z");
        }
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || take(&store, &quota, &["victim"], 2))
        };
        let here = take(&store, &quota, &["victim"], 2);
        assert!(!here && !other.join().unwrap(), "the victim owes three of four");
        assert!(!take(&store, &quota, &["victim"], 2));
    });
}
