//! Load shedding: a request that has waited too long is answered with 503 before its body
//! is read and before anything is charged, so that admitted requests are answered in time.
//!
//! A request waits from the wake-up of its connection's task to its decision
//! (`queueing_delay.rs`). Each request is shed by its own wait: the runtime's queues are
//! unfair under load, and an average hides requests that wait for seconds. Requests are
//! also shed while too many are being decided, as when a store hangs. Health, metrics and
//! operators are never shed.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use tokio::time::Instant;

use super::options::OverloadOptions;

/// How often the longest wait is read, and the log written.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many of these intervals the longest wait is reported for: a second.
const LOOKS: usize = 10;
/// How long nothing must be late, or shed, for an episode to end.
const OVER_AFTER: Duration = Duration::from_secs(1);
/// Requests must have been late for this long before one is shed: what waited while
/// the machine paused is worked off within that time.
const GRACE: Duration = Duration::from_millis(50);

static CLOCK: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// The time, for [`elapsed`]; never 0.
pub(crate) fn now() -> u64 {
    CLOCK.raw().max(1)
}

/// The time since then.
pub(crate) fn elapsed(since: u64) -> Duration {
    between(since, now())
}

fn between(since: u64, now: u64) -> Duration {
    CLOCK.delta(since, now.max(since))
}

/// The listeners that shed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SheddingListener {
    /// JSON over HTTP.
    Http,
    /// Envoy's rate limit service.
    Grpc,
    /// The proxy.
    Proxy,
}

impl SheddingListener {
    /// In the order in which they are counted.
    const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Proxy];

    /// Its name in metrics.
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Proxy => "proxy",
        }
    }
}

/// How long requests wait, and how many were shed.
#[derive(Debug)]
pub struct LoadShedding {
    options: OverloadOptions,
    /// The number of requests being decided.
    in_flight: AtomicUsize,
    lateness: QueueDelays,
    shed: [AtomicU64; SheddingListener::ALL.len()],
    /// The longest wait of the last second.
    late_ms: AtomicU64,
}

/// Requests that waited too long. Times are those of [`now`]; 0 is never.
#[derive(Debug, Default)]
struct QueueDelays {
    /// When the first one was seen of those that followed each other within [`OVER_AFTER`].
    since: AtomicU64,
    /// When the last one was seen.
    last: AtomicU64,
    /// When one was last admitted since then.
    admitted: AtomicU64,
    /// The longest wait since it was last read, in microseconds.
    longest_us: AtomicU64,
}

/// A request that is being decided, until this is dropped.
#[derive(Debug)]
pub struct InFlightDecision<'a>(&'a AtomicUsize);

impl Drop for InFlightDecision<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LoadShedding {
    /// Nothing to do yet.
    pub(crate) fn new(options: OverloadOptions) -> Self {
        Self {
            options,
            in_flight: AtomicUsize::new(0),
            lateness: QueueDelays::default(),
            shed: std::array::from_fn(|_| AtomicU64::new(0)),
            late_ms: AtomicU64::new(0),
        }
    }

    /// Counts a request as being decided.
    pub fn begin_decision(&self) -> InFlightDecision<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightDecision(&self.in_flight)
    }

    /// Whether a request that has been waiting since then is shed; if so, it is counted.
    pub fn should_shed(&self, listener: SheddingListener, since: u64) -> bool {
        let sheds = self.in_flight() >= self.options.in_flight_max || self.is_too_late(since, now());
        if sheds {
            self.shed[listener as usize].fetch_add(1, Ordering::Relaxed);
        }
        sheds
    }

    /// How many were shed, by listener.
    pub fn shed_by_listener(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SheddingListener::ALL
            .into_iter()
            .map(|listener| (listener.name(), self.shed[listener as usize].load(Ordering::Relaxed)))
    }

    /// How many requests are being decided.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The longest that a request waited in the last second; 0 if waits shed none.
    pub fn max_wait_ms(&self) -> u64 {
        self.late_ms.load(Ordering::Relaxed)
    }

    /// How many were shed.
    pub fn shed_total(&self) -> u64 {
        self.shed_by_listener().map(|(_, count)| count).sum()
    }

    fn is_too_late(&self, since: u64, now: u64) -> bool {
        let Some(late_max) = self.options.late_max else { return false };
        let (lateness, waited) = (&self.lateness, between(since, now));
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        if waited_us > lateness.longest_us.load(Ordering::Relaxed) {
            lateness.longest_us.fetch_max(waited_us, Ordering::Relaxed);
        }
        if waited <= late_max {
            // While nothing is late, nothing shared is written.
            let last = lateness.last.load(Ordering::Relaxed);
            if last != 0 && between(last, now) <= OVER_AFTER {
                lateness.admitted.store(now, Ordering::Relaxed);
            }
            return false;
        }
        let last = lateness.last.swap(now, Ordering::Relaxed);
        if last == 0 || between(last, now) > OVER_AFTER {
            lateness.since.store(now, Ordering::Relaxed);
        }
        if between(lateness.since.load(Ordering::Relaxed), now) < GRACE.max(late_max) {
            return false;
        }
        // Some always pass: if the machine is slow for another reason than our requests,
        // shedding all of them would not help.
        if between(lateness.admitted.load(Ordering::Relaxed), now) > GRACE.max(late_max) {
            lateness.admitted.store(now, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The longest wait since this was last called.
    fn take_max_wait_ms(&self) -> u64 {
        self.lateness.longest_us.swap(0, Ordering::Relaxed) / 1_000
    }

    /// Logs episodes of load shedding, for as long as the program runs.
    pub(crate) async fn log_episodes(&self) {
        let (mut episode, mut longest_ms) = (SheddingEpisode::default(), [0; LOOKS]);
        for look in (0..LOOKS).cycle() {
            tokio::time::sleep(LOOK_EVERY).await;
            longest_ms[look] = self.take_max_wait_ms();
            self.late_ms.store(longest_ms.into_iter().max().unwrap_or(0), Ordering::Relaxed);
            episode.poll(self);
        }
    }
}

/// A time in which requests are shed, for the log.
#[derive(Debug, Default)]
struct SheddingEpisode {
    /// How many had been shed at the last poll.
    seen: u64,
    /// How many had been shed when it began, and when the last one was.
    current: Option<(u64, Instant)>,
}

impl SheddingEpisode {
    fn poll(&mut self, overload: &LoadShedding) {
        let (before, now) = (self.seen, overload.shed_total());
        self.seen = now;
        let is_shedding = now > before;
        match &mut self.current {
            None if is_shedding => {
                self.current = Some((before, Instant::now()));
                let (late_ms, in_flight) = (overload.max_wait_ms(), overload.in_flight());
                tracing::warn!(late_ms, in_flight, "overloaded: shedding requests with 503");
            }
            Some((_, last)) if is_shedding => *last = Instant::now(),
            Some((since, last)) if last.elapsed() >= OVER_AFTER => {
                let shed = now - *since;
                tracing::info!(shed, "no longer overloaded");
                self.current = None;
            }
            _ => {}
        }
    }
}

/// Which requests a listener sheds, and the response to them.
#[derive(Debug, Clone, Copy)]
pub struct SheddingPolicy {
    /// The label under which they are counted.
    pub listener: SheddingListener,
    /// Whether a path is decided. Health is always answered.
    pub decides: fn(&str) -> bool,
    /// The response to a request that is shed.
    pub response: fn() -> Response<Body>,
}

impl SheddingPolicy {
    /// The response to a request that is shed, before anything but its head is read.
    pub(crate) fn shed_response(self, overload: &LoadShedding, path: &str, since: u64) -> Option<Response<Body>> {
        ((self.decides)(path) && overload.should_shed(self.listener, since)).then(self.response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overload(late_max_ms: u64, in_flight_max: usize) -> LoadShedding {
        let late_max = Some(Duration::from_millis(late_max_ms)).filter(|late| !late.is_zero());
        LoadShedding::new(OverloadOptions { late_max, in_flight_max })
    }

    /// Whether requests that arrive at these milliseconds, with these waits, are shed.
    fn shed(overload: &LoadShedding, requests: impl IntoIterator<Item = (u64, u64)>) -> Vec<bool> {
        // Independent of the length of a tick.
        const TICKS: u64 = 1_000_000_000_000;
        let ticks_per_ms = TICKS as f64 / (CLOCK.delta(0, TICKS).as_secs_f64() * 1e3);
        let at = |ms: u64| ((1_000_000 + ms) as f64 * ticks_per_ms) as u64;
        requests.into_iter().map(|(ms, waited)| overload.is_too_late(at(ms - waited), at(ms))).collect()
    }

    #[test]
    fn what_is_decided_counts_until_it_is() {
        let overload = overload(0, 2);
        let first = overload.begin_decision();
        assert!(!overload.should_shed(SheddingListener::Http, now()));
        let second = overload.begin_decision();
        assert!(
            overload.should_shed(SheddingListener::Http, now()) && overload.should_shed(SheddingListener::Grpc, now())
        );
        drop((first, second));
        assert!(!overload.should_shed(SheddingListener::Proxy, now()));
        assert_eq!(overload.shed_by_listener().collect::<Vec<_>>(), [("http", 1), ("grpc", 1), ("proxy", 0)]);
    }

    #[test]
    fn a_request_is_shed_for_its_own_wait() {
        let overload = overload(100, 1);
        // Every millisecond one that is in time and one that has waited for seconds.
        let requests = (5_000..6_000).flat_map(|ms| [(ms, 20), (ms, 3_000)]);
        let shed = shed(&overload, requests);
        let in_time = shed.iter().step_by(2).filter(|shed| **shed).count();
        let late: Vec<_> = shed.iter().skip(1).step_by(2).copied().collect();
        assert_eq!(in_time, 0);
        assert!(late[..100].iter().all(|shed| !shed) && late[101..].iter().all(|shed| *shed));
        assert!((2_999..=3_001).contains(&overload.take_max_wait_ms()));
    }

    #[test]
    fn one_pause_of_the_machine_sheds_nothing() {
        let overload = overload(100, 1);
        // All that waited for five seconds is worked off in 90 ms, and a while later the same again.
        let paused = |from: u64| (from..from + 90).map(|ms| (ms, 5_000));
        let calm = |from: u64| (from..from + 1_500).map(|ms| (ms, 1));
        let requests = paused(6_000).chain(calm(6_090)).chain(paused(7_600)).chain(calm(7_690));
        assert!(shed(&overload, requests).iter().all(|shed| !shed));
    }

    #[test]
    fn where_all_are_late_a_few_pass() {
        let overload = overload(100, 1);
        let shed = shed(&overload, (5_000..6_000).map(|ms| (ms, 400)));
        let passed = shed[101..].iter().filter(|shed| !**shed).count();
        assert!((8..=10).contains(&passed), "{passed} of 900 ms passed");
    }
}
