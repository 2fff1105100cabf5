//! Failure policies: decides requests while Redis does not reply, each rule by its
//! own policy.
//!
//! `local` continues from the last known state. Every reply of Redis raises a bucket
//! in memory to what the shared bucket owes. A token of this node's share takes
//! `nodes` times as long to return, so a debt in time is the same for both; counts
//! are divided. A reply never lowers the memory: what was admitted here stays owed
//! here until it has returned, however often Redis fails and recovers. It is charged
//! to Redis once that replies again.

use std::sync::Arc;

use smallvec::SmallVec;

use super::deferred_charges::DeferredCharges;
use super::key::KeyMaker;
use crate::decision::{DecidedBy, Decision, Verdict};
use crate::quota::Quota;
use crate::store::{
    DeniedGroups, FailurePolicy, MemoryOptions, MemoryStore, Operation, TIERS_INLINE, Tier, TierDecisions,
};
use crate::time::{Clock, ManualClock, SystemClock};

/// Buckets of this node's own, each a share of the quota.
#[derive(Debug)]
pub(super) struct Fallback {
    nodes: u64,
    memory: MemoryStore<NodeClock>,
    pub(super) charges: Arc<DeferredCharges>,
}

/// This machine's clock; in tests one that they set.
#[derive(Debug)]
pub(super) enum NodeClock {
    System(Box<SystemClock>),
    Manual(Arc<ManualClock>),
}

impl NodeClock {
    pub(super) fn new(manual: Option<Arc<ManualClock>>) -> Self {
        manual.map_or_else(|| Self::System(Box::default()), Self::Manual)
    }

    /// The time on a clock that never jumps, and the time of day.
    #[inline]
    pub(super) fn read(&self) -> (u64, u64) {
        match self {
            Self::System(clock) => clock.read(),
            Self::Manual(clock) => (clock.now_us(), clock.now_us()),
        }
    }
}

impl Clock for NodeClock {
    #[inline]
    fn now_us(&self) -> u64 {
        match self {
            Self::System(clock) => clock.now_us(),
            Self::Manual(clock) => clock.now_us(),
        }
    }
}

impl Fallback {
    pub(super) fn new(nodes: u64, max_buckets: usize, clock: Option<Arc<ManualClock>>) -> Self {
        let memory = MemoryStore::with_clock(MemoryOptions { max_buckets }, NodeClock::new(clock));
        Self { nodes, memory, charges: Arc::default() }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.memory.clock().now_us()
    }

    /// Updates the local buckets from a reply of Redis. Only needed for `local`.
    pub(super) fn learn(&self, tier: &Tier<'_>, decision: &Decision) {
        if tier.on_failure != FailurePolicy::Local {
            return;
        }
        if tier.quota.algorithm.is_bucket() {
            if decision.reset_after_us > 0 {
                self.memory.raise_debt(tier, decision.reset_after_us);
            }
            return;
        }
        let used = decision.used();
        if used > 0 {
            let quota = &tier.quota.shared_among(self.nodes);
            self.memory.raise_count(&Tier { quota, ..*tier }, used.div_ceil(self.nodes.max(1)));
        }
    }

    pub(super) fn forget(&self, tiers: &[Tier<'_>], keys: &KeyMaker) {
        self.memory.apply_now(Operation::Reset, tiers);
        keys.keys(tiers).iter().for_each(|key| self.charges.forget(key));
    }

    /// Local tiers are charged together or not at all, and not at all if a
    /// closed tier denies the request.
    pub(super) fn apply(&self, operation: Operation, tiers: &[Tier<'_>], keys: &KeyMaker) -> TierDecisions {
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
        if operation == Operation::Record {
            self.note_records(tiers, &local, keys);
        }
        let answer = self.memory.apply_now(operation, &local);
        if operation == Operation::Take {
            self.note_charges(tiers.iter().filter(is_local), &local, &answer, keys);
        }
        let mut decided = answer.decisions.iter().copied();
        let undecided = |tier: &Tier<'_>, verdict| Decision::undecided(tier.quota.limit(), verdict);
        let decide = |tier: &Tier<'_>| match tier.on_failure {
            FailurePolicy::Local => decided.next().unwrap_or_else(|| undecided(tier, Verdict::Unavailable)),
            FailurePolicy::Open => undecided(tier, Verdict::Allowed),
            FailurePolicy::Closed => undecided(tier, Verdict::Unavailable),
        };
        TierDecisions {
            decisions: tiers.iter().map(decide).collect(),
            at_us: self.memory.clock().now_us(),
            by: if local.is_empty() { DecidedBy::Policy } else { DecidedBy::Local },
            cut_off: 0,
        }
    }

    /// Queues what is to be charged to Redis once it replies again.
    fn note_charges<'a>(
        &self,
        shared: impl Iterator<Item = &'a Tier<'a>>,
        local: &[Tier<'_>],
        answer: &TierDecisions,
        keys: &KeyMaker,
    ) {
        let denied = DeniedGroups::new(local, answer.decisions.iter().map(Decision::is_allowed));
        for ((tier, share), decision) in shared.zip(local).zip(&answer.decisions) {
            if decision.is_allowed() && denied.is_charged(share) {
                let quotas = (tier.quota, share.quota);
                self.charges.add(&keys.key(tier), quotas, decision, tier.cost, answer.at_us);
            }
        }
    }

    /// Queues what was used, whatever the policies, for Redis once it replies again. Called
    /// before the local buckets are charged: what those owe is what Redis last said.
    fn note_records(&self, tiers: &[Tier<'_>], local: &[Tier<'_>], keys: &KeyMaker) {
        let standing = self.memory.apply_now(Operation::Peek, local);
        let mut owed_us = standing.decisions.iter().map(|decision| decision.reset_after_us);
        for tier in tiers {
            let owed_us = if tier.on_failure == FailurePolicy::Local { owed_us.next() } else { None };
            if tier.cost > 0 {
                self.charges.record(&keys.key(tier), tier.quota, tier.cost, owed_us, standing.at_us);
            }
        }
    }

    pub(super) fn maintain(&self) {
        self.memory.sweep();
    }
}
