//! Pacing: when the next call may be sent, from the headers of earlier responses.
//! Pure: the time is an argument.
//!
//! Two rules. A call is sent only if a token is known to be available: what remained
//! at the last response, minus the calls in flight, plus what a bucket is known to
//! have refilled. And calls are spaced: the remaining tokens are spread over the time
//! until the limit is full again, in addition to the refill; while the remaining
//! tokens do not decrease, the spacing shrinks.

use super::backoff::Backoff;
use super::refill::Refill;
use super::signal::{Signal, Standing};

/// A limit without a known reset is tried again after this long.
const UNTOLD_US: u64 = 1_000_000;
/// The factor by which intervals shrink while the remaining tokens do not decrease,
/// and grow when they do.
const HASTE_STEP: f64 = 1.25;
const HASTE_MAX: f64 = 64.0;
/// The factor by which a denial divides the trust, and how much of it a call that
/// passes restores.
const TRUST_LOSS: f64 = 4.0;
const TRUST_STEP: f64 = 0.002;

/// When the next call may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Now,
    /// Not before then, unless a response changes it.
    At(u64),
    /// When a response has arrived.
    AfterAnswer,
}

#[derive(Debug)]
pub(super) struct Pace {
    in_flight: usize,
    in_flight_max: usize,
    space_max_us: u64,
    has_answer: bool,
    /// The last known state of the limit, and when it was received.
    last_standing: Option<(Standing, u64)>,
    refill: Refill,
    haste: f64,
    /// How far to rely on the refill: less after a denial.
    trust: f64,
    sent_us: Option<u64>,
    hold_until_us: u64,
    backoff: Backoff,
}

impl Pace {
    /// With a maximum number of calls in flight, and a longest interval while tokens
    /// remain.
    pub(super) fn new(in_flight_max: usize, space_max_us: u64, backoff: Backoff) -> Self {
        Self {
            in_flight: 0,
            in_flight_max: in_flight_max.max(1),
            space_max_us,
            has_answer: false,
            last_standing: None,
            refill: Refill::default(),
            haste: 1.0,
            trust: 1.0,
            sent_us: None,
            hold_until_us: 0,
            backoff,
        }
    }

    /// When the next call may be sent.
    pub(super) fn next(&self, now_us: u64) -> Turn {
        if self.in_flight >= self.in_flight_max {
            return Turn::AfterAnswer;
        }
        if now_us < self.hold_until_us {
            return Turn::At(self.hold_until_us);
        }
        // Nothing is known: one call is made, the others wait for its response.
        let one_asks = if self.in_flight == 0 { Turn::Now } else { Turn::AfterAnswer };
        match &self.last_standing {
            None if self.has_answer => Turn::Now,
            None => one_asks,
            Some((standing, at_us)) => match self.spaced(standing, *at_us, now_us) {
                Some(then_us) if then_us <= now_us => Turn::Now,
                Some(then_us) => Turn::At(then_us),
                None => one_asks,
            },
        }
    }

    /// When there is a token, and the interval to the previous call has passed; `None` if
    /// the known state has expired.
    fn spaced(&self, standing: &Standing, at_us: u64, now_us: u64) -> Option<u64> {
        let over_us = at_us.saturating_add(standing.reset_after_us.unwrap_or(UNTOLD_US));
        if now_us >= over_us {
            return None;
        }
        let per_us = self.refill.per_second() / 1e6;
        let left = standing.remaining as f64 - self.in_flight as f64;
        let trusted_per_us = per_us * self.trust;
        let available = left + trusted_per_us * now_us.saturating_sub(at_us) as f64;
        if available < 1.0 {
            let there_us = at_us.saturating_add(((1.0 - left) / trusted_per_us).ceil() as u64);
            return Some(there_us.min(over_us));
        }
        let (Some(sent_us), Some(_)) = (self.sent_us, standing.reset_after_us) else { return Some(now_us) };
        let pace_per_us = (per_us + available / (over_us - now_us) as f64) * self.haste;
        let space_us = ((1.0 / pace_per_us) as u64).min(self.space_max_us);
        Some(sent_us.saturating_add(space_us))
    }

    /// Records that a call is sent.
    pub(super) fn sent(&mut self, now_us: u64) {
        self.in_flight += 1;
        self.sent_us = Some(now_us);
    }

    /// Records that a call has no response: it failed, or was dropped.
    pub(super) fn abandoned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records a response.
    pub(super) fn answered(&mut self, now_us: u64, signal: Signal) {
        self.abandoned();
        self.has_answer = true;
        if signal.is_refused {
            let wait_us = self.backoff.refused(signal.retry_after_us);
            self.hold_until_us = self.hold_until_us.max(now_us.saturating_add(wait_us));
            self.haste = 1.0;
            self.trust /= TRUST_LOSS;
        } else {
            self.backoff.passed();
            self.trust = (self.trust + TRUST_STEP).min(1.0);
        }
        let Some(standing) = signal.standing else { return };
        match &self.last_standing {
            Some((before, _)) if before.policy != standing.policy || before.limit != standing.limit => {
                self.refill.forget();
                self.haste = 1.0;
            }
            Some((before, at_us)) => {
                let is_over = before.reset_after_us.is_some_and(|reset_us| now_us >= at_us.saturating_add(reset_us));
                if !signal.is_refused {
                    let is_no_less = standing.remaining >= before.remaining.max(1);
                    let haste = if is_no_less { self.haste * HASTE_STEP } else { self.haste / HASTE_STEP };
                    self.haste = haste.clamp(1.0, HASTE_MAX);
                }
                if is_over {
                    self.refill.restart(now_us, standing.remaining);
                } else if !signal.is_refused {
                    let token_us = standing.window_us.zip(standing.limit).map(|(window, limit)| window / limit.max(1));
                    self.refill.observe(now_us, standing.remaining, token_us);
                }
            }
            None => self.refill.restart(now_us, standing.remaining),
        }
        self.last_standing = Some((standing, now_us));
    }

    /// Whether no call is in flight.
    pub(super) const fn is_quiet(&self) -> bool {
        self.in_flight == 0
    }

    /// How long all calls are held back after a denial.
    pub(super) fn held_us(&self, now_us: u64) -> u64 {
        self.hold_until_us.saturating_sub(now_us)
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
