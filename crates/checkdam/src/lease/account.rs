//! An account: the leases of one subject on this node.

mod refill;

use super::token_cell::{CellState, TokenCell};
use crate::hash::Tag;
use crate::sync::{AtomicU64, Ordering};

/// One subject's prepaid tokens, in at most two leases: the one being spent, and the
/// one that was fetched before it is exhausted.
///
/// The thread that holds `is_asking` is the only one that requests leases, measures
/// demand and reassigns the account; spending needs no lock.
#[derive(Debug)]
#[repr(align(64))]
pub struct Account {
    /// The subject's tag; 0: unused.
    tag: AtomicU64,
    cells: [TokenCell; 2],
    /// At this number of remaining tokens the next lease is fetched.
    low: AtomicU64,
    /// Until then no more tokens are available: requests are denied from here.
    ask_after_us: AtomicU64,
    /// What was denied here since it was last measured.
    denied: AtomicU64,
    is_asking: AtomicU64,
    /// A lease with less time left than this no longer counts as available tokens.
    ending_us: AtomicU64,
    /// Smallest cost known to be denied until then.
    denied_least: AtomicU64,
    denied_until_us: AtomicU64,
    /// When the last request that was denied would pass.
    retry_at_us: AtomicU64,
    /// What the shared bucket had left after the last grant.
    shared_left: AtomicU64,
    /// When it would then owe nothing more.
    reset_at_us: AtomicU64,
    /// In thousandths of a token a second.
    demand: AtomicU64,
    measured_us: AtomicU64,
    /// Tokens that were granted, less those returned unspent, at the last measurement.
    spent: AtomicU64,
    granted: AtomicU64,
    left_unspent: AtomicU64,
}

/// What became of an attempt to pay from an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spend {
    /// The cost was paid.
    Paid(Payment),
    /// There is not enough.
    Insufficient,
    /// The account is another subject's by now.
    Reassigned,
}

/// A payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payment {
    /// When, on the caller's clock: read after the tokens were taken, so that no
    /// time that passed before is forgotten.
    pub at_us: u64,
    /// How many tokens the account still has.
    pub left: u64,
    /// Whether more should be fetched.
    pub is_low: bool,
    /// What puts it back.
    pub receipt: Receipt,
}

/// Which lease paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    cell: usize,
    lease: u64,
    cost: u64,
}

/// Whether, and for how many tokens, to request a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginRefill {
    /// Request one; the caller must call [`finish_refill`](Account::finish_refill) whatever the result.
    Request(RefillRequest),
    /// Another thread is requesting a lease.
    Busy,
    /// Nothing is to be had for now.
    NotYet,
    /// It is no longer worth it: the account was closed.
    Closed,
}

/// A lease to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefillRequest {
    /// How much is of use.
    pub wanted: u64,
    /// Less is of no use.
    pub least: u64,
    /// Before the call.
    pub asked_us: u64,
}

impl Account {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            tag: zero(),
            cells: [TokenCell::new(), TokenCell::new()],
            low: zero(),
            ask_after_us: zero(),
            denied: zero(),
            is_asking: zero(),
            ending_us: zero(),
            denied_least: zero(),
            denied_until_us: zero(),
            retry_at_us: zero(),
            shared_left: zero(),
            reset_at_us: zero(),
            demand: zero(),
            measured_us: zero(),
            spent: zero(),
            granted: zero(),
            left_unspent: zero(),
        }
    }

    #[inline]
    pub(super) fn is_of(&self, tag: Tag) -> bool {
        self.tag.load(Ordering::Acquire) == tag
    }

    /// Pays `cost` from the lease that ends first. The clock is read once the
    /// tokens are taken: a process that was stopped in between finds its lease
    /// ended, and what it took is lost, not spent.
    #[inline]
    pub fn spend(&self, tag: Tag, cost: u64, mut clock: impl FnMut() -> u64) -> Spend {
        loop {
            let held = [self.cells[0].load(), self.cells[1].load()];
            // Looked at after the cells: a word seen before it was this subject's
            // has changed since, and is not taken.
            if !self.is_of(tag) {
                return Spend::Reassigned;
            }
            let Some(cell) = cell_to_spend(held, cost) else { return Spend::Insufficient };
            let seen = held[cell];
            if !self.cells[cell].set(seen, seen.tokens() - cost) {
                continue;
            }
            let at_us = clock();
            if seen.is_live(at_us) {
                let left = held[0].tokens() + held[1].tokens() - cost;
                let is_low = self.is_low(held, cost, at_us);
                let receipt = Receipt { cell, lease: seen.lease(), cost };
                return Spend::Paid(Payment { at_us, left, is_low, receipt });
            }
            self.left_unspent.fetch_add(cost, Ordering::Relaxed);
            self.expire(cell, at_us);
        }
    }

    /// Whether what will last is so little that more should be fetched now.
    #[inline]
    fn is_low(&self, held: [CellState; 2], cost: u64, now_us: u64) -> bool {
        let ending_us = self.ending_us.load(Ordering::Relaxed);
        let lasting = |held: CellState| if held.left_us(now_us) > ending_us { held.tokens() } else { 0 };
        lasting(held[0]) + lasting(held[1]) <= self.low.load(Ordering::Relaxed) + cost
            && self.ask_after_us.load(Ordering::Relaxed) <= now_us
            && self.is_asking.load(Ordering::Relaxed) == 0
    }

    /// Puts back what was paid, if it can still be spent by another.
    pub fn put_back(&self, receipt: Receipt) {
        if !self.cells[receipt.cell].put_back(receipt.lease, receipt.cost) {
            self.left_unspent.fetch_add(receipt.cost, Ordering::Relaxed);
        }
    }

    /// How long a request of that cost would have to wait, if that is known without a
    /// call.
    pub fn denied_for_us(&self, cost: u64, now_us: u64) -> Option<u64> {
        let is_known = cost >= self.denied_least.load(Ordering::Relaxed);
        let denied_until_us = if is_known { self.denied_until_us.load(Ordering::Relaxed) } else { 0 };
        let until_us = self.ask_after_us.load(Ordering::Relaxed).max(denied_until_us);
        let retry_at_us = if is_known { self.retry_at_us.load(Ordering::Relaxed) } else { 0 };
        (until_us > now_us).then(|| until_us.max(retry_at_us) - now_us)
    }

    /// Notes that `cost` was denied here, so that it counts as demand.
    pub fn note_denied(&self, cost: u64) {
        self.denied.fetch_add(cost, Ordering::Relaxed);
    }

    /// The tokens that can be spent now.
    pub fn held(&self, now_us: u64) -> u64 {
        let live =
            |cell: &TokenCell| Some(cell.load()).filter(|held| held.is_live(now_us)).map_or(0, CellState::tokens);
        self.cells.iter().map(live).sum()
    }

    /// The tokens in it, including expired ones.
    pub(super) fn tokens(&self) -> u64 {
        self.cells.iter().map(|cell| cell.load().tokens()).sum()
    }

    /// What the shared bucket had left at the last grant, and how long until it
    /// owes nothing.
    pub fn shared_bucket(&self, now_us: u64) -> (u64, u64) {
        let reset_us = self.reset_at_us.load(Ordering::Relaxed).saturating_sub(now_us);
        (self.shared_left.load(Ordering::Relaxed), reset_us)
    }

    /// What is left of a lease, and how long it may still be spent.
    pub fn left_of(&self, receipt: Receipt, now_us: u64) -> (u64, u64) {
        let seen = self.cells[receipt.cell].load();
        if seen.lease() == receipt.lease { (seen.tokens(), seen.left_us(now_us)) } else { (0, 0) }
    }

    /// Removes the rest of a lease; returns how many tokens, and for how long they may
    /// still be returned.
    pub fn withdraw(&self, receipt: Receipt, now_us: u64) -> (u64, u64) {
        let cell = &self.cells[receipt.cell];
        loop {
            let seen = cell.load();
            if seen.lease() != receipt.lease || seen.tokens() == 0 {
                return (0, 0);
            }
            if cell.set(seen, 0) {
                self.left_unspent.fetch_add(seen.tokens(), Ordering::Relaxed);
                return (seen.tokens(), seen.left_us(now_us));
            }
        }
    }

    /// Takes out everything; one `(tokens, left_us)` a lease.
    pub fn withdraw_all(&self, now_us: u64) -> [(u64, u64); 2] {
        [0, 1].map(|cell| {
            let seen = self.cells[cell].empty();
            self.left_unspent.fetch_add(seen.tokens(), Ordering::Relaxed);
            (seen.tokens(), seen.left_us(now_us))
        })
    }

    /// Discards what is known of the shared bucket, because it was reset.
    pub fn forget(&self, now_us: u64) {
        self.withdraw_all(now_us);
        self.ask_after_us.store(0, Ordering::Relaxed);
        self.denied_until_us.store(0, Ordering::Relaxed);
    }

    /// Tokens granted, and how many of them were not spent.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.granted.load(Ordering::Relaxed), self.left_unspent.load(Ordering::Relaxed))
    }

    /// Forgets what is left in a lease that has ended.
    fn expire(&self, cell: usize, now_us: u64) {
        let seen = self.cells[cell].load();
        if !seen.is_live(now_us) && seen.tokens() > 0 && self.cells[cell].set(seen, 0) {
            self.left_unspent.fetch_add(seen.tokens(), Ordering::Relaxed);
        }
    }
}

/// Of the cells that hold enough, the one that ends first.
#[inline]
fn cell_to_spend(held: [CellState; 2], cost: u64) -> Option<usize> {
    match held.map(|held| held.tokens() >= cost) {
        [true, true] => Some(usize::from(held[1].ends_before(held[0]))),
        [true, false] => Some(0),
        [false, true] => Some(1),
        [false, false] => None,
    }
}
