//! Strict sliding window: never admits more than the limit in any period.
//!
//! The period is divided into ten parts, and every part that overlaps the last period
//! counts in full. The price: an even stream at the limit gets at least 10/11 of it.

use super::{ClockStep, QuotaStatus};
use crate::decision::Decision;
use crate::quota::{Quota, STRICT_PARTS};
use crate::time::EPOCH_UNIX_US;

/// The current part, and ten before it.
pub const COUNTS: usize = STRICT_PARTS as usize + 1;

/// What has passed in the newest parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The newest part's first microsecond since 1970.
    pub start_us: u64,
    /// The counts, newest first.
    pub counts: [u64; COUNTS],
}

/// Counts `cost` if all parts together allow it.
pub fn decide(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut parts = Parts::at(quota, state, now_us);
    let decision = parts.peek(cost);
    if decision.is_allowed() {
        parts.state.counts[0] += cost;
        return (parts.level().allow(), parts.state);
    }
    (decision, parts.state)
}

/// The decision of a take of `cost`, without counting it.
pub fn peek(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> Decision {
    Parts::at(quota, state, now_us).peek(cost)
}

/// Takes `cost` off the newest parts.
pub fn refund(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut parts = Parts::at(quota, state, now_us);
    let mut rest = cost;
    for count in &mut parts.state.counts {
        let back = rest.min(*count);
        *count -= back;
        rest -= back;
    }
    (parts.level().allow(), parts.state)
}

/// Counts `cost` for what has passed already: as much as is left, if that is less.
pub fn charge(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut parts = Parts::at(quota, state, now_us);
    parts.state.counts[0] += cost.min(parts.level().remaining);
    (parts.level().allow(), parts.state)
}

/// Counts `cost` that was used, whatever is left: all parts together beyond the limit by
/// at most [`Quota::debt_max`]. Returns also what was not counted because of that bound.
pub fn record(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State, u64) {
    let mut parts = Parts::at(quota, state, now_us);
    let counted = cost.min(quota.recorded_max().saturating_sub(parts.used()));
    parts.state.counts[0] += counted;
    (parts.peek(0), parts.state, cost - counted)
}

/// When the state stops to matter, in microseconds since 1970.
#[must_use]
pub fn expires_at(quota: &Quota, state: &State) -> u64 {
    let newest = state.counts.iter().position(|count| *count > 0).unwrap_or(COUNTS);
    state.start_us + (COUNTS - newest) as u64 * quota.interval
}

struct Parts<'a> {
    quota: &'a Quota,
    unix_us: u64,
    state: State,
}

impl<'a> Parts<'a> {
    fn at(quota: &'a Quota, state: Option<State>, now_us: u64) -> Self {
        let part_us = quota.interval;
        let unix_us = now_us + EPOCH_UNIX_US;
        let flow = state.map_or(ClockStep::Forward, |state| ClockStep::of(state.start_us, unix_us));
        let time = state.map_or(unix_us, |state| flow.time(state.start_us, unix_us));
        let start_us = time - time % part_us;
        let mut counts = [0; COUNTS];
        if let Some(state) = state {
            let moved = if flow == ClockStep::Rebased { 0 } else { start_us.saturating_sub(state.start_us) / part_us };
            let moved = moved.min(COUNTS as u64) as usize;
            counts[moved..].copy_from_slice(&state.counts[..COUNTS - moved]);
        }
        Self { quota, unix_us, state: State { start_us, counts } }
    }

    fn used(&self) -> u64 {
        self.state.counts.iter().sum()
    }

    fn peek(&self, cost: u64) -> Decision {
        let level = self.level();
        if cost > self.quota.limit {
            level.deny_cost()
        } else if self.used() + cost <= self.quota.limit {
            level.allow()
        } else {
            level.deny(self.retry_at(cost) - self.unix_us)
        }
    }

    /// When enough of the oldest parts have left the period.
    fn retry_at(&self, cost: u64) -> u64 {
        let mut used = self.used();
        let mut oldest = COUNTS;
        while used + cost > self.quota.limit && oldest > 0 {
            oldest -= 1;
            used -= self.state.counts[oldest];
        }
        self.state.start_us + (COUNTS - oldest) as u64 * self.quota.interval
    }

    fn level(&self) -> QuotaStatus {
        QuotaStatus {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(self.used()),
            debt: self.used().saturating_sub(self.quota.limit),
            reset_after_us: if self.used() == 0 { 0 } else { expires_at(self.quota, &self.state) - self.unix_us },
        }
    }
}
