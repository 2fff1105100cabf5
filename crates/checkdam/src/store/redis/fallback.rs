//! What is answered when Redis is not: each rule by its own policy.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::{DecidedBy, Decision, Verdict};
use crate::quota::Quota;
use crate::store::{Answer, FailurePolicy, MemoryOptions, MemoryStore, Operation, TIERS_INLINE, Tier};
use crate::time::{Clock, ManualClock, SystemClock};

/// Buckets of this node's own, each a share of the quota.
#[derive(Debug)]
pub(super) struct Fallback {
    nodes: u64,
    memory: MemoryStore<NodeClock>,
}

/// This machine's clock; in tests one that they set.
#[derive(Debug)]
enum NodeClock {
    System(Box<SystemClock>),
    Manual(Arc<ManualClock>),
}

impl Clock for NodeClock {
    #[inline]
    fn now_us(&self) -> u64 {
        match self {
            Self::System(clock) => clock.now_us(),
            Self::Manual(clock) => clock.now_us(),
        }
    }

    fn discipline(&self) {
        if let Self::System(clock) = self {
            clock.discipline();
        }
    }
}

impl Fallback {
    pub(super) fn new(nodes: u64, max_buckets: usize, clock: Option<Arc<ManualClock>>) -> Self {
        let clock = clock.map_or_else(|| NodeClock::System(Box::default()), NodeClock::Manual);
        Self { nodes, memory: MemoryStore::with_clock(MemoryOptions { max_buckets }, clock) }
    }

    /// Local tiers are charged together or not at all, and not at all if a
    /// closed tier denies the request.
    pub(super) fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Answer {
        let is_local = |tier: &&Tier<'_>| tier.on_failure == FailurePolicy::Local;
        let is_closed = |tier: &Tier<'_>| tier.group == 0 && tier.on_failure == FailurePolicy::Closed;
        let quotas: SmallVec<[Quota; TIERS_INLINE]> =
            tiers.iter().filter(is_local).map(|tier| tier.quota.shared_among(self.nodes)).collect();
        let local: SmallVec<[Tier<'_>; TIERS_INLINE]> =
            tiers.iter().filter(is_local).zip(&quotas).map(|(tier, quota)| Tier { quota, ..*tier }).collect();
        let operation = match operation {
            Operation::Take if tiers.iter().any(is_closed) => Operation::Peek,
            other => other,
        };
        let answer = self.memory.apply_now(operation, &local);
        let mut decided = answer.decisions.iter().copied();
        let undecided = |tier: &Tier<'_>, verdict| Decision::undecided(tier.quota.limit(), verdict);
        let decide = |tier: &Tier<'_>| match tier.on_failure {
            FailurePolicy::Local => decided.next().unwrap_or_else(|| undecided(tier, Verdict::Unavailable)),
            FailurePolicy::Open => undecided(tier, Verdict::Allowed),
            FailurePolicy::Closed => undecided(tier, Verdict::Unavailable),
        };
        Answer {
            decisions: tiers.iter().map(decide).collect(),
            at_us: self.memory.clock().now_us(),
            by: if local.is_empty() { DecidedBy::Policy } else { DecidedBy::Local },
        }
    }

    pub(super) fn maintain(&self) {
        self.memory.maintain();
    }
}
