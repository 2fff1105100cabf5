//! Sliding-window log: stores the time of every request of the last period. Exact;
//! memory grows with the limit (at most 10,000).

use std::collections::VecDeque;

use super::{ClockStep, QuotaStatus};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::time::{EPOCH_UNIX_US, STEP_BACK_HELD_US};

/// A log keeps capacity for this many entries, however few it holds.
const ROOM_KEPT: usize = 16;

/// What passed, and when: oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    entries: VecDeque<Entry>,
    used: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// In microseconds since 1970.
    at_us: u64,
    cost: u64,
}

/// Records `cost` if it fits into the last period. Unlike the other states, the log
/// is modified in place: it may be long.
pub fn decide(quota: &Quota, state: &mut State, now_us: u64, cost: u64) -> Decision {
    if cost == 0 {
        return peek(quota, state, now_us, cost);
    }
    let time = state.roll(quota, now_us);
    let decision = peek(quota, state, now_us, cost);
    if decision.is_allowed() {
        state.push(time, cost);
        return state.level(quota, now_us).allow();
    }
    decision
}

/// The decision of a take of `cost`, without recording it.
pub fn peek(quota: &Quota, state: &State, now_us: u64, cost: u64) -> Decision {
    let log = View::at(quota, state, now_us);
    let level = log.level();
    if cost > quota.limit {
        level.deny_cost()
    } else if log.used + cost <= quota.limit {
        level.allow()
    } else {
        level.deny(log.retry_after_us(cost))
    }
}

/// Remembers `cost` for what has passed already: as much as is left, if that is less.
pub fn charge(quota: &Quota, state: &mut State, now_us: u64, cost: u64) -> Decision {
    let time = state.roll(quota, now_us);
    let cost = cost.min(state.level(quota, now_us).remaining);
    if cost > 0 {
        state.push(time, cost);
    }
    state.level(quota, now_us).allow()
}

/// Remembers `cost` that was used, whatever is left: beyond the limit by at most
/// [`Quota::debt_max`]. Returns also what was not counted because of that bound.
pub fn record(quota: &Quota, state: &mut State, now_us: u64, cost: u64) -> (Decision, u64) {
    let time = state.roll(quota, now_us);
    let counted = cost.min(quota.recorded_max().saturating_sub(state.used));
    if counted > 0 {
        state.push(time, counted);
    }
    (peek(quota, state, now_us, 0), cost - counted)
}

/// Takes `cost` off the newest entries.
pub fn refund(quota: &Quota, state: &mut State, now_us: u64, cost: u64) -> Decision {
    state.roll(quota, now_us);
    let mut rest = cost.min(state.used);
    state.used -= rest;
    while rest > 0 {
        let Some(newest) = state.entries.back_mut() else { break };
        let back = rest.min(newest.cost);
        newest.cost -= back;
        rest -= back;
        if newest.cost == 0 {
            state.entries.pop_back();
        }
    }
    state.level(quota, now_us).allow()
}

impl State {
    /// A log that holds `used` at one time: what is left of an evicted one.
    pub(crate) fn owing(used: u64, at_us: u64) -> Self {
        Self { entries: VecDeque::from([Entry { at_us, cost: used }]), used }
    }

    /// How many entries it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// For how many entries it holds memory.
    pub(crate) fn room(&self) -> usize {
        self.entries.capacity()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sum of the costs it holds.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// When the state stops to matter, in microseconds since 1970.
    #[must_use]
    pub fn expires_at(&self, quota: &Quota) -> u64 {
        self.entries.back().map_or(0, |newest| newest.at_us + quota.spec.period_us)
    }

    fn level(&self, quota: &Quota, now_us: u64) -> QuotaStatus {
        View::at(quota, self, now_us).level()
    }

    /// Forgets what has left, rebases after a long step back, and returns the
    /// time inside the log.
    fn roll(&mut self, quota: &Quota, now_us: u64) -> u64 {
        let unix_us = now_us + EPOCH_UNIX_US;
        let newest_us = self.entries.back().map_or(0, |newest| newest.at_us);
        let flow = ClockStep::of(newest_us, unix_us);
        if flow == ClockStep::Rebased {
            let back = newest_us - unix_us;
            for entry in &mut self.entries {
                entry.at_us = entry.at_us.saturating_sub(back);
            }
        }
        let time = flow.time(newest_us, unix_us);
        while let Some(oldest) = self.entries.front().filter(|oldest| oldest.at_us + quota.spec.period_us <= time) {
            self.used -= oldest.cost;
            self.entries.pop_front();
        }
        // A log that was long gives its memory back. It then has room for as many
        // again, so that this is rare beside the takes that filled it.
        let (length, room) = (self.entries.len(), self.entries.capacity());
        if room > ROOM_KEPT && room / 4 > length {
            self.entries.shrink_to((2 * length).max(ROOM_KEPT));
        }
        time
    }

    fn push(&mut self, at_us: u64, cost: u64) {
        self.used += cost;
        match self.entries.back_mut() {
            Some(newest) if newest.at_us == at_us => newest.cost += cost,
            _ => self.entries.push_back(Entry { at_us, cost }),
        }
    }
}

/// A log at one instant, unchanged.
struct View<'a> {
    quota: &'a Quota,
    state: &'a State,
    unix_us: u64,
    /// By how much a long step back of the clock moves the entries.
    back_us: u64,
    /// The entries before this one have left.
    first: usize,
    used: u64,
}

impl<'a> View<'a> {
    fn at(quota: &'a Quota, state: &'a State, now_us: u64) -> Self {
        let unix_us = now_us + EPOCH_UNIX_US;
        let newest_us = state.entries.back().map_or(0, |newest| newest.at_us);
        let ahead_us = newest_us.saturating_sub(unix_us);
        let back_us = if ahead_us > STEP_BACK_HELD_US { ahead_us } else { 0 };
        let time = if back_us > 0 { unix_us } else { newest_us.max(unix_us) };
        let mut view = Self { quota, state, unix_us, back_us, first: 0, used: state.used };
        while let Some(entry) = state.entries.get(view.first).filter(|entry| view.leaves_at(entry) <= time) {
            view.used -= entry.cost;
            view.first += 1;
        }
        view
    }

    fn leaves_at(&self, entry: &Entry) -> u64 {
        entry.at_us.saturating_sub(self.back_us) + self.quota.spec.period_us
    }

    fn retry_after_us(&self, cost: u64) -> u64 {
        let mut used = self.used;
        for entry in self.state.entries.range(self.first..) {
            used -= entry.cost;
            if used + cost <= self.quota.limit {
                return self.leaves_at(entry) - self.unix_us;
            }
        }
        0
    }

    fn level(&self) -> QuotaStatus {
        let newest = self.state.entries.back().filter(|_| self.used > 0);
        QuotaStatus {
            limit: self.quota.limit,
            remaining: self.quota.limit.saturating_sub(self.used),
            debt: self.used.saturating_sub(self.quota.limit),
            reset_after_us: newest.map_or(0, |newest| self.leaves_at(newest) - self.unix_us),
        }
    }
}
