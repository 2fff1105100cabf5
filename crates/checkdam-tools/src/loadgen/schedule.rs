//! When requests start: closed and open loop.
//!
//! In a closed loop each client sends its next request when the last one is answered:
//! a server that stalls gets fewer requests, so a stall is seen once per client
//! (coordinated omission). In an open loop requests are due at a constant rate
//! whatever the server does. None is skipped: if all clients are busy, a due request
//! waits, and its latency counts from when it was due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::options::LoadOptions;

/// The pacer sleeps no shorter than this: sleeps are about so exact.
const NAP_MIN: Duration = Duration::from_micros(50);
/// Nor longer: it must see that it is stopped.
const NAP_MAX: Duration = Duration::from_millis(20);

/// When requests begin: shared by all clients.
#[derive(Debug)]
pub(super) struct Schedule {
    start: Instant,
    options: LoadOptions,
    /// Requests that clients have taken: in a closed loop those that count.
    taken: AtomicU64,
    line: Option<OpenLoop>,
    is_stopped: Arc<AtomicBool>,
}

/// The requests of an open loop, by their place in it.
#[derive(Debug)]
struct OpenLoop {
    rate_per_s: u64,
    /// How many there are in all, and how many of those do not count.
    total: u64,
    warmup: u64,
    /// One for each request that is due and not taken.
    due: Semaphore,
    released: AtomicU64,
}

/// A request to be sent now.
#[derive(Debug, Clone, Copy)]
pub struct DueRequest {
    /// When it should have begun: its latency counts from here.
    pub due: Instant,
    /// When its client was free for it.
    pub free: Instant,
    /// When it begins.
    pub begun: Instant,
    pub is_counted: bool,
}

impl Schedule {
    pub(super) fn new(options: LoadOptions, is_stopped: Arc<AtomicBool>) -> Self {
        let line = options.rate_per_s.map(|rate_per_s| OpenLoop::new(rate_per_s, &options));
        Self { start: Instant::now(), options, taken: AtomicU64::new(0), line, is_stopped }
    }

    pub(super) fn counted_from(&self) -> Instant {
        self.start + self.options.warmup
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Whether requests are due at a rate.
    pub(super) const fn is_open(&self) -> bool {
        self.line.is_some()
    }

    /// The next request for a free client, when it is due; none if it was the last.
    pub(super) async fn next(&self) -> Option<DueRequest> {
        let free = Instant::now();
        let Some(line) = &self.line else { return self.next_closed_loop(free) };
        line.due.acquire().await.ok()?.forget();
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        if index + 1 >= line.total {
            line.due.close();
        }
        let is_counted = index >= line.warmup;
        Some(DueRequest { due: self.start + line.due_at(index), free, begun: Instant::now(), is_counted })
    }

    fn next_closed_loop(&self, now: Instant) -> Option<DueRequest> {
        let elapsed = now.duration_since(self.start);
        if elapsed >= self.end() || self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let is_counted = elapsed >= self.options.warmup;
        if is_counted && self.taken.fetch_add(1, Ordering::Relaxed) >= self.options.requests_max.unwrap_or(u64::MAX) {
            return None;
        }
        Some(DueRequest { due: now, free: now, begun: now, is_counted })
    }

    /// Lets requests of an open loop begin as they fall due, until the last has
    /// begun, time is over for those in line too, or it is stopped. Runs on a
    /// thread of its own: timers of a runtime count in milliseconds.
    pub(super) fn release_due_requests(&self) {
        while let Some(nap) = self.release_due() {
            std::thread::sleep(nap.clamp(NAP_MIN, NAP_MAX));
        }
    }

    /// Lets what is due begin; how long until there is more.
    pub(super) fn release_due(&self) -> Option<Duration> {
        let line = self.line.as_ref()?;
        if self.is_stopped.load(Ordering::Relaxed) {
            line.due.close();
            return None;
        }
        let elapsed = self.start.elapsed();
        // What fell due while the pacer itself was held up counts too, so it is
        // released before the line closes.
        let due = line.due_by(elapsed);
        let fresh = due - line.released.swap(due, Ordering::Relaxed);
        line.due.add_permits(usize::try_from(fresh).unwrap_or(Semaphore::MAX_PERMITS));
        if line.due.is_closed() || elapsed >= self.end() + self.options.timeout {
            line.due.close();
            return None;
        }
        Some(if due < line.total { line.due_at(due).saturating_sub(elapsed) } else { NAP_MAX })
    }

    /// How long each request that was due, counts, and never began has waited so far.
    /// Call when all clients have ended.
    pub(super) fn unsent_waits(&self) -> impl Iterator<Item = Duration> {
        let elapsed = self.start.elapsed();
        let line = self.line.as_ref().map(|line| {
            let first = self.taken.load(Ordering::Relaxed).max(line.warmup);
            (first..line.released.load(Ordering::Relaxed)).map(move |index| elapsed.saturating_sub(line.due_at(index)))
        });
        line.into_iter().flatten()
    }

    fn end(&self) -> Duration {
        self.options.warmup + self.options.duration
    }
}

impl OpenLoop {
    fn new(rate_per_s: u64, options: &LoadOptions) -> Self {
        let before = |end: Duration| count(end, rate_per_s, u128::div_ceil);
        let warmup = before(options.warmup);
        let most = options.requests_max.map_or(u64::MAX, |most| most.saturating_add(warmup));
        let total = before(options.warmup + options.duration).min(most);
        Self { rate_per_s, total, warmup, due: Semaphore::new(0), released: AtomicU64::new(0) }
    }

    /// When a request is due, from the start.
    fn due_at(&self, index: u64) -> Duration {
        // Rates and times are bounded so that this cannot overflow: a million
        // a second for five hours.
        Duration::from_nanos(index.saturating_mul(1_000_000_000) / self.rate_per_s)
    }

    /// How many are due by then, the first at the start itself.
    fn due_by(&self, elapsed: Duration) -> u64 {
        count(elapsed, self.rate_per_s, |whole, part| whole / part).saturating_add(1).min(self.total)
    }
}

/// How many intervals of the rate are in a time.
fn count(time: Duration, rate_per_s: u64, divide: impl Fn(u128, u128) -> u128) -> u64 {
    u64::try_from(divide(time.as_nanos() * u128::from(rate_per_s), 1_000_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
