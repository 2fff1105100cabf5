//! A token or leaky bucket in one atomic word: the time at which it is full, the unit
//! of that time, the slot's generation, the origin of the bucket's state, and a lock
//! bit.

use crate::algorithm::token_bucket;
use crate::quota::Quota;
use crate::time::HORIZON_US;

/// From the lowest bit: 4 bits ticks per microsecond − 1, 53 bits `full_at`, 1 bit recorded
/// debt, 4 bits generation, 1 bit denied at insert, 1 bit locked. A `full_at` of 0 is a new
/// bucket.
///
/// The generation is incremented when a slot is reused, so that the words of two
/// buckets in one slot differ even if they owe the same. A bucket is marked as denied
/// at insert if it was denied when it was added: for what an evicted bucket may have
/// owed, or because it starts empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BucketWord(pub(super) u64);

const TICKS_BITS: u32 = 4;
const FULL_AT_MASK: u64 = token_bucket::DEBT_MARK - 1;
/// The time with the mark of recorded debt, which is the next bit.
const STATE_MASK: u64 = FULL_AT_MASK | token_bucket::DEBT_MARK;
const GENERATION_FIRST: u64 = 1 << 58;
const GENERATION: u64 = 15 * GENERATION_FIRST;
const DENIED_AT_INSERT: u64 = 1 << 62;
/// The bits that are constant while a bucket is in its slot.
const PLACE: u64 = GENERATION | DENIED_AT_INSERT;
const LOCKED: u64 = 1 << 63;

impl BucketWord {
    /// `state` of a bucket with that quota.
    #[inline]
    pub(super) fn of(quota: &Quota, state: token_bucket::State) -> Self {
        let full_at = state.unwrap_or(0).min(STATE_MASK);
        Self(full_at << TICKS_BITS | (quota.ticks_per_us - 1))
    }

    /// This state for the bucket that `old` is of.
    #[inline]
    pub(super) fn replacing(self, old: Self) -> Self {
        Self(self.0 & !PLACE | old.0 & PLACE)
    }

    /// This state for the next bucket in the slot of `old`.
    pub(super) fn succeeding(self, old: Self) -> Self {
        Self(self.0 & !GENERATION | old.0.wrapping_add(GENERATION_FIRST) & GENERATION)
    }

    /// The same, marked as denied at insert, or not.
    pub(super) fn with_denied_at_insert(self, is_denied_at_insert: bool) -> Self {
        Self(self.0 & !DENIED_AT_INSERT | if is_denied_at_insert { DENIED_AT_INSERT } else { 0 })
    }

    pub(super) fn is_denied_at_insert(self) -> bool {
        self.0 & DENIED_AT_INSERT != 0
    }

    /// Whether it is marked as owing more than its capacity.
    pub(super) fn is_recorded_debt(self) -> bool {
        self.0 >> TICKS_BITS & token_bucket::DEBT_MARK != 0
    }

    /// Whether neither the bucket nor its slot was ever used.
    #[inline]
    pub(super) fn is_new(self) -> bool {
        self.full_at() == 0
    }

    /// The bucket's state, in the ticks of its quota.
    #[inline]
    pub(super) fn state(self) -> token_bucket::State {
        let state = self.0 >> TICKS_BITS & STATE_MASK;
        (state != 0).then_some(state)
    }

    /// When the bucket is full again, in microseconds, rounded up.
    pub(super) fn full_at_us(self) -> u64 {
        match self.ticks_per_us() {
            // Division is slow, and most quotas need none.
            1 => self.full_at(),
            per_us => self.full_at().div_ceil(per_us),
        }
    }

    /// Whether the bucket owes nothing.
    #[inline]
    pub(super) fn is_full(self, now_us: u64) -> bool {
        self.full_at() <= now_us.min(HORIZON_US) * self.ticks_per_us()
    }

    /// The state alone, without the bits of its slot.
    pub(super) fn state_only(self) -> Self {
        Self(self.0 & !(PLACE | LOCKED))
    }

    #[inline]
    pub(super) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    pub(super) fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    #[inline]
    pub(super) fn unlocked(self) -> Self {
        Self(self.0 & !LOCKED)
    }

    /// When the bucket is full again, in the ticks of its quota.
    #[inline]
    pub(super) fn full_at(self) -> u64 {
        self.0 >> TICKS_BITS & FULL_AT_MASK
    }

    #[inline]
    fn ticks_per_us(self) -> u64 {
        (self.0 & ((1 << TICKS_BITS) - 1)) + 1
    }
}
