//! State of the window algorithms (fixed, sliding, strict, log) as one type.

use super::{fixed_window, sliding_log, sliding_window, sliding_window_strict};
use crate::decision::{Decision, Verdict};
use crate::quota::{Algorithm, Quota};
use crate::time::EPOCH_UNIX_US;

/// The state of a bucket that counts in windows.
///
/// Stores call this for windows only ([`Algorithm::is_bucket`]); a quota of a token or
/// leaky bucket would count as a fixed window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowState {
    /// One counter.
    Fixed(fixed_window::State),
    /// Two counters.
    Sliding(sliding_window::State),
    /// Eleven counters.
    Strict(Box<sliding_window_strict::State>),
    /// Every request.
    Log(sliding_log::State),
}

/// A state to keep, on the stack.
enum NewState {
    Fixed(fixed_window::State),
    Sliding(sliding_window::State),
    Strict(sliding_window_strict::State),
}

/// The decision and the new state by the function of this name of the quota's algorithm. A
/// log is changed in its slot, and its decision returned.
macro_rules! new_state {
    ($function:ident, $quota:ident, $slot:ident, $now_us:ident, $cost:ident) => {
        match $quota.algorithm {
            Algorithm::SlidingWindow { strict: false } => {
                let state = Self::sliding($slot.as_ref());
                let (decision, state) = sliding_window::$function($quota, state, $now_us, $cost);
                (decision, NewState::Sliding(state))
            }
            Algorithm::SlidingWindow { strict: true } => {
                let state = Self::strict($slot.as_ref());
                let (decision, state) = sliding_window_strict::$function($quota, state, $now_us, $cost);
                (decision, NewState::Strict(state))
            }
            Algorithm::SlidingLog => {
                return Self::with_log($slot, |log| sliding_log::$function($quota, log, $now_us, $cost));
            }
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let (decision, state) = fixed_window::$function($quota, Self::fixed($slot.as_ref()), $now_us, $cost);
                (decision, NewState::Fixed(state))
            }
        }
    };
}

impl WindowState {
    /// Takes `cost` if it fits.
    pub fn take(quota: &Quota, slot: &mut Option<Self>, now_us: u64, cost: u64) -> Decision {
        let (decision, state) = new_state!(decide, quota, slot, now_us, cost);
        let is_written = if decision.is_allowed() { cost > 0 } else { slot.is_some() };
        if is_written {
            Self::keep(slot, state);
        }
        decision
    }

    /// The decision of a take of `cost`, without changes.
    pub fn peek(quota: &Quota, slot: Option<&Self>, now_us: u64, cost: u64) -> Decision {
        match quota.algorithm {
            Algorithm::SlidingWindow { strict: false } => {
                sliding_window::peek(quota, Self::sliding(slot), now_us, cost)
            }
            Algorithm::SlidingWindow { strict: true } => {
                sliding_window_strict::peek(quota, Self::strict(slot), now_us, cost)
            }
            Algorithm::SlidingLog => match slot {
                Some(Self::Log(log)) => sliding_log::peek(quota, log, now_us, cost),
                _ => sliding_log::peek(quota, &sliding_log::State::default(), now_us, cost),
            },
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                fixed_window::peek(quota, Self::fixed(slot), now_us, cost)
            }
        }
    }

    /// Gives back `cost`, at most what is used.
    pub fn refund(quota: &Quota, slot: &mut Option<Self>, now_us: u64, cost: u64) -> Decision {
        let (decision, state) = new_state!(refund, quota, slot, now_us, cost);
        if slot.is_some() {
            Self::keep(slot, state);
        }
        decision
    }

    /// Counts `cost` for what has passed already: as much as is left, if that is
    /// less.
    pub fn charge(quota: &Quota, slot: &mut Option<Self>, now_us: u64, cost: u64) -> Decision {
        if cost == 0 {
            let decision = Self::peek(quota, slot.as_ref(), now_us, 0);
            return Decision { verdict: Verdict::Allowed, retry_after_us: 0, ..decision };
        }
        let (decision, state) = new_state!(charge, quota, slot, now_us, cost);
        Self::keep(slot, state);
        decision
    }

    /// Counts `cost` that was used, whatever is left. Returns also what was not counted:
    /// what is beyond [`Quota::debt_max`].
    pub fn record(quota: &Quota, slot: &mut Option<Self>, now_us: u64, cost: u64) -> (Decision, u64) {
        if cost == 0 {
            return (Self::peek(quota, slot.as_ref(), now_us, 0), 0);
        }
        let (decision, state, cut_off) = match quota.algorithm {
            Algorithm::SlidingWindow { strict: false } => {
                let (decision, state, cut_off) =
                    sliding_window::record(quota, Self::sliding(slot.as_ref()), now_us, cost);
                (decision, NewState::Sliding(state), cut_off)
            }
            Algorithm::SlidingWindow { strict: true } => {
                let (decision, state, cut_off) =
                    sliding_window_strict::record(quota, Self::strict(slot.as_ref()), now_us, cost);
                (decision, NewState::Strict(state), cut_off)
            }
            Algorithm::SlidingLog => {
                let mut cut_off = 0;
                let decision = Self::with_log(slot, |log| {
                    let (decision, rest) = sliding_log::record(quota, log, now_us, cost);
                    cut_off = rest;
                    decision
                });
                return (decision, cut_off);
            }
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let (decision, state, cut_off) = fixed_window::record(quota, Self::fixed(slot.as_ref()), now_us, cost);
                (decision, NewState::Fixed(state), cut_off)
            }
        };
        Self::keep(slot, state);
        (decision, cut_off)
    }

    /// When the state stops to matter, in our time.
    #[must_use]
    pub fn expires_at_us(&self, quota: &Quota) -> u64 {
        let unix_us = match self {
            Self::Fixed(state) => fixed_window::expires_at(quota, state),
            Self::Sliding(state) => sliding_window::expires_at(quota, state),
            Self::Strict(state) => sliding_window_strict::expires_at(quota, state),
            Self::Log(log) => log.expires_at(quota),
        };
        unix_us.saturating_sub(EPOCH_UNIX_US)
    }

    /// For how long a state written at `now_us` can matter.
    #[must_use]
    pub fn lifetime_max_us(quota: &Quota, now_us: u64) -> u64 {
        match quota.algorithm {
            Algorithm::SlidingWindow { strict: false } => 2 * quota.spec.period_us,
            Algorithm::SlidingWindow { strict: true } => sliding_window_strict::COUNTS as u64 * quota.interval,
            Algorithm::SlidingLog => quota.spec.period_us,
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                fixed_window::peek(quota, None, now_us, 0).reset_after_us
            }
        }
    }

    /// What has been used, as far as it may still count.
    #[must_use]
    pub fn used(&self) -> u64 {
        match self {
            Self::Fixed(state) => state.count,
            Self::Sliding(state) => state.current + state.previous,
            Self::Strict(state) => state.counts.iter().sum(),
            Self::Log(log) => log.used(),
        }
    }

    /// A state that owes `used` until `expires_at_us`: what is left of an evicted
    /// bucket. It never owes less than the evicted one did.
    #[must_use]
    pub fn owing(quota: &Quota, used: u64, expires_at_us: u64) -> Self {
        let expires_at = expires_at_us + EPOCH_UNIX_US;
        let period_us = quota.spec.period_us;
        let used = used.min(quota.limit);
        match quota.algorithm {
            Algorithm::SlidingWindow { strict: false } => Self::Sliding(sliding_window::State {
                start_us: expires_at - 2 * period_us,
                current: used,
                previous: 0,
            }),
            Algorithm::SlidingWindow { strict: true } => {
                let mut counts = [0; sliding_window_strict::COUNTS];
                counts[0] = used;
                let start_us = expires_at - sliding_window_strict::COUNTS as u64 * quota.interval;
                Self::Strict(Box::new(sliding_window_strict::State { start_us, counts }))
            }
            Algorithm::SlidingLog => Self::Log(sliding_log::State::owing(used, expires_at - period_us)),
            Algorithm::FixedWindow | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let start_us = super::window_start(quota, period_us, expires_at - 1);
                Self::Fixed(fixed_window::State { start_us, count: used })
            }
        }
    }

    /// Replaces the old state, without allocating if it was of the same kind.
    fn keep(slot: &mut Option<Self>, state: NewState) {
        match (&mut *slot, state) {
            (Some(Self::Strict(old)), NewState::Strict(state)) => **old = state,
            (_, NewState::Strict(state)) => *slot = Some(Self::Strict(Box::new(state))),
            (_, NewState::Sliding(state)) => *slot = Some(Self::Sliding(state)),
            (_, NewState::Fixed(state)) => *slot = Some(Self::Fixed(state)),
        }
    }

    fn fixed(slot: Option<&Self>) -> Option<fixed_window::State> {
        if let Some(Self::Fixed(state)) = slot { Some(*state) } else { None }
    }

    fn sliding(slot: Option<&Self>) -> Option<sliding_window::State> {
        if let Some(Self::Sliding(state)) = slot { Some(*state) } else { None }
    }

    fn strict(slot: Option<&Self>) -> Option<sliding_window_strict::State> {
        if let Some(Self::Strict(state)) = slot { Some(**state) } else { None }
    }

    fn with_log(slot: &mut Option<Self>, decide: impl FnOnce(&mut sliding_log::State) -> Decision) -> Decision {
        if let Some(Self::Log(log)) = slot {
            return decide(log);
        }
        let mut log = sliding_log::State::default();
        let decision = decide(&mut log);
        if !log.is_empty() {
            *slot = Some(Self::Log(log));
        }
        decision
    }
}
