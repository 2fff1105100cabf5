//! Tokens return at a steady rate, up to the burst.
//!
//! The state is one number: the tick at which the bucket will be full again.
//! A full bucket equals no bucket, so memory holds only what is owed.

use super::Level;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::time::HORIZON_US;

/// When the bucket is full again, in ticks of the quota; `None` is a new bucket.
pub type State = Option<u64>;

/// Takes `cost` tokens if they are there.
#[must_use]
#[inline]
pub fn decide(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let bucket = Bucket::at(quota, state, now_us);
    if cost == 0 {
        return (bucket.level(bucket.owed).allow(), state);
    }
    let after = bucket.owed + cost.min(quota.limit) * quota.interval;
    if after <= quota.capacity && cost <= quota.limit {
        return (bucket.level(after).allow(), Some(bucket.now + after));
    }
    let level = bucket.level(bucket.owed);
    let decision =
        if cost > quota.limit { level.refuse_cost() } else { level.deny(bucket.micros(after - quota.capacity)) };
    // A bucket that begins with less than its burst begins to fill now.
    let is_kept = bucket.clamped || (bucket.is_new && bucket.owed > 0);
    (decision, if is_kept { Some(bucket.now + bucket.owed) } else { state })
}

/// What a take of `cost` would be answered, charging nothing.
#[must_use]
pub fn peek(quota: &Quota, state: State, now_us: u64, cost: u64) -> Decision {
    let bucket = Bucket::at(quota, state, now_us);
    let level = bucket.level(bucket.owed);
    if cost > quota.limit {
        return level.refuse_cost();
    }
    let after = bucket.owed + cost * quota.interval;
    if after <= quota.capacity { level.allow() } else { level.deny(bucket.micros(after - quota.capacity)) }
}

/// Gives back `cost` tokens, at most what is owed.
#[must_use]
pub fn refund(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let bucket = Bucket::at(quota, state, now_us);
    if bucket.is_new {
        return (bucket.level(bucket.owed).allow(), state);
    }
    let back = cost.min(quota.limit) * quota.interval;
    let owed = bucket.owed.saturating_sub(back);
    (bucket.level(owed).allow(), Some(bucket.now + owed))
}

/// The same time in ticks of another length, rounded up.
#[must_use]
pub fn rescale(full_at: u64, from_ticks_per_us: u64, to_ticks_per_us: u64) -> u64 {
    (full_at * to_ticks_per_us).div_ceil(from_ticks_per_us)
}

/// A bucket at one instant, in the quota's ticks.
pub(super) struct Bucket<'a> {
    quota: &'a Quota,
    now: u64,
    pub(super) owed: u64,
    clamped: bool,
    is_new: bool,
}

impl<'a> Bucket<'a> {
    #[inline]
    pub(super) fn at(quota: &'a Quota, state: State, now_us: u64) -> Self {
        let now = now_us.min(HORIZON_US) * quota.ticks_per_us;
        match state {
            Some(full_at) if full_at + quota.remembered > now => {
                let owed = full_at.saturating_sub(now);
                let clamped = owed > quota.capacity;
                Self { quota, now, owed: owed.min(quota.capacity), clamped, is_new: false }
            }
            _ => Self { quota, now, owed: quota.owed_initially, clamped: false, is_new: true },
        }
    }

    #[inline]
    fn level(&self, owed: u64) -> Level {
        Level {
            limit: self.quota.limit,
            // Neither division can fail; said this way, a caller who asks for
            // the verdict alone pays for neither.
            remaining: (self.quota.capacity - owed).checked_div(self.quota.interval).unwrap_or(0),
            reset_after_us: self.micros(owed),
        }
    }

    /// Ticks as microseconds, rounded up.
    #[inline]
    pub(super) fn micros(&self, ticks: u64) -> u64 {
        let per_us = self.quota.ticks_per_us;
        (ticks + per_us - 1).checked_div(per_us).unwrap_or(0)
    }
}
