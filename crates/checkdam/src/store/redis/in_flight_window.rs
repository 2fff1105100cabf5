//! Concurrency window: how many calls to one server may be in flight.
//!
//! A nearby server gets at most two calls at a time, so that requests share them. A
//! distant server needs more, or its round-trip time would bound its throughput: the
//! window follows the shortest round trip measured recently.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// One call is executed while the next is written.
const CALLS_MIN: usize = 2;
/// The most calls, however far the server is.
const CALLS_MAX: usize = 32;
/// Beyond the first, one call may be in flight per this much of the round trip. A
/// server on the same network replies sooner.
const CALL_EVERY_US: u64 = 500;
/// The shortest round trip is that of the present period and the one before.
const PERIOD: Duration = Duration::from_secs(5);
/// Nothing was measured.
const UNKNOWN: u64 = u64::MAX;

/// The calls that are in flight to one server.
#[derive(Debug)]
pub(super) struct InFlightWindow {
    pub(super) round_trip: MinRoundTrip,
    in_flight: AtomicUsize,
    ended: Notify,
}

/// A call in flight, until it is dropped.
pub(super) struct InFlightCall(Arc<InFlightWindow>);

impl InFlightWindow {
    pub(super) fn new() -> Self {
        Self { round_trip: MinRoundTrip::new(), in_flight: AtomicUsize::new(0), ended: Notify::new() }
    }

    /// Waits until another call may be sent. One task at a time may wait.
    pub(super) async fn wait_for_room(&self) {
        while self.in_flight.load(Ordering::Acquire) >= self.calls_max() {
            self.ended.notified().await;
        }
    }

    pub(super) fn begin_call(self: &Arc<Self>) -> InFlightCall {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlightCall(Arc::clone(self))
    }

    fn calls_max(&self) -> usize {
        let us = self.round_trip.shortest_us();
        if us == UNKNOWN {
            return CALLS_MIN;
        }
        usize::try_from(1 + us.div_ceil(CALL_EVERY_US)).unwrap_or(CALLS_MAX).clamp(CALLS_MIN, CALLS_MAX)
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_one();
    }
}

/// The shortest round trip lately. A slow server or a busy machine lengthens most
/// round trips, and hardly ever all of them.
#[derive(Debug)]
pub(super) struct MinRoundTrip {
    started: Instant,
    period: AtomicU64,
    /// In the present period, and in the one before.
    current_us: AtomicU64,
    previous_us: AtomicU64,
}

impl MinRoundTrip {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            period: AtomicU64::new(0),
            current_us: AtomicU64::new(UNKNOWN),
            previous_us: AtomicU64::new(UNKNOWN),
        }
    }

    /// Records the latency of a reply.
    pub(super) fn record(&self, took: Duration) {
        let us = micros(took);
        let (known, period) = (self.period.load(Ordering::Relaxed), self.period_now());
        if period == known {
            self.current_us.fetch_min(us, Ordering::Relaxed);
        } else if self.period.compare_exchange(known, period, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let last_us = self.current_us.swap(us, Ordering::Relaxed);
            let is_recent = period == known + 1;
            self.previous_us.store(if is_recent { last_us } else { UNKNOWN }, Ordering::Relaxed);
        }
    }

    /// Discards earlier measurements: another server may reply from now on.
    pub(super) fn restart(&self, took: Duration) {
        self.period.store(self.period_now(), Ordering::Relaxed);
        self.previous_us.store(UNKNOWN, Ordering::Relaxed);
        self.current_us.store(micros(took), Ordering::Relaxed);
    }

    pub(super) fn shortest(&self) -> Option<Duration> {
        Some(self.shortest_us()).filter(|us| *us != UNKNOWN).map(Duration::from_micros)
    }

    fn shortest_us(&self) -> u64 {
        self.current_us.load(Ordering::Relaxed).min(self.previous_us.load(Ordering::Relaxed))
    }

    fn period_now(&self) -> u64 {
        self.started.elapsed().as_secs() / PERIOD.as_secs()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(UNKNOWN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_window_follows_the_shortest_round_trip() {
        let window = Arc::new(InFlightWindow::new());
        assert_eq!((window.calls_max(), window.round_trip.shortest()), (2, None));
        for (us, calls) in [(90, 2), (500, 2), (1_000, 3), (2_100, 6), (5_000, 11), (10_000, 21), (900_000, 32)] {
            window.round_trip.restart(Duration::from_micros(us));
            window.round_trip.record(Duration::from_secs(1));
            assert_eq!(window.calls_max(), calls, "{us} µs");
        }
        // A longer round trip is accepted after two periods.
        window.round_trip.restart(Duration::from_micros(100));
        for (calls, period) in [(2, 1), (2, 2), (11, 3)] {
            window.round_trip.record(Duration::from_millis(5));
            assert_eq!(window.calls_max(), calls, "period {period}");
            tokio::time::advance(PERIOD).await;
        }
        assert_eq!(window.round_trip.shortest(), Some(Duration::from_millis(5)), "nothing newer is known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_another_to_end_if_the_window_is_full() {
        let window = Arc::new(InFlightWindow::new());
        let (first, _second) = (window.begin_call(), window.begin_call());
        let waiting = tokio::spawn({
            let window = Arc::clone(&window);
            async move { window.wait_for_room().await }
        });
        tokio::time::sleep(PERIOD).await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }
}
