//! Estimates how fast a limit refills while it is used.
//!
//! The refill follows from the remaining tokens and those taken since. A token bucket
//! refills all the time, a window only when it ends: only the former has a rate.

use std::collections::VecDeque;

/// The number of observations that are kept; older ones are less relevant.
const SPANS_MAX: usize = 16;
/// The minimum number of observations for a rate.
const SPANS_MIN: usize = 3;
/// The shortest observation.
const SPAN_MIN_US: u64 = 200_000;
/// An observation of a limit without a known window lasts this many calls.
const CALLS_MIN: i64 = 3;

/// Observes the refill of a limit.
#[derive(Debug, Default)]
pub(super) struct Refill {
    spans: VecDeque<Span>,
    open: Option<Open>,
}

/// How much was refilled in how long.
#[derive(Debug, Clone, Copy)]
struct Span {
    returned: i64,
    span_us: u64,
}

/// The current observation.
#[derive(Debug, Clone, Copy)]
struct Open {
    since_us: u64,
    remaining: u64,
    taken: i64,
}

impl Refill {
    /// Starts again for another limit.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The limit was full meanwhile, or its window has ended: the refill before that is
    /// unknown.
    pub(super) fn restart(&mut self, now_us: u64, remaining: u64) {
        self.open = Some(Open { since_us: now_us, remaining, taken: 0 });
    }

    /// Records that a call took one, and this much remains. `token_us` is the refill time
    /// of one, if that is known.
    pub(super) fn observe(&mut self, now_us: u64, remaining: u64, token_us: Option<u64>) {
        let Some(open) = &mut self.open else { return self.restart(now_us, remaining) };
        open.taken += 1;
        let span_us = now_us.saturating_sub(open.since_us);
        let is_long = match token_us {
            Some(token_us) => span_us >= token_us.saturating_mul(3),
            None => open.taken >= CALLS_MIN,
        };
        if !is_long || span_us < SPAN_MIN_US {
            return;
        }
        // Bounded, whatever a server claims.
        let returned = whole(remaining).saturating_sub(whole(open.remaining)).saturating_add(open.taken);
        if self.spans.len() == SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back(Span { returned, span_us });
        self.restart(now_us, remaining);
    }

    /// The refill per second, at least; 0 if that is unknown, or if all is refilled at
    /// once.
    pub(super) fn per_second(&self) -> f64 {
        let returning = self.spans.iter().filter(|span| span.returned > 0).count();
        if self.spans.len() < SPANS_MIN || returning * 4 < self.spans.len() * 3 {
            return 0.0;
        }
        let returned = self.spans.iter().fold(0_i64, |sum, span| sum.saturating_add(span.returned));
        let span_us: u64 = self.spans.iter().map(|span| span.span_us).sum();
        // Remaining tokens are whole numbers: one of them may be a fraction.
        returned.saturating_sub(1).max(0) as f64 * 1e6 / span_us as f64
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
