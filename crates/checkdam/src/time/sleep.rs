//! Sleeping on any executor: one thread of this process wakes the futures that wait.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Completes after `wait`, on any executor. It takes no memory once it is dropped.
pub(crate) fn sleep(wait: Duration) -> Sleep {
    let number = TIMER.numbers.fetch_add(1, Ordering::Relaxed);
    Sleep { until: Instant::now().checked_add(wait), number, is_queued: false }
}

/// The future of [`sleep`].
#[derive(Debug)]
pub(crate) struct Sleep {
    /// `None` is later than any clock can show.
    until: Option<Instant>,
    number: u64,
    is_queued: bool,
}

/// When a future is to be woken, and its number, so that two at one time differ.
type Place = (Instant, u64);

#[derive(Debug)]
struct Timer {
    queue: Mutex<BTreeMap<Place, Waker>>,
    /// Told when the first place of the queue has changed.
    is_changed: Condvar,
    numbers: AtomicU64,
}

static TIMER: Timer =
    Timer { queue: Mutex::new(BTreeMap::new()), is_changed: Condvar::new(), numbers: AtomicU64::new(0) };

impl Timer {
    /// Starts the thread on first use; whether there is one.
    fn is_running() -> bool {
        static STARTED: StartedOnce = StartedOnce::new();
        STARTED.or_start(|| thread::Builder::new().name("checkdam-timer".to_owned()).spawn(|| TIMER.run()).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Waker>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, place: Place, waker: Waker) {
        let mut queue = self.lock();
        queue.insert(place, waker);
        if queue.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.is_changed.notify_one();
        }
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let later = queue.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut *queue, later);
            if !due.is_empty() {
                drop(queue);
                for waker in due.into_values() {
                    // An executor that panics here must not end the waits of others.
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                queue = self.lock();
                continue;
            }
            queue = match queue.first_key_value() {
                Some(((first, _), _)) => {
                    let wait = first.saturating_duration_since(now);
                    self.is_changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.is_changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Something that is started once. A start that fails is tried again: the system may have
/// had no thread left for a moment only.
#[derive(Debug)]
struct StartedOnce {
    is_started: OnceLock<()>,
    starting: Mutex<()>,
}

impl StartedOnce {
    const fn new() -> Self {
        Self { is_started: OnceLock::new(), starting: Mutex::new(()) }
    }

    /// Whether it is started, now or before.
    fn or_start(&self, start: impl FnOnce() -> bool) -> bool {
        if self.is_started.get().is_some() {
            return true;
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_started.get().is_none() && start() {
            // Nobody else sets it meanwhile.
            let _ = self.is_started.set(());
        }
        self.is_started.get().is_some()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        if Timer::is_running() {
            self.is_queued = true;
            TIMER.insert((until, self.number), context.waker().clone());
        } else {
            // The system has no thread left: the executor polls again at once.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(until) = self.until.filter(|_| self.is_queued) {
            TIMER.lock().remove(&(until, self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_end_in_the_order_of_their_times_and_never_early() {
        let waits = [30, 5, 20, 0, 10].map(Duration::from_millis);
        let began = Instant::now();
        let threads = waits.map(|wait| {
            thread::spawn(move || {
                pollster::block_on(sleep(wait));
                assert!(began.elapsed() >= wait);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_start_that_failed_is_tried_again_and_one_that_did_not_is_not() {
        let started = StartedOnce::new();
        assert!(!started.or_start(|| false));
        assert!(!started.or_start(|| false));
        assert!(started.or_start(|| true));
        assert!(started.or_start(|| panic!("it is started")));
    }

    #[test]
    fn a_sleep_that_is_dropped_leaves_nothing() {
        let mut long = Box::pin(sleep(Duration::from_secs(3_600)));
        let place = (long.until.unwrap(), long.number);
        for _ in 0..3 {
            assert!(long.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(TIMER.lock().contains_key(&place));
        }
        drop(long);
        assert!(!TIMER.lock().contains_key(&place));
        let mut endless = Box::pin(sleep(Duration::MAX));
        assert!(endless.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
