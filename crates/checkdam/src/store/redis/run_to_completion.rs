//! Runs a future to its end even when its caller is dropped.
//!
//! A caller may be dropped at any await: its client has disconnected, or its own
//! timeout was shorter. Work that charges in several steps must not stop between two
//! of them, so it owns what it needs and is spawned on the runtime.

use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::lease::LeaseTerms;
use crate::quota::Quota;
use crate::store::{BucketName, FailurePolicy, TIERS_INLINE, Tier};

/// A future that is polled by its caller, and by a task of its own from the moment
/// the caller drops it.
pub(super) struct RunToCompletion<T: Send + 'static> {
    runtime: Handle,
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// What was never polled has done nothing, and need not be finished.
    is_begun: bool,
}

impl<T: Send + 'static> RunToCompletion<T> {
    pub(super) fn new(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { runtime: runtime.clone(), work: Some(Box::pin(work)), is_begun: false }
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.is_begun = true;
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.is_begun) {
            self.runtime.spawn(work);
        }
    }
}

/// The tiers of a request, owned.
pub(super) struct OwnedTiers {
    tiers: SmallVec<[OwnedTier; TIERS_INLINE]>,
    /// The subjects' bytes, one after another.
    subjects: Vec<u8>,
}

struct OwnedTier {
    quota: Quota,
    bucket: BucketName,
    /// Where its subject ends; it begins where the one before ends.
    subject_end: usize,
    cost: u64,
    group: u8,
    on_failure: FailurePolicy,
    lease: Option<LeaseTerms>,
}

impl OwnedTiers {
    pub(super) fn new(tiers: &[Tier<'_>]) -> Self {
        let mut subjects = Vec::with_capacity(tiers.iter().map(|tier| tier.subject.len()).sum());
        let own = |tier: &Tier<'_>| {
            let Tier { quota, bucket, subject, cost, group, on_failure, lease } = *tier;
            subjects.extend_from_slice(subject);
            let (quota, bucket, subject_end) = (*quota, bucket.clone(), subjects.len());
            OwnedTier { quota, bucket, subject_end, cost, group, on_failure, lease }
        };
        let tiers = tiers.iter().map(own).collect();
        Self { tiers, subjects }
    }

    pub(super) fn tiers(&self) -> SmallVec<[Tier<'_>; TIERS_INLINE]> {
        let mut start = 0;
        let mut tiers = SmallVec::with_capacity(self.tiers.len());
        for OwnedTier { quota, bucket, subject_end, cost, group, on_failure, lease } in &self.tiers {
            let subject = &self.subjects[start..*subject_end];
            start = *subject_end;
            let (cost, group, on_failure, lease) = (*cost, *group, *on_failure, *lease);
            tiers.push(Tier { quota, bucket, subject, cost, group, on_failure, lease });
        }
        tiers
    }
}
