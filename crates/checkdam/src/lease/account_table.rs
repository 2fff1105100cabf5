//! The accounts of this node: a fixed number, looked up without a lock.

use super::account::Account;
use super::demand::Demand;
use super::terms::LeaseTerms;
use crate::hash::{Tag, fast_range};
use crate::sync::{AtomicU64, Ordering};

/// How many slots a subject may be in, from its own on.
const PROBES: usize = 4;
/// An account without requests for this long is closed.
const IDLE_US: u64 = 2_000_000;
/// Counters of subjects without an account: bits of the tag, bits of the period, and
/// the tokens requested in it.
const TAG_BITS: u32 = 24;
const PERIOD_BITS: u32 = 16;
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// What became of prepaid tokens so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseStats {
    /// Subjects that have an account now.
    pub subjects: u64,
    /// How often leases were requested.
    pub asks: u64,
    /// Tokens that were granted.
    pub granted: u64,
    /// Of those: spent.
    pub spent: u64,
    /// Of those: returned, less what time had already paid.
    pub returned: u64,
    /// Of those: neither; they were charged, so nothing is admitted for them.
    pub lost: u64,
    /// Of those: to be spent still.
    pub held: u64,
    /// Requests that were denied without asking.
    pub cached_denials: u64,
}

/// The accounts of this node.
#[derive(Debug)]
pub struct AccountTable {
    places: Box<[Account]>,
    /// Request counts of subjects without an account.
    counts: Box<[AtomicU64]>,
    asks: AtomicU64,
    /// Tokens on their way back.
    returning: AtomicU64,
    returned: AtomicU64,
    /// The values last reported: reservations that are put back, and returns that fail,
    /// must not make a counter decrease.
    spent_reported: AtomicU64,
    lost_reported: AtomicU64,
    cached_denials: AtomicU64,
}

impl AccountTable {
    /// Room for this many subjects.
    #[must_use]
    pub fn new(subjects: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            places: (0..subjects.max(PROBES)).map(|_| Account::new()).collect(),
            counts: (0..4 * subjects.max(PROBES)).map(|_| zero()).collect(),
            asks: zero(),
            returning: zero(),
            returned: zero(),
            spent_reported: zero(),
            lost_reported: zero(),
            cached_denials: zero(),
        }
    }

    /// The number of the subject's account, if it has one.
    #[inline]
    pub fn find(&self, tag: Tag) -> Option<usize> {
        self.near(tag).find(|number| self.places[*number].is_of(tag))
    }

    /// The account of that number.
    #[inline]
    #[must_use]
    pub fn account(&self, number: usize) -> &Account {
        &self.places[number]
    }

    /// Counts a request for a subject without an account; opens an account once that is
    /// worth it and there is room.
    pub fn note_demand(&self, tag: Tag, cost: u64, now_us: u64, terms: &LeaseTerms) {
        let count = self.count(tag, cost, now_us / terms.length_us);
        if count < terms.demand_min {
            return;
        }
        let demand = Demand::rate(count, terms.length_us);
        if self.find(tag).is_none() {
            let _ = self.near(tag).any(|number| self.places[number].open(tag, demand, now_us));
        }
    }

    /// How many accounts there are at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Closes idle accounts. Call about once a second.
    pub fn maintain(&self, now_us: u64) {
        for account in &self.places {
            account.close_if_idle(now_us, IDLE_US);
        }
    }

    /// Counts a call for more.
    pub fn note_refill(&self) {
        self.asks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts tokens that are on their way back.
    pub fn note_returning(&self, tokens: u64) {
        self.returning.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Counts a return of `tokens`, of which `back` were accepted.
    pub fn note_returned(&self, tokens: u64, back: u64) {
        self.returned.fetch_add(back, Ordering::Relaxed);
        self.returning.fetch_sub(tokens, Ordering::Relaxed);
    }

    /// Counts a denial that needed no call.
    pub fn note_cached_denial(&self) {
        self.cached_denials.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of all tokens so far.
    #[must_use]
    pub fn stats(&self, now_us: u64) -> LeaseStats {
        let mut stats = LeaseStats {
            asks: self.asks.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            cached_denials: self.cached_denials.load(Ordering::Relaxed),
            ..LeaseStats::default()
        };
        let (mut unspent, mut kept) = (0, 0);
        for account in &self.places {
            let (came, left_unspent) = account.totals();
            stats.granted += came;
            unspent += left_unspent;
            stats.held += account.held(now_us);
            kept += account.tokens();
            stats.subjects += u64::from(!account.is_of(0));
        }
        let reported = |cell: &AtomicU64, count: u64| cell.fetch_max(count, Ordering::Relaxed).max(count);
        stats.spent = reported(&self.spent_reported, stats.granted.saturating_sub(unspent + kept));
        let ended = kept.saturating_sub(stats.held);
        let lost =
            (unspent + ended).saturating_sub(stats.returned).saturating_sub(self.returning.load(Ordering::Relaxed));
        stats.lost = reported(&self.lost_reported, lost);
        stats
    }

    #[inline]
    fn near(&self, tag: Tag) -> impl Iterator<Item = usize> {
        let (count, first) = (self.places.len(), fast_range(tag, self.places.len()));
        (first..first + PROBES).map(move |number| if number < count { number } else { number - count })
    }

    /// The approximate number of tokens requested for the subject in this period:
    /// subjects share counters, and the one with more requests keeps the counter.
    fn count(&self, tag: Tag, cost: u64, period: u64) -> u64 {
        let cell = &self.counts[fast_range(tag, self.counts.len())];
        let (name, period) = (tag & ((1 << TAG_BITS) - 1), period & ((1 << PERIOD_BITS) - 1));
        let seen = cell.load(Ordering::Relaxed);
        let (known, since, count) =
            (seen >> (PERIOD_BITS + COUNT_BITS), seen >> COUNT_BITS & ((1 << PERIOD_BITS) - 1), seen & COUNT_MAX);
        let next = match (known == name, since == period) {
            (true, true) => (name, (count + cost).min(COUNT_MAX)),
            (false, true) if count > cost => (known, count - cost),
            _ => (name, cost.min(COUNT_MAX)),
        };
        cell.store(next.0 << (PERIOD_BITS + COUNT_BITS) | period << COUNT_BITS | next.1, Ordering::Relaxed);
        if next.0 == name { next.1 } else { 0 }
    }
}
