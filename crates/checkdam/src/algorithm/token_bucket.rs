//! Token bucket, computed as GCRA (generic cell rate algorithm, ITU-T I.371): tokens
//! return at a steady rate, up to the burst.
//!
//! The state is one number, the tick at which the bucket will be full again (GCRA's
//! theoretical arrival time). A full bucket equals no bucket, so only buckets that
//! owe tokens take memory.
//!
//! A bucket belongs to one quota ([`Quota::shares_bucket_with`]), so it owes more
//! than the burst only in two cases. Either usage was recorded beyond it ([`record`]):
//! the state is then marked, and the debt is paid back at the bucket's rate. Or the
//! clock has stepped back: after a small step the excess is waited for, after a large
//! one the bucket counts as empty. Nothing else lowers what is owed.

use super::QuotaStatus;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::time::HORIZON_US;

/// When the bucket is full again, in ticks of the quota; `None` is a new bucket. A bucket
/// that owes more than its burst because that was recorded has [`DEBT_MARK`] added.
pub type State = Option<u64>;

/// Marks recorded debt in a [`State`]. No time reaches it, so a decision that ignores it
/// sees a bucket that owes far too much, and looks again.
pub const DEBT_MARK: u64 = 1 << 53;

/// Takes `cost` tokens if they are there; a take of none passes unless the bucket is in
/// debt.
#[inline]
pub fn decide(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    decide_below(quota, quota.capacity, state, now_us, cost)
}

/// The same, if no more than `ceiling` is owed afterwards.
#[inline]
pub(super) fn decide_below(quota: &Quota, ceiling: u64, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let bucket = BucketAt::at(quota, state, now_us);
    if cost == 0 {
        return (bucket.peek_none(ceiling), state);
    }
    let after = bucket.owed + cost.min(quota.limit) * quota.interval;
    if after <= ceiling && cost <= quota.limit {
        return (bucket.level_below(ceiling, after).allow(), Some(bucket.now + after));
    }
    let level = bucket.level_below(ceiling, bucket.owed);
    let decision = if cost > quota.limit { level.deny_cost() } else { level.deny(bucket.micros(after - ceiling)) };
    (decision, bucket.kept().or(state))
}

/// The decision of a take of `cost`, without charging it.
pub fn peek(quota: &Quota, state: State, now_us: u64, cost: u64) -> Decision {
    peek_below(quota, quota.capacity, state, now_us, cost)
}

/// The decision of [`decide_below`], without charging it.
pub(super) fn peek_below(quota: &Quota, ceiling: u64, state: State, now_us: u64, cost: u64) -> Decision {
    let bucket = BucketAt::at(quota, state, now_us);
    if cost == 0 {
        return bucket.peek_none(ceiling);
    }
    let level = bucket.level_below(ceiling, bucket.owed);
    if cost > quota.limit {
        return level.deny_cost();
    }
    let after = bucket.owed + cost * quota.interval;
    if after <= ceiling { level.allow() } else { level.deny(bucket.micros(after - ceiling)) }
}

/// Gives back `cost` tokens, at most what is owed.
pub fn refund(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let bucket = BucketAt::at(quota, state, now_us);
    if bucket.is_new {
        return (bucket.level(bucket.owed).allow(), state);
    }
    let back = cost.min(quota.limit) * quota.interval;
    let owed = bucket.owed.saturating_sub(back);
    (bucket.level(owed).allow(), bucket.owing(owed))
}

/// Charges `cost` tokens that were used, whatever is left: beyond the burst the bucket is
/// in debt, by at most [`Quota::debt_max`]. Decides as a peek at nothing afterwards.
/// Returns also what was not charged because of that bound.
pub fn record(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State, u64) {
    let mut bucket = BucketAt::at(quota, state, now_us);
    let room = quota.owed_recorded_max().saturating_sub(bucket.owed);
    let charge = cost.saturating_mul(quota.interval).min(room);
    let next = if charge > 0 {
        bucket.is_recorded = true;
        bucket.owed += charge;
        bucket.owing(bucket.owed)
    } else {
        bucket.kept().or(state)
    };
    let cut_off = cost - charge.checked_div(quota.interval).unwrap_or(0).min(cost);
    (bucket.peek_none(quota.capacity), next, cut_off)
}

/// Charges `cost` tokens for what has passed already: as many as are left, if
/// they are fewer.
pub fn charge(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let bucket = BucketAt::at(quota, state, now_us);
    if cost == 0 {
        return (bucket.level(bucket.owed).allow(), state);
    }
    let most = bucket.owed.max(quota.capacity);
    let owed = most.min(bucket.owed + cost.min(quota.limit) * quota.interval);
    (bucket.level(owed).allow(), bucket.owing(owed))
}

/// The state that owes at least `owed` ticks, as another owner of the bucket has said.
#[cfg(feature = "redis")]
pub(crate) fn raise(quota: &Quota, state: State, now_us: u64, owed: u64) -> State {
    let mut bucket = BucketAt::at(quota, state, now_us);
    if owed <= bucket.owed && !bucket.is_new {
        return bucket.kept().or(state);
    }
    bucket.is_recorded = true;
    bucket.owing(owed.min(quota.owed_recorded_max()).max(bucket.owed))
}

/// Tokens to be granted ahead of their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// How many are of use.
    pub wanted: u64,
    /// Fewer are of no use.
    pub least: u64,
    /// How long they may be held before they are spent.
    pub length_us: u64,
}

/// What was granted, and the state of the bucket after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// So many tokens.
    pub granted: u64,
    /// What the bucket has left.
    pub left: u64,
    /// How long until the least that was of use could be granted; 0 if it was,
    /// or never can be.
    pub retry_after_us: u64,
    /// How long until nothing is owed any more.
    pub reset_after_us: u64,
}

/// One lease gets at most this share of what is left: other nodes may need some.
const LEASE_SHARE: u64 = 2;

/// Grants tokens to be spent within `length_us`: as many as requested, but no more
/// than a share of what is left, unless that is less than the least. The bucket
/// counts as owing at least what returns in that time, which is why no window sees
/// more than the burst and the rate: see [`lease`](crate::lease).
#[must_use]
pub fn lease(quota: &Quota, state: State, now_us: u64, ask: LeaseRequest) -> (Grant, State) {
    let bucket = BucketAt::at(quota, state, now_us);
    let floor = ask.length_us.saturating_mul(quota.ticks_per_us).min(quota.capacity);
    let owed = bucket.owed.max(floor);
    let room = quota.capacity.saturating_sub(owed).checked_div(quota.interval).unwrap_or(0);
    let granted = if room < ask.least { 0 } else { ask.wanted.min((room / LEASE_SHARE).max(ask.least)) };
    if granted == 0 {
        let level = bucket.level(bucket.owed);
        let short = (owed + ask.least.min(quota.limit) * quota.interval).saturating_sub(quota.capacity);
        let can_ever =
            floor + ask.least.min(quota.limit) * quota.interval <= quota.capacity && ask.least <= quota.limit;
        let retry_after_us = if can_ever { bucket.micros(short) } else { 0 };
        let grant = Grant { granted, left: level.remaining, retry_after_us, reset_after_us: level.reset_after_us };
        return (grant, bucket.kept().or(state));
    }
    let after = owed + granted * quota.interval;
    let level = bucket.level(after);
    let grant = Grant { granted, left: level.remaining, retry_after_us: 0, reset_after_us: level.reset_after_us };
    (grant, Some(bucket.now + after))
}

/// What was granted of a bucket so far: kept beside it while leases may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    /// All tokens granted, counted from where it was begun: what one reading has
    /// more than an earlier one was granted in between.
    pub granted: u64,
    /// How long the longest lease that may live is, at most.
    pub length_us: u64,
    /// Until when any may live.
    pub until_us: u64,
}

impl Ledger {
    /// A new ledger. It begins above the count of any ledger that was lost, since no
    /// bucket grants more than 16 tokens a microsecond: for a lease of a lost ledger very
    /// much seems to have been granted since, so it returns nothing.
    #[must_use]
    pub const fn new(now_us: u64) -> Self {
        Self { granted: now_us * 16, length_us: 0, until_us: 0 }
    }

    /// With one more lease.
    #[must_use]
    pub const fn with(self, granted: u64, length_us: u64, now_us: u64) -> Self {
        let (granted, end_us) = (self.granted + granted, now_us + length_us);
        if now_us >= self.until_us {
            return Self { granted, length_us, until_us: end_us };
        }
        let length_us = if length_us > self.length_us { length_us } else { self.length_us };
        Self { granted, length_us, until_us: if end_us > self.until_us { end_us } else { self.until_us } }
    }
}

/// Returns tokens of a live lease, after whose grant the ledger was `mark`, as far as
/// the bucket then still owes what younger leases rely on: rate·T at their grant, and
/// their own tokens. A younger lease that found the bucket nearly full relies on what
/// this one already owed. Returns how many were accepted.
#[must_use]
pub fn give_back(
    quota: &Quota,
    state: State,
    now_us: u64,
    (tokens, mark): (u64, u64),
    ledger: &Ledger,
) -> (u64, State) {
    let bucket = BucketAt::at(quota, state, now_us);
    let counted_on = match ledger.granted.saturating_sub(mark) {
        0 => 0,
        since => since.min(quota.limit) * quota.interval + ledger.length_us.saturating_mul(quota.ticks_per_us),
    };
    let back = tokens.min(quota.limit) * quota.interval;
    let owed = bucket.owed.saturating_sub(back).max(counted_on.min(bucket.owed));
    if bucket.is_new || owed == bucket.owed || ledger.granted < mark {
        return (0, state);
    }
    let less = bucket.owed - owed;
    (less.checked_div(quota.interval).unwrap_or(0), bucket.owing(owed))
}

/// A bucket at one instant, in the quota's ticks.
pub(super) struct BucketAt<'a> {
    quota: &'a Quota,
    now: u64,
    pub(super) owed: u64,
    is_rebased: bool,
    is_new: bool,
    /// Whether what it owes beyond the burst was recorded.
    is_recorded: bool,
}

impl<'a> BucketAt<'a> {
    #[inline]
    pub(super) fn at(quota: &'a Quota, state: State, now_us: u64) -> Self {
        let now = now_us.min(HORIZON_US) * quota.ticks_per_us;
        match state {
            Some(full_at) if full_at + quota.remembered > now => {
                let owed = full_at.saturating_sub(now);
                if owed > quota.owed_max {
                    return Self::owing_much(quota, full_at, now);
                }
                Self { quota, now, owed, is_rebased: false, is_new: false, is_recorded: false }
            }
            _ => Self::new(quota, now),
        }
    }

    #[inline]
    fn new(quota: &'a Quota, now: u64) -> Self {
        Self { quota, now, owed: quota.owed_initially, is_rebased: false, is_new: true, is_recorded: false }
    }

    /// A bucket that is marked as in debt, or from which the clock has stepped far back.
    #[cold]
    fn owing_much(quota: &'a Quota, full_at: u64, now: u64) -> Self {
        if full_at < DEBT_MARK {
            let owed = quota.capacity;
            return Self { quota, now, owed, is_rebased: true, is_new: false, is_recorded: false };
        }
        let full_at = full_at - DEBT_MARK;
        if full_at + quota.remembered <= now {
            return Self::new(quota, now);
        }
        let (owed, most) = (full_at.saturating_sub(now), quota.owed_recorded_max());
        let is_rebased = owed > most + (quota.owed_max - quota.capacity);
        let owed = if is_rebased { most } else { owed };
        Self { quota, now, owed, is_rebased, is_new: false, is_recorded: true }
    }

    /// What a denial writes: a bucket that begins with less than its burst begins
    /// to fill now, and one from which the clock has stepped far back is empty.
    #[inline]
    fn kept(&self) -> State {
        if self.is_rebased || (self.is_new && self.owed > 0) { self.owing(self.owed) } else { None }
    }

    /// The state in which it owes that much.
    #[inline]
    fn owing(&self, owed: u64) -> State {
        let mark = if self.is_recorded && owed > self.quota.capacity { DEBT_MARK } else { 0 };
        Some(self.now + owed + mark)
    }

    /// The decision of a take of nothing, which joins no queue: below `ceiling` so much
    /// remains, and it passes unless the bucket owes more than its burst.
    #[inline]
    fn peek_none(&self, ceiling: u64) -> Decision {
        let level = self.level_below(ceiling, self.owed);
        match self.owed.checked_sub(self.quota.capacity) {
            Some(debt @ 1..) => level.deny(self.micros(debt)),
            _ => level.allow(),
        }
    }

    #[inline]
    fn level(&self, owed: u64) -> QuotaStatus {
        self.level_below(self.quota.capacity, owed)
    }

    #[inline]
    fn level_below(&self, ceiling: u64, owed: u64) -> QuotaStatus {
        QuotaStatus {
            limit: self.quota.limit,
            // Neither division can fail; written this way, a caller that uses only the verdict
            // pays for neither.
            remaining: ceiling.saturating_sub(owed).checked_div(self.quota.interval).unwrap_or(0),
            debt: match owed.checked_sub(self.quota.capacity) {
                Some(beyond @ 1..) => beyond.div_ceil(self.quota.interval.max(1)),
                _ => 0,
            },
            reset_after_us: self.micros(owed),
        }
    }

    /// Ticks as microseconds, rounded up.
    #[inline]
    pub(super) fn micros(&self, ticks: u64) -> u64 {
        match self.quota.ticks_per_us {
            // Division is slow, and most quotas need none.
            1 => ticks,
            per_us => (ticks + per_us - 1).checked_div(per_us).unwrap_or(0),
        }
    }
}
