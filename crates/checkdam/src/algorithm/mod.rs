//! The five rate-limiting algorithms as pure functions: the specification that every
//! store follows. They use no store, clock, async runtime or log.
//!
//! Each module has a state and `decide(quota, state, now, cost)`, which returns the
//! decision and the new state, with `peek` and `refund` beside it.
//! `vectors/README.md` states the rules in words, `vectors/*.json` as data.

mod calendar;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod sliding_window_strict;
pub mod token_bucket;
mod window_state;

#[cfg(feature = "redis")]
pub(crate) use calendar::starts_around;
pub use window_state::WindowState;

use crate::decision::{Decision, Verdict};
use crate::quota::{Algorithm, Quota};
use crate::time::STEP_BACK_HELD_US;

/// Decides a take of a token or leaky bucket. Windows are decided by [`WindowState`].
#[inline]
pub(crate) fn decide_bucket(
    quota: &Quota,
    state: token_bucket::State,
    now_us: u64,
    cost: u64,
) -> (Decision, token_bucket::State) {
    match quota.algorithm {
        Algorithm::LeakyBucket => leaky_bucket::decide(quota, state, now_us, cost),
        Algorithm::TokenBucket | Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => {
            token_bucket::decide(quota, state, now_us, cost)
        }
    }
}

/// [`decide_bucket`] without changes.
#[inline]
pub(crate) fn peek_bucket(quota: &Quota, state: token_bucket::State, now_us: u64, cost: u64) -> Decision {
    match quota.algorithm {
        Algorithm::LeakyBucket => leaky_bucket::peek(quota, state, now_us, cost),
        Algorithm::TokenBucket | Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => {
            token_bucket::peek(quota, state, now_us, cost)
        }
    }
}

/// A quota's decision before it is known whether the take passes.
#[derive(Debug, Clone, Copy)]
struct QuotaStatus {
    limit: u64,
    remaining: u64,
    reset_after_us: u64,
}

impl QuotaStatus {
    fn allow(self) -> Decision {
        self.with_verdict(Verdict::Allowed, 0)
    }

    fn deny(self, retry_after_us: u64) -> Decision {
        self.with_verdict(Verdict::Denied, retry_after_us)
    }

    fn deny_cost(self) -> Decision {
        self.with_verdict(Verdict::CostExceedsBurst, 0)
    }

    fn with_verdict(self, verdict: Verdict, retry_after_us: u64) -> Decision {
        let Self { limit, remaining, reset_after_us } = self;
        Decision { verdict, limit, remaining, retry_after_us, reset_after_us, delay_us: 0 }
    }
}

/// A bucket's time relative to the clock: inside a bucket, time never runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockStep {
    /// The clock is where it was or later: use it.
    Forward,
    /// The clock stepped back a little: the bucket's own time stands still.
    Held,
    /// The clock stepped back far: the bucket moves to it, keeping its counts.
    Rebased,
}

impl ClockStep {
    /// `known_us` is the latest time that the bucket has recorded.
    fn of(known_us: u64, now_us: u64) -> Self {
        match known_us.checked_sub(now_us) {
            None | Some(0) => Self::Forward,
            Some(back) if back <= STEP_BACK_HELD_US => Self::Held,
            Some(_) => Self::Rebased,
        }
    }

    fn time(self, known_us: u64, now_us: u64) -> u64 {
        if self == Self::Held { known_us } else { now_us }
    }
}

/// The start of the window of `period_us` that contains `unix_us`.
fn window_start(quota: &Quota, period_us: u64, unix_us: u64) -> u64 {
    if quota.follows_calendar() { calendar::start(quota, unix_us) } else { unix_us - unix_us % period_us }
}
