//! Client-side throttling for any rate-limited API.
//!
//! It waits as long as `Retry-After` demands, and without that header backs off
//! exponentially, with jitter. It uses the rate-limit headers of responses to slow down
//! before the limit is reached, and serves waiting callers in order. It needs no knowledge
//! of the server beyond its headers.
//!
//! Headers have whole seconds and whole numbers, which bounds its precision: a limit
//! of one call that refills in less than a second looks like one call per second, and
//! part of a window that ends within a second stays unused.

mod backoff;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod pace;
mod refill;
mod signal;

pub use signal::RateLimitedResponse;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use backoff::Backoff;
use pace::{Pace, Turn};
use signal::Signal;

/// Options of a polite caller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoliteOptions {
    /// The maximum number of waiting calls; more fail at once. Default: 1,024.
    pub queue_max: usize,
    /// The maximum number of calls in flight. Default: 64.
    pub in_flight_max: usize,
    /// The longest interval between calls while tokens remain. Default: 10 s.
    pub space_max: Duration,
    /// The maximum number of attempts of one call; then the denial is returned.
    /// Default: 5.
    pub attempts_max: u32,
    /// The longest wait for a limit to reset, or for `Retry-After`; a longer one is an
    /// error. Default: 60 s.
    pub wait_max: Duration,
    /// The longest first delay if a denial has no `Retry-After`; it doubles with every
    /// denial in a row. Default: 200 ms.
    pub backoff: Duration,
    /// The longest of these delays. Default: 30 s.
    pub backoff_max: Duration,
}

impl Default for PoliteOptions {
    fn default() -> Self {
        Self {
            queue_max: 1_024,
            in_flight_max: 64,
            space_max: Duration::from_secs(10),
            attempts_max: 5,
            wait_max: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(30),
        }
    }
}

/// Why a call was not made, or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoliteError<E> {
    /// Too many calls wait already.
    #[error("{queue_max} calls wait for their turn already: call less, or make the queue longer")]
    QueueFull {
        /// How many may wait.
        queue_max: usize,
    },
    /// The server demands a longer wait than configured.
    #[error("the server asks to wait for {} s: come back then", wait.as_secs())]
    MustWait {
        /// How long.
        wait: Duration,
    },
    /// The call failed. It is not repeated: whether it was executed is unknown.
    #[error(transparent)]
    Call(E),
}

/// Makes calls within the limits of a server. Clones share their state and one
/// queue: use one for each limit, such as for each API and key.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use checkdam_client::{Polite, PoliteOptions};
/// let polite = Polite::new(PoliteOptions::default());
/// let response = polite.call(|| async {
///     // Any client that gives an http::Response, or a status and headers.
///     Ok::<_, std::io::Error>(http::Response::new("the answer"))
/// }).await?;
/// assert_eq!(response.into_body(), "the answer");
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Polite {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: PoliteOptions,
    began: Instant,
    pace: Lock<Pace>,
    /// A response has arrived: the next caller tries again.
    answered: Notify,
    waiting: AtomicUsize,
    /// Held by first attempts while they wait, in order.
    line: Mutex<()>,
    /// Held by the first of the line and by retries, which bypass the line.
    turn_lock: Mutex<()>,
}

impl Polite {
    /// A caller without information yet: its first call is made alone.
    #[must_use]
    pub fn new(options: PoliteOptions) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let backoff = Backoff::new(micros(options.backoff), micros(options.backoff_max));
        let shared = Shared {
            began: Instant::now(),
            pace: Lock::new(Pace::new(options.in_flight_max, micros(options.space_max), backoff)),
            answered: Notify::new(),
            waiting: AtomicUsize::new(0),
            line: Mutex::new(()),
            turn_lock: Mutex::new(()),
            options,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes a call when the limit permits, and retries if it is denied (429 or
    /// 503). A call may be dropped at any time.
    ///
    /// # Errors
    /// If too many calls wait, if the server demands a longer wait than configured,
    /// and if the call itself fails. A last denial is not an error: its response is
    /// returned.
    pub async fn call<F, C, R, E>(&self, mut call: F) -> Result<R, PoliteError<E>>
    where
        F: FnMut() -> C,
        C: Future<Output = Result<R, E>>,
        R: RateLimitedResponse,
    {
        let mut ticket = self.first_turn().await?;
        for attempt in 1.. {
            let answer = call().await.map_err(PoliteError::Call)?;
            let signal = Signal::read(&answer);
            let is_refused = signal.is_refused;
            ticket.answered(signal);
            let is_last = attempt >= self.shared.options.attempts_max || self.shared.is_held_for_too_long();
            if !is_refused || is_last {
                return Ok(answer);
            }
            drop(answer);
            let _turn = self.shared.turn_lock.lock().await;
            ticket = self.turn().await?;
        }
        // More attempts than can be counted.
        Err(PoliteError::MustWait { wait: self.shared.options.wait_max })
    }

    /// How many wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    async fn first_turn<E>(&self) -> Result<Ticket, PoliteError<E>> {
        let _waiting = Waiting::new(&self.shared)?;
        let _line = self.shared.line.lock().await;
        let _turn = self.shared.turn_lock.lock().await;
        self.turn().await
    }

    /// Waits for permission; the caller holds `turn_lock`.
    async fn turn<E>(&self) -> Result<Ticket, PoliteError<E>> {
        let shared = &self.shared;
        loop {
            let now_us = shared.now_us();
            let (turn, is_quiet) = {
                let mut pace = shared.pace();
                let turn = pace.next(now_us);
                if turn == Turn::Now {
                    pace.sent(now_us);
                    return Ok(Ticket { shared: Some(Arc::clone(shared)) });
                }
                (turn, pace.is_quiet())
            };
            let answered = shared.answered.notified();
            match turn {
                Turn::At(then_us) => {
                    let wait = Duration::from_micros(then_us.saturating_sub(now_us));
                    // A response that is under way may change it.
                    if is_quiet && wait > shared.options.wait_max {
                        return Err(PoliteError::MustWait { wait });
                    }
                    tokio::select! { () = tokio::time::sleep(wait) => {} () = answered => {} }
                }
                Turn::Now | Turn::AfterAnswer => answered.await,
            }
        }
    }
}

impl Shared {
    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_held_for_too_long(&self) -> bool {
        Duration::from_micros(self.pace().held_us(self.now_us())) > self.options.wait_max
    }
}

/// A call in flight; dropped without a response if it fails.
struct Ticket {
    shared: Option<Arc<Shared>>,
}

impl Ticket {
    fn answered(&mut self, signal: Signal) {
        if let Some(shared) = self.shared.take() {
            shared.pace().answered(shared.now_us(), signal);
            shared.answered.notify_one();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.pace().abandoned();
            shared.answered.notify_one();
        }
    }
}

/// A place in the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new<E>(shared: &'a Shared) -> Result<Self, PoliteError<E>> {
        let queue_max = shared.options.queue_max;
        let place = Self(&shared.waiting);
        // Counted first, so that the drop of the place is right in both cases.
        match shared.waiting.fetch_add(1, Ordering::Relaxed) {
            before if before < queue_max => Ok(place),
            _ => Err(PoliteError::QueueFull { queue_max }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
