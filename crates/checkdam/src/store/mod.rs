//! Stores of buckets, and the contract that every store keeps.

mod any;
mod decisions;
pub mod memory;
#[cfg(feature = "redis")]
#[clippy::msrv = "1.88"]
pub mod redis;
mod take_terms;

pub use any::AnyStore;
pub use decisions::Decisions;
pub use memory::{MemoryOptions, MemoryStats, MemoryStore};
pub use take_terms::TakeTerms;

#[cfg(feature = "redis")]
use std::sync::OnceLock;

pub use crate::decision::FailurePolicy;
use crate::decision::{DecidedBy, Decision, Verdict};
use crate::hash::TagBits;
use crate::lease::LeaseTerms;
use crate::quota::Quota;

/// The maximum number of tiers of a request: one with more is denied as undecided,
/// since no store could charge them all at once.
pub const TIERS_MAX: usize = 256;

/// How many tiers a request may have before deciding it needs the heap.
pub(crate) const TIERS_INLINE: usize = 8;

/// What is done to the tiers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Charge every tier, or none.
    Take,
    /// Answer as a take would, charging nothing.
    Peek,
    /// Give back the cost, at most what is owed.
    Refund,
    /// Charge every tier by itself for what has passed already, elsewhere: the
    /// cost, or what is left if that is less. Never denied.
    Charge,
    /// Charge every tier by itself for what was used, whatever is left: beyond the limit
    /// the bucket is in debt. Never denied; each decision says whether a take of nothing
    /// would pass afterwards.
    Record,
    /// Forget the buckets.
    Reset,
}

/// The rule and limit that a bucket belongs to.
///
/// A bucket is this name, the arithmetic of its quota and its subject. The arithmetic
/// ([`Quota::shares_bucket_with`]) is a part of it because no other arithmetic can
/// read the state: while nodes have different versions of a rule, each counts in
/// buckets that it can read. The limit's position in its rule is not a part, so
/// limits may be listed in any order.
#[derive(Debug, Clone)]
pub struct BucketName {
    text: String,
    hash: u64,
    /// A keyed hash as characters, and what of: the key and the quota's arithmetic.
    #[cfg(feature = "redis")]
    keyed: OnceLock<(u64, [u8; Self::KEYED_LENGTH])>,
}

impl PartialEq for BucketName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for BucketName {}

impl BucketName {
    /// The length of a keyed hash.
    #[cfg(feature = "redis")]
    pub(crate) const KEYED_LENGTH: usize = 9;

    /// A bucket of a rule. `ordinal` distinguishes limits of the rule whose quotas have
    /// the same arithmetic; it is 0 for the first of them.
    #[must_use]
    pub fn new(rule: &str, ordinal: usize) -> Self {
        let text = format!("{rule}\0{ordinal}");
        let hash = crate::hash::stable_hash(text.as_bytes()) & !TagBits::MASK;
        Self {
            text,
            hash,
            #[cfg(feature = "redis")]
            keyed: OnceLock::new(),
        }
    }

    /// For a key without attributes, which has one bucket: the memory store never
    /// evicts it.
    #[must_use]
    pub const fn pinned(mut self, is_pinned: bool) -> Self {
        self.hash = self.hash & !TagBits::MASK | if is_pinned { TagBits::PINNED } else { 0 };
        self
    }

    /// The rule's name, a zero byte and the ordinal.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A hash of the text, the same in every process of this build; the lowest bits
    /// encode whether its buckets are pinned.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The keyed hash of the name with a quota's arithmetic: cached for the first
    /// `owner`, a number that identifies both the key and the quota, and computed for any
    /// other.
    #[cfg(feature = "redis")]
    pub(crate) fn keyed(&self, owner: u64, make: impl Fn() -> [u8; Self::KEYED_LENGTH]) -> [u8; Self::KEYED_LENGTH] {
        match self.keyed.get_or_init(|| (owner, make())) {
            (known, hash) if *known == owner => *hash,
            _ => make(),
        }
    }
}

/// One bucket that a request must pass: the one of its quota's arithmetic, its
/// name and its subject.
#[derive(Debug, Clone, Copy)]
pub struct Tier<'a> {
    /// The quota of the bucket. Quotas that cannot read each other's state have separate
    /// buckets, whatever their name.
    pub quota: &'a Quota,
    /// Which rule and limit it belongs to.
    pub bucket: &'a BucketName,
    /// The subject, in a form that no two subjects share.
    pub subject: &'a [u8],
    /// How much to charge.
    pub cost: u64,
    /// 0: enforced. Any other number is a rule in shadow: it is charged if the
    /// enforced tiers pass and all tiers of that number do.
    pub group: u8,
    /// The decision if the store does not reply.
    pub on_failure: FailurePolicy,
    /// On which terms a store that is shared may prepay for it; none: never.
    pub lease: Option<LeaseTerms>,
}

impl Tier<'_> {
    /// A hash of the bucket's name and of the quota's arithmetic.
    #[inline]
    pub(crate) const fn bucket_hash(&self) -> u64 {
        self.bucket.hash ^ self.quota.arithmetic
    }
}

/// A store's decisions, one per tier, in their order.
#[derive(Debug, Clone)]
pub struct TierDecisions {
    /// One decision a tier.
    pub decisions: Decisions,
    /// The store's time of the decision.
    pub at_us: u64,
    /// Where the tiers were decided.
    pub by: DecidedBy,
    /// Of a record, what was not charged because a tier's debt would have exceeded
    /// [`Quota::debt_max`], summed over the tiers.
    pub cut_off: u64,
}

impl TierDecisions {
    /// Empty, until a store has decided.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { decisions: Decisions::new(), at_us: 0, by: DecidedBy::Policy, cut_off: 0 }
    }

    /// The decisions if no store was called: nothing passes.
    pub(crate) fn unavailable(tiers: &[Tier<'_>]) -> Self {
        let decisions = tiers.iter().map(|tier| Decision::undecided(tier.quota.limit(), Verdict::Unavailable));
        Self { decisions: decisions.collect(), ..Self::new() }
    }
}

impl Default for TierDecisions {
    fn default() -> Self {
        Self::new()
    }
}

/// A store of buckets, which decides on them.
///
/// The contract, which [`conformance`](crate::conformance) checks:
/// 1. A take charges all tiers of group 0 or none of them, whatever runs beside
///    it; a denied take charges nothing.
/// 2. The store is the clock: one time a call, at most as late as the answer;
///    a peek at no tiers returns it, or this machine's where it costs a round trip.
/// 3. What is admitted never exceeds what the algorithm's pure function would
///    admit in the order of the store's times.
/// 4. `Peek` changes nothing. `Refund` never gives more than is owed. `Charge`
///    never takes more than is left. `Record` takes what it is told, and while a
///    bucket is in debt no take passes, not even one of nothing. After `Reset` a
///    bucket is as new.
/// 5. A bucket is the name, the subject and the arithmetic of the quota
///    ([`Quota::shares_bucket_with`]) of a tier. So the limit of a window may
///    differ from call to call, and its counts are kept; any other change of a
///    quota leads to another bucket, and the old one stays as it is. What each
///    quota admits is within its own bound while others are used beside it.
/// 6. A take that is denied, and a peek, never lower what is owed. Only after a
///    step back of the clock of more than [five
///    seconds](crate::time::STEP_BACK_HELD_US) a bucket that owes more than its
///    burst is moved to the new time, and is then empty; one in debt then owes what may be
///    owed at most.
/// 7. The tiers of one call are different buckets; the memory store rejects a
///    take that names one twice, undecided and uncharged.
pub trait Store: Send + Sync {
    /// Applies `operation` to all `tiers` at one instant.
    fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> impl Future<Output = TierDecisions> + Send;

    /// The same without a future, into an empty `answer`, if it can be decided without
    /// waiting; `false`, with nothing done, if not. If `apply` needs a runtime, so does
    /// this.
    #[inline]
    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        let _ = (operation, tiers, answer);
        false
    }

    /// Takes the tiers, then refunds and records what the terms demand. The decisions are
    /// those of the take. If a step waits, dropping the future must not stop it before the
    /// last one.
    fn take_on_terms(&self, tiers: &[Tier<'_>], terms: &TakeTerms) -> impl Future<Output = TierDecisions> + Send {
        async move {
            let mut answer = self.apply(terms.operation(), tiers).await;
            let refunds = terms.refunds(tiers, &answer);
            if !refunds.is_empty() {
                self.apply(Operation::Refund, &refunds).await;
            }
            let records = terms.records(tiers, &answer);
            if !records.is_empty() {
                answer.cut_off = self.apply(Operation::Record, &records).await.cut_off;
            }
            answer
        }
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> impl Future<Output = TierDecisions> + Send {
        (**self).apply(operation, tiers)
    }

    #[inline]
    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        (**self).try_apply_now(operation, tiers, answer)
    }

    fn take_on_terms(&self, tiers: &[Tier<'_>], terms: &TakeTerms) -> impl Future<Output = TierDecisions> + Send {
        (**self).take_on_terms(tiers, terms)
    }
}

/// The groups of tiers in which one was denied.
pub(crate) struct DeniedGroups([u64; 4]);

impl DeniedGroups {
    pub(crate) fn new(tiers: &[Tier<'_>], allowed: impl Iterator<Item = bool>) -> Self {
        let mut bits = [0; 4];
        for (tier, allowed) in tiers.iter().zip(allowed) {
            if !allowed {
                bits[usize::from(tier.group) / 64] |= 1 << (tier.group % 64);
            }
        }
        Self(bits)
    }

    /// Whether a take charges the tier: all enforced tiers pass, and all of its group.
    pub(crate) fn is_charged(&self, tier: &Tier<'_>) -> bool {
        !self.contains(0) && !self.contains(tier.group) && tier.cost > 0
    }

    pub(super) fn contains(&self, group: u8) -> bool {
        self.0[usize::from(group) / 64] & 1 << (group % 64) != 0
    }
}
