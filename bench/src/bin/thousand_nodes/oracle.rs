//! The judge: an ideal bucket that everything admitted is replayed into, and one
//! that is asked for everything.

use checkdam::Quota;

/// An ideal bucket. Tokens are counted times the period, so they are whole.
pub struct Ideal {
    level: u128,
    full: u128,
    amount: u128,
    period: u128,
    at_us: u64,
}

impl Ideal {
    pub fn new(quota: &Quota) -> Self {
        let period = u128::from(quota.period_us());
        let full = u128::from(quota.limit()) * period;
        Self { level: full, full, amount: u128::from(quota.spec().amount), period, at_us: 0 }
    }

    /// Takes one token, if it is there.
    pub fn admit(&mut self, now_us: u64) -> bool {
        self.level = (self.level + u128::from(now_us - self.at_us) * self.amount).min(self.full);
        self.at_us = now_us;
        let is_there = self.level >= self.period;
        if is_there {
            self.level -= self.period;
        }
        is_there
    }
}
