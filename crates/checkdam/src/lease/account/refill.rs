//! Operations of an account's holder: request a lease, add the granted tokens, update
//! the demand, and reassign the account to another subject.

use super::{Account, BeginRefill, Receipt, RefillRequest};
use crate::algorithm::token_bucket::Grant;
use crate::hash::Tag;
use crate::lease::demand::Demand;
use crate::lease::terms::LeaseTerms;
use crate::lease::token_cell::{CellState, TOKENS_MAX};
use crate::quota::Quota;
use crate::sync::Ordering;

/// How long a denial is cached at most: the bucket may be reset meanwhile.
const DENIAL_KEPT_US: u64 = 1_000_000;

impl Account {
    /// Locks the account to request a lease, if it is not locked and a lease is worth it.
    /// `least` is the minimum that the caller needs: 0 to fetch ahead of need.
    pub fn begin_refill(
        &self,
        tag: Tag,
        least: u64,
        now_us: u64,
        (terms, quota): (&LeaseTerms, &Quota),
    ) -> BeginRefill {
        if !self.lock() {
            return BeginRefill::Busy;
        }
        if !self.is_of(tag) {
            self.unlock();
            return BeginRefill::Closed;
        }
        if self.ask_after_us.load(Ordering::Relaxed) > now_us {
            self.unlock();
            return BeginRefill::NotYet;
        }
        let demand = self.measure(now_us, terms);
        if demand.within(terms.length_us) < terms.demand_min.div_ceil(2) {
            self.low.store(0, Ordering::Relaxed);
            if self.held(now_us) == 0 {
                self.close(now_us);
            }
            self.unlock();
            return BeginRefill::Closed;
        }
        // More is fetched an eighth of T before it is needed, and lasts five: so it
        // is spent before its time is over, also if demand falls a little.
        self.low.store(demand.within(terms.length_us / 8), Ordering::Relaxed);
        self.ending_us.store(terms.length_us / 8, Ordering::Relaxed);
        let wanted = demand.within(terms.length_us / 8 * 5).max(least).max(1).min(terms.grant_max(quota).max(1));
        BeginRefill::Request(RefillRequest { wanted, least: least.max(1), asked_us: now_us })
    }

    /// Adds the result of a lease request; `grant` is none if there was no reply, and
    /// then whatever was granted is lost. Returns the receipt of the new lease.
    pub fn finish_refill(
        &self,
        ask: &RefillRequest,
        grant: Option<&Grant>,
        now_us: u64,
        terms: &LeaseTerms,
    ) -> Option<Receipt> {
        let receipt = grant.and_then(|grant| {
            self.shared_left.store(grant.left, Ordering::Relaxed);
            self.reset_at_us.store(now_us.saturating_add(grant.reset_after_us), Ordering::Relaxed);
            let wait_us = grant.retry_after_us;
            let pause_us = match grant.granted {
                // A smaller cost may still pass: it may request at once.
                0 if ask.least > 1 => 0,
                0 => terms.pause_us().max(wait_us.min(DENIAL_KEPT_US)),
                short if short < ask.wanted => terms.pause_us(),
                _ => 0,
            };
            if grant.granted == 0 {
                self.denied_least.store(ask.least, Ordering::Relaxed);
                self.denied_until_us.store(ask.asked_us + wait_us.min(DENIAL_KEPT_US), Ordering::Relaxed);
            }
            self.ask_after_us.store(ask.asked_us + pause_us, Ordering::Relaxed);
            self.retry_at_us.store(now_us.saturating_add(wait_us), Ordering::Relaxed);
            (grant.granted > 0).then(|| self.deposit(grant.granted, ask.asked_us + terms.life_us(), now_us))
        });
        self.unlock();
        receipt
    }

    /// Assigns the account to a subject, if it is unused.
    pub(in crate::lease) fn open(&self, tag: Tag, demand: u64, now_us: u64) -> bool {
        if !self.lock() {
            return false;
        }
        let is_free = self.is_of(0);
        if is_free {
            let (came, left_unspent) = self.totals();
            for (cell, value) in [
                (&self.spent, came.saturating_sub(left_unspent)),
                (&self.low, 0),
                (&self.ask_after_us, 0),
                (&self.retry_at_us, 0),
                (&self.denied_until_us, 0),
                (&self.denied, 0),
                (&self.shared_left, 0),
                (&self.reset_at_us, 0),
                (&self.demand, demand),
                (&self.measured_us, now_us),
            ] {
                cell.store(value, Ordering::Relaxed);
            }
            self.tag.store(tag, Ordering::Release);
        }
        self.unlock();
        is_free
    }

    /// Closes the account if it was idle for so long.
    pub(in crate::lease) fn close_if_idle(&self, now_us: u64, idle_us: u64) {
        if self.is_of(0) || self.held(now_us) > 0 || !self.lock() {
            return;
        }
        if self.measured_us.load(Ordering::Relaxed) + idle_us < now_us && self.held(now_us) == 0 {
            self.close(now_us);
        }
        self.unlock();
    }

    /// Closes the account because its bucket cannot be leased now. Only under the lock;
    /// tokens still held are lost.
    pub fn abandon(&self, now_us: u64) {
        self.close(now_us);
        self.unlock();
    }

    /// Begins a lease in the cell that has least to lose. Where both have
    /// something, it joins the one that ends later; both then end when the first
    /// of them would.
    fn deposit(&self, tokens: u64, end_us: u64, now_us: u64) -> Receipt {
        self.granted.fetch_add(tokens, Ordering::Relaxed);
        loop {
            let held = [self.cells[0].load(), self.cells[1].load()];
            let is_spent = |held: CellState| held.tokens() == 0 || !held.is_live(now_us);
            if let Some(cell) = (0..2).find(|cell| is_spent(held[*cell])) {
                if let Some(new) = self.cells[cell].begin(held[cell], tokens, end_us) {
                    self.left_unspent.fetch_add(held[cell].tokens(), Ordering::Relaxed);
                    return Receipt { cell, lease: new.lease(), cost: tokens };
                }
                continue;
            }
            let cell = usize::from(held[0].ends_before(held[1]));
            let seen = held[cell];
            let sum = (seen.tokens() + tokens).min(TOKENS_MAX);
            let joined = if seen.left_us(now_us) > end_us.saturating_sub(now_us) {
                self.cells[cell].begin(seen, sum, end_us)
            } else {
                self.cells[cell].set(seen, sum).then_some(seen)
            };
            if let Some(joined) = joined {
                self.left_unspent.fetch_add(seen.tokens() + tokens - sum, Ordering::Relaxed);
                return Receipt { cell, lease: joined.lease(), cost: tokens };
            }
        }
    }

    /// Learns the demand since the last time: what was spent, and what was denied.
    fn measure(&self, now_us: u64, terms: &LeaseTerms) -> Demand {
        self.expire(0, now_us);
        self.expire(1, now_us);
        let (came, left_unspent) = self.totals();
        let held: u64 = self.cells.iter().map(|cell| cell.load().tokens()).sum();
        let spent = came.saturating_sub(left_unspent).saturating_sub(held);
        let used =
            spent.saturating_sub(self.spent.swap(spent, Ordering::Relaxed)) + self.denied.swap(0, Ordering::Relaxed);
        let mut demand = Demand {
            milli_per_s: self.demand.load(Ordering::Relaxed),
            at_us: self.measured_us.load(Ordering::Relaxed),
        };
        demand.learn(used, now_us, terms.length_us);
        self.demand.store(demand.milli_per_s, Ordering::Relaxed);
        self.measured_us.store(demand.at_us, Ordering::Relaxed);
        demand
    }

    /// Only under the lock, and without live leases.
    fn close(&self, now_us: u64) {
        self.tag.store(0, Ordering::Release);
        // A thread that read a cell before finds it changed.
        for cell in &self.cells {
            let dropped = loop {
                let seen = cell.load();
                if cell.begin(seen, 0, now_us).is_some() {
                    break seen.tokens();
                }
            };
            self.left_unspent.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> bool {
        self.is_asking.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn unlock(&self) {
        self.is_asking.store(0, Ordering::Release);
    }
}
