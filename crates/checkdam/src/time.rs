//! Clocks and time. This is the only module that reads a clock.
//!
//! Time is whole microseconds since 2026-01-01T00:00:00Z. A store owns its clock:
//! decisions take the time as an argument.
#![allow(clippy::disallowed_methods)]

mod rfc3339;
mod sleep;
mod zone;

pub use rfc3339::{UNIX_S_MAX, parse_iso8601_us, parse_rfc3339, rfc3339};
pub(crate) use sleep::sleep;
pub use zone::Zone;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// 2026-01-01T00:00:00Z in microseconds since 1970: where our time begins.
pub const EPOCH_UNIX_US: u64 = 1_767_225_600_000_000;

/// 2043-01-01T00:00:00Z in our time: the last instant at which 16 ticks a
/// microsecond, and what the largest quota adds to them, stay below 2^53.
pub const HORIZON_US: u64 = 536_457_600_000_000;

/// One second in microseconds.
pub const SECOND_US: u64 = 1_000_000;

/// A step back of the clock up to this length is waited out inside a bucket; a
/// longer one rebases the bucket, without credit.
pub const STEP_BACK_HELD_US: u64 = 5 * SECOND_US;

/// Where a store takes its time from.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 2026-01-01T00:00:00Z, never decreasing by design
    /// (buckets survive it if it does).
    fn now_us(&self) -> u64;
}

/// The machine's time: the processor's monotonic counter, anchored to the wall
/// clock at the start. A reading compares the two if the last comparison is more than a
/// second ago, and moves the clock towards the wall clock by at most five
/// milliseconds, which buckets do not mind. If the two are more than [five
/// seconds](STEP_BACK_HELD_US) apart, because the machine started with a wrong time or
/// was suspended, the clock steps to the wall clock at once.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// Microseconds a tick of the counter, in parts of 2^64.
    us_per_tick: u64,
    base_us: u64,
    slewed_us: AtomicI64,
    /// When the wall clock is read again, by the counter.
    follow_at_us: AtomicU64,
}

/// A process may lose the processor between two readings, but not every time.
const ANCHORINGS: usize = 8;
/// How much faster or slower than the counter the clock may run to follow the
/// wall clock: one part in 2,000, the limit that NTP keeps too.
const SLEW_SHARE: u64 = 2_000;
/// A number of counter ticks, an hour or more, whose length in whole nanoseconds
/// gives the length of one tick precisely enough.
const TICKS: u64 = 1 << 44;
/// How often the wall clock is read.
const FOLLOW_EVERY_US: u64 = SECOND_US;
/// Time beyond this since the last correction is not made up for.
const FOLLOW_MAX_US: u64 = 10 * SECOND_US;

impl SystemClock {
    /// Anchors a new clock to the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let ns = u128::from(counter.delta_as_nanos(0, TICKS));
        let us_per_tick = u64::try_from((ns << 64) / (u128::from(TICKS) * 1_000)).unwrap_or(u64::MAX);
        let (start, base_us) = anchor(&counter);
        let (slewed_us, follow_at_us) = (AtomicI64::new(0), AtomicU64::new(FOLLOW_EVERY_US));
        Self { counter, start, us_per_tick, base_us, slewed_us, follow_at_us }
    }

    /// One reading: the microseconds since the clock was made, by the counter alone, and
    /// the time as returned by [`now_us`](Clock::now_us).
    #[must_use]
    #[inline]
    pub fn read(&self) -> (u64, u64) {
        let elapsed_us = self.elapsed_us();
        if elapsed_us >= self.follow_at_us.load(Ordering::Relaxed) {
            self.follow(elapsed_us);
        }
        let slewed_us = self.slewed_us.load(Ordering::Relaxed);
        (elapsed_us, (self.base_us + elapsed_us).saturating_add_signed(slewed_us).min(HORIZON_US))
    }

    /// Reads the wall clock, unless another thread does.
    #[cold]
    #[inline(never)]
    fn follow(&self, elapsed_us: u64) {
        let due_us = self.follow_at_us.load(Ordering::Relaxed);
        let next_us = elapsed_us + FOLLOW_EVERY_US;
        let is_ours = due_us <= elapsed_us
            && self.follow_at_us.compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours {
            self.approach(wall_us(), elapsed_us, elapsed_us - due_us + FOLLOW_EVERY_US);
        }
    }

    /// Moves towards `wall_us`, which was read at `elapsed_us`, `since_us` after the last
    /// correction.
    fn approach(&self, wall_us: u64, elapsed_us: u64, since_us: u64) {
        let slewed_us = self.slewed_us.load(Ordering::Relaxed);
        let now_us = (self.base_us + elapsed_us).saturating_add_signed(slewed_us).min(HORIZON_US);
        let error = wall_us.min(HORIZON_US) as i64 - now_us as i64;
        let most = (since_us.min(FOLLOW_MAX_US) / SLEW_SHARE) as i64;
        let is_far = error.unsigned_abs() > STEP_BACK_HELD_US;
        let change = if is_far { error } else { error.clamp(-most, most) };
        self.slewed_us.fetch_add(change, Ordering::Relaxed);
    }

    /// One multiplication, where asking the counter for it takes two and a
    /// division.
    #[inline]
    fn elapsed_us(&self) -> u64 {
        // The counters of two cores may differ by a few ticks.
        let ticks = self.counter.raw().saturating_sub(self.start);
        ((u128::from(ticks) * u128::from(self.us_per_tick)) >> 64) as u64
    }
}

/// The counter and the wall clock at one time: of several attempts the one in
/// which least time passed between the two.
fn anchor(counter: &quanta::Clock) -> (u64, u64) {
    let attempt = |_| {
        let (before, base_us, after) = (counter.raw(), wall_us(), counter.raw());
        (after - before, before + (after - before) / 2, base_us)
    };
    (0..ANCHORINGS).map(attempt).min().map_or((0, 0), |(_, start, base_us)| (start, base_us))
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.read().1
    }
}

/// A clock that stands still until a test or a simulation moves it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_us`.
    #[must_use]
    pub const fn at(now_us: u64) -> Self {
        Self(AtomicU64::new(now_us))
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::SeqCst);
    }

    /// Moves the time forward and returns the new time.
    pub fn advance(&self, by_us: u64) -> u64 {
        self.0.fetch_add(by_us, Ordering::SeqCst) + by_us
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}

/// The time of day in microseconds since 1970, for dates that people read.
/// Nothing is decided by it.
#[must_use]
pub fn unix_us() -> u64 {
    wall_us() + EPOCH_UNIX_US
}

/// The wall clock in our time; 0 before 2026.
fn wall_us() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (unix.as_micros() as u64).saturating_sub(EPOCH_UNIX_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_ticks_a_microsecond_fit_below_2_to_the_53_until_2043() {
        const { assert!(HORIZON_US * 16 < 1 << 53) };
        let year_2043_unix_us = 2_303_683_200_u64 * SECOND_US;
        assert_eq!(EPOCH_UNIX_US + HORIZON_US, year_2043_unix_us);
    }

    #[test]
    fn a_clock_that_is_far_off_steps_and_one_that_is_a_little_off_does_not() {
        let clock = SystemClock::new();
        let ahead_us = |by_us: i64| {
            let (steady, before) = clock.read();
            clock.approach(before.saturating_add_signed(by_us), steady, SECOND_US);
            let (steady_after, after) = clock.read();
            // Less what passed meanwhile.
            after as i64 - before as i64 - (steady_after - steady) as i64
        };
        for by_us in [600_000_000, -600_000_000, 5_100_000, -86_400_000_000] {
            assert!((ahead_us(by_us) - by_us).abs() < 100_000, "{by_us} µs off");
        }
        for by_us in [4_900_000, -4_900_000, 1_000, -1] {
            assert!(ahead_us(by_us).abs() <= 5_000, "{by_us} µs off");
        }
    }

    #[test]
    fn the_system_clock_is_near_the_wall_clock_and_never_decreases() {
        let clock = SystemClock::new();
        assert!(clock.now_us().abs_diff(wall_us()) < SECOND_US);
        let mut last = 0;
        for _ in 0..10_000 {
            let now = clock.now_us();
            assert!(now + 100 >= last, "the clock went back from {last} to {now}");
            last = now;
        }
    }

    #[test]
    fn reading_the_clock_keeps_it_near_the_wall_clock() {
        let clock = SystemClock::new();
        // As after an hour of suspension: the counter stood still, the wall clock did not.
        clock.slewed_us.fetch_sub(3_600 * SECOND_US as i64, Ordering::Relaxed);
        assert!(wall_us() - clock.now_us() > 3_599 * SECOND_US, "not before it is due");
        clock.follow_at_us.store(clock.read().0, Ordering::Relaxed);
        assert!(clock.now_us().abs_diff(wall_us()) < SECOND_US);
        assert!(clock.follow_at_us.load(Ordering::Relaxed) > clock.elapsed_us(), "only once a second");
    }
}
