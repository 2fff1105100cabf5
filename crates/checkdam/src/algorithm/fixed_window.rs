//! Fixed window: one counter, reset at the start of every window.
//!
//! Simple and cheap, with a known weakness: up to twice the limit can pass around the
//! end of a window. Windows align to 1970 or to the calendar.

use super::{ClockStep, QuotaStatus, calendar, window_start};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::time::EPOCH_UNIX_US;

/// The counter of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The window's first microsecond since 1970.
    pub start_us: u64,
    /// What has passed in it.
    pub count: u64,
}

/// Counts `cost` if it fits into the window.
pub fn decide(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut window = Window::at(quota, state, now_us);
    let decision = window.peek(cost);
    if decision.is_allowed() {
        window.state.count += cost;
        return (window.level().allow(), window.state);
    }
    (decision, window.state)
}

/// The decision of a take of `cost`, without counting it.
pub fn peek(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> Decision {
    Window::at(quota, state, now_us).peek(cost)
}

/// Takes `cost` off the counter of the current window.
pub fn refund(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut window = Window::at(quota, state, now_us);
    window.state.count = window.state.count.saturating_sub(cost);
    (window.level().allow(), window.state)
}

/// Counts `cost` for what has passed already: as much as is left, if that is less.
pub fn charge(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State) {
    let mut window = Window::at(quota, state, now_us);
    window.state.count += cost.min(window.level().remaining);
    (window.level().allow(), window.state)
}

/// Counts `cost` that was used, whatever is left: beyond the limit by at most
/// [`Quota::debt_max`]. Returns also what was not counted because of that bound.
pub fn record(quota: &Quota, state: Option<State>, now_us: u64, cost: u64) -> (Decision, State, u64) {
    let mut window = Window::at(quota, state, now_us);
    let counted = cost.min(quota.recorded_max().saturating_sub(window.state.count));
    window.state.count += counted;
    (window.peek(0), window.state, cost - counted)
}

/// When the state stops to matter, in microseconds since 1970.
#[must_use]
pub fn expires_at(quota: &Quota, state: &State) -> u64 {
    calendar::end(quota.spec.align, state.start_us, quota.spec.period_us)
}

struct Window<'a> {
    quota: &'a Quota,
    unix_us: u64,
    state: State,
}

impl<'a> Window<'a> {
    fn at(quota: &'a Quota, state: Option<State>, now_us: u64) -> Self {
        let unix_us = now_us + EPOCH_UNIX_US;
        let flow = state.map_or(ClockStep::Forward, |state| ClockStep::of(state.start_us, unix_us));
        let time = state.map_or(unix_us, |state| flow.time(state.start_us, unix_us));
        let start_us = window_start(quota, quota.spec.period_us, time);
        let count = match state {
            Some(state) if flow == ClockStep::Rebased || state.start_us >= start_us => state.count,
            _ => 0,
        };
        Self { quota, unix_us, state: State { start_us, count } }
    }

    fn peek(&self, cost: u64) -> Decision {
        let level = self.level();
        if cost > self.quota.limit {
            level.deny_cost()
        } else if self.state.count + cost <= self.quota.limit {
            level.allow()
        } else {
            level.deny(level.reset_after_us)
        }
    }

    fn level(&self) -> QuotaStatus {
        let end_us = expires_at(self.quota, &self.state);
        QuotaStatus {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(self.state.count),
            debt: self.state.count.saturating_sub(self.quota.limit),
            reset_after_us: end_us - self.unix_us,
        }
    }
}
