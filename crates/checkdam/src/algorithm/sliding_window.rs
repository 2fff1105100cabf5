//! Sliding-window counter: two counters, the previous one weighted by its overlap
//! with the last period. Cheap, and smooth at window ends.
//!
//! Its error: it assumes that the requests of the previous window were evenly spread.
//! If all of them came at the end of that window, up to twice the limit can pass.
//! `strict` (see `sliding_window_strict`) never exceeds the limit.

use super::{ClockStep, QuotaStatus, window_start};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::time::EPOCH_UNIX_US;

/// The counters of two neighbouring windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The current window's first microsecond since 1970.
    pub start_us: u64,
    /// What has passed in the current window.
    pub current: u64,
    /// What had passed in the one before.
    pub previous: u64,
}

/// Counts `cost` if the weighted sum allows it.
pub fn decide(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut windows = Windows::at(quota, state, now_us);
    let decision = windows.peek(cost);
    if decision.is_allowed() {
        windows.state.current += cost;
        return (windows.level().allow(), windows.state);
    }
    (decision, windows.state)
}

/// The decision of a take of `cost`, without counting it.
pub fn peek(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> Decision {
    Windows::at(quota, state, now_us).peek(cost)
}

/// Takes `cost` off the current counter, then off the previous one.
pub fn refund(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut windows = Windows::at(quota, state, now_us);
    let State { current, previous, .. } = &mut windows.state;
    let rest = cost.saturating_sub(*current);
    *current = current.saturating_sub(cost);
    *previous = previous.saturating_sub(rest);
    (windows.level().allow(), windows.state)
}

/// Counts `cost` for what has passed already: as much as is left, if that is less.
pub fn charge(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut windows = Windows::at(quota, state, now_us);
    windows.state.current += cost.min(windows.level().remaining);
    (windows.level().allow(), windows.state)
}

/// Counts `cost` that was used, whatever is left: the current window beyond the limit by
/// at most [`Quota::debt_max`]. Returns also what was not counted because of that bound.
pub fn record(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State, u64) {
    let mut windows = Windows::at(quota, state, now_us);
    let counted = cost.min(quota.recorded_max().saturating_sub(windows.state.current));
    windows.state.current += counted;
    (windows.peek(0), windows.state, cost - counted)
}

/// When the state stops to matter, in microseconds since 1970.
#[must_use]
pub fn expires_at(quota: &Quota, state: &State) -> u64 {
    state.start_us + if state.current > 0 { 2 } else { 1 } * quota.spec.period_us
}

struct Windows<'a> {
    quota: &'a Quota,
    unix_us: u64,
    /// Grains of the current window that have passed.
    passed: u64,
    state: State,
}

impl<'a> Windows<'a> {
    fn at(quota: &'a Quota, state: Option<State>, now_us: u64) -> Self {
        let period_us = quota.spec.period_us;
        let unix_us = now_us + EPOCH_UNIX_US;
        let flow = state.map_or(ClockStep::Forward, |state| ClockStep::of(state.start_us, unix_us));
        let time = state.map_or(unix_us, |state| flow.time(state.start_us, unix_us));
        let start_us = window_start(quota, period_us, time);
        let (current, previous) = match state {
            Some(state) if flow == ClockStep::Rebased || state.start_us >= start_us => (state.current, state.previous),
            Some(state) if state.start_us + period_us >= start_us => (0, state.current),
            _ => (0, 0),
        };
        let passed = (time - start_us) / quota.interval;
        Self { quota, unix_us, passed, state: State { start_us, current, previous } }
    }

    fn peek(&self, cost: u64) -> Decision {
        let level = self.level();
        if cost > self.quota.limit {
            level.deny_cost()
        } else if cost <= level.remaining && level.debt == 0 {
            level.allow()
        } else {
            level.deny(self.retry_at(cost) - self.unix_us)
        }
    }

    /// When `cost` would pass, in microseconds since 1970.
    fn retry_at(&self, cost: u64) -> u64 {
        let period_us = self.quota.spec.period_us;
        let State { start_us, current, previous } = self.state;
        let room = self.quota.limit - cost;
        match room.checked_sub(current).and_then(|room| self.decayed_after(previous, room)) {
            Some(after_us) => start_us + after_us,
            None => start_us + period_us + self.decayed_after(current, room).unwrap_or(period_us),
        }
    }

    /// How long after its window began an older count weighs at most `room`;
    /// `None` if not before that window ends.
    fn decayed_after(&self, count: u64, room: u64) -> Option<u64> {
        let parts = self.quota.capacity;
        let weight_max = (room * parts).checked_div(count).unwrap_or(parts).min(parts);
        let after_us = (parts - weight_max) * self.quota.interval;
        (after_us < self.quota.spec.period_us).then_some(after_us)
    }

    fn level(&self) -> QuotaStatus {
        let parts = self.quota.capacity;
        let State { start_us, current, previous } = self.state;
        // Counts of a higher limit may be in the way: what does not fit is too much.
        let used = current.saturating_mul(parts).saturating_add(previous.saturating_mul(parts - self.passed));
        let expires_at = if current > 0 || previous > 0 { expires_at(self.quota, &self.state) } else { start_us };
        QuotaStatus {
            limit: self.quota.limit,
            remaining: (self.quota.limit * parts).saturating_sub(used) / parts,
            debt: used.saturating_sub(self.quota.limit * parts).div_ceil(parts),
            reset_after_us: expires_at.saturating_sub(self.unix_us),
        }
    }
}
