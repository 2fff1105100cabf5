//! Prepaid tokens and their expiry in one atomic word.
//!
//! From the top: the expiry in units of 64 µs (32 bits, modulo 2^32: correct for
//! words that are read at least once in 38 hours), a number that changes with every
//! lease (8 bits), and the tokens (24 bits). So tokens are always taken from a known
//! lease, however long the thread was preempted.

use crate::sync::{AtomicU64, Ordering};

/// The most tokens in one cell.
pub(super) const TOKENS_MAX: u64 = (1 << TOKEN_BITS) - 1;
const TOKEN_BITS: u32 = 24;
const NUMBER_BITS: u32 = 8;
const END_SHIFT: u32 = TOKEN_BITS + NUMBER_BITS;
const END_UNIT_US: u64 = 64;

/// Tokens of one lease.
#[derive(Debug)]
pub(super) struct TokenCell(AtomicU64);

/// What a cell held at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellState(u64);

impl CellState {
    pub(super) const fn tokens(self) -> u64 {
        self.0 & TOKENS_MAX
    }

    /// Rounded against the holder.
    pub(super) const fn is_live(self, now_us: u64) -> bool {
        self.left_units(now_us) > 0
    }

    /// How much longer it may be spent, rounded down; 0 if no longer.
    pub(super) const fn left_us(self, now_us: u64) -> u64 {
        let units = self.left_units(now_us);
        if units > 0 { units as u64 * END_UNIT_US } else { 0 }
    }

    const fn left_units(self, now_us: u64) -> i32 {
        ((self.0 >> END_SHIFT) as u32).wrapping_sub((now_us / END_UNIT_US) as u32) as i32
    }

    /// Whether it ends before the other.
    pub(super) const fn ends_before(self, other: Self) -> bool {
        (((self.0 >> END_SHIFT) as u32).wrapping_sub((other.0 >> END_SHIFT) as u32) as i32) < 0
    }

    /// Which lease it is.
    pub(super) const fn lease(self) -> u64 {
        self.0 >> TOKEN_BITS
    }

    const fn with(self, tokens: u64) -> Self {
        Self(self.0 & !TOKENS_MAX | tokens)
    }
}

impl TokenCell {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn load(&self) -> CellState {
        CellState(self.0.load(Ordering::Acquire))
    }

    /// Replaces the observed value by the same lease with this many tokens.
    #[inline]
    pub(super) fn set(&self, seen: CellState, tokens: u64) -> bool {
        self.0.compare_exchange(seen.0, seen.with(tokens).0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Begins a lease in place of the observed value, which others may still spend until
    /// then; none if they just did.
    pub(super) fn begin(&self, seen: CellState, tokens: u64, end_us: u64) -> Option<CellState> {
        let number = ((seen.0 >> TOKEN_BITS) + 1) & ((1 << NUMBER_BITS) - 1);
        let end = (end_us / END_UNIT_US) & u64::from(u32::MAX);
        let next = end << END_SHIFT | number << TOKEN_BITS | tokens.min(TOKENS_MAX);
        self.0.compare_exchange(seen.0, next, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(CellState(next))
    }

    /// Takes out everything; gives what was in it.
    pub(super) fn empty(&self) -> CellState {
        loop {
            let seen = self.load();
            if seen.tokens() == 0 || self.set(seen, 0) {
                return seen;
            }
        }
    }

    /// Puts tokens back into the lease that they are of; whether it was still there.
    pub(super) fn put_back(&self, lease: u64, tokens: u64) -> bool {
        loop {
            let seen = self.load();
            if seen.lease() != lease || seen.tokens() + tokens > TOKENS_MAX {
                return false;
            }
            if self.set(seen, seen.tokens() + tokens) {
                return true;
            }
        }
    }
}
