//! The public conformance suite, which every store must pass.
//!
//! A store's test makes a [`Harness`] and calls [`run`]. The suite consists of the
//! vectors (the specification as data), the behaviours that the contract of [`Store`]
//! demands, and the [`oracle`] that checks what a store admitted under contention.

mod behaviours;
pub mod oracle;
pub mod vectors;

use crate::quota::Quota;
use crate::store::{BucketName, FailurePolicy, Operation, Store, Tier, TierDecisions};

/// A store whose clock the suite can set.
pub trait Harness {
    /// The store under test.
    type Store: Store;

    /// The store under test.
    fn store(&self) -> &Self::Store;

    /// Sets the store's clock, forwards or backwards.
    fn set_now_us(&self, now_us: u64);
}

/// Runs the whole suite and returns how many checks it made.
///
/// # Errors
/// Has the check that failed, the expected and the actual result.
pub async fn run<H: Harness>(harness: &H) -> Result<usize, String> {
    Ok(vectors::run(harness).await? + behaviours::run(harness).await?)
}

/// One bucket in a test: its name and its subject.
#[derive(Debug, Clone)]
pub struct TestBucket {
    name: BucketName,
    subject: Vec<u8>,
}

impl TestBucket {
    /// A bucket of its own.
    #[must_use]
    pub fn new(rule: &str, subject: &str) -> Self {
        Self { name: BucketName::new(rule, 0), subject: subject.as_bytes().to_vec() }
    }

    /// Its rule's part of the key.
    #[must_use]
    pub const fn name(&self) -> &BucketName {
        &self.name
    }

    /// This bucket as an enforced tier.
    #[must_use]
    pub fn tier<'a>(&'a self, quota: &'a Quota, cost: u64) -> Tier<'a> {
        let (bucket, subject, on_failure) = (&self.name, &self.subject, FailurePolicy::Closed);
        Tier { quota, bucket, subject, cost, group: 0, on_failure, lease: None }
    }
}

async fn apply<H: Harness>(harness: &H, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
    harness.store().apply(operation, tiers).await
}
