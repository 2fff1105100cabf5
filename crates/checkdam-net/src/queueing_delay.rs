//! Queueing delay of a connection's requests: the time between the wake-up of
//! its task, when its socket became readable, and the run of that task. For the
//! first request it begins earlier, with the wait in the accept queue.
//!
//! Under load, tasks wait in the runtime's queues for different times: those that overflow
//! a worker's own queue wait for all others. A separate probe task cannot measure that, so
//! every connection measures its own delay.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use super::load_shedding;

/// When a task was woken. Times are those of [`load_shedding::now`].
#[derive(Debug)]
pub(crate) struct Wakeups {
    /// The first wake-up since the task last ran; 0 if there was none.
    woken: AtomicU64,
    /// The wake-up that made it run.
    since: AtomicU64,
    /// Since when the first request has been waiting, if that was before its task was
    /// spawned; 0 if not, and once it was read.
    first: AtomicU64,
    /// The task's own waker. Not the recording one: that holds this, and neither would
    /// ever be dropped.
    waker: Mutex<Option<Waker>>,
}

impl Wakeups {
    /// For a task that is spawned now.
    pub(crate) fn new() -> Self {
        let now = load_shedding::now();
        Self {
            woken: AtomicU64::new(now),
            since: AtomicU64::new(now),
            first: AtomicU64::new(0),
            waker: Mutex::default(),
        }
    }

    /// Since when the current run of the task has been due.
    pub(crate) fn waiting_since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Since when the request that begins now has been waiting.
    pub(crate) fn request_since(&self) -> u64 {
        match self.first.load(Ordering::Relaxed) {
            0 => self.waiting_since(),
            first => {
                self.first.store(0, Ordering::Relaxed);
                first
            }
        }
    }

    /// Sets since when the first request has been waiting, whatever task will serve it.
    pub(crate) fn first_waits_since(&self, since: u64) {
        self.first.store(since, Ordering::Relaxed);
    }

    /// Wakes the task.
    pub(crate) fn wake(&self) {
        self.record_wake();
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn record_wake(&self) {
        if self.woken.load(Ordering::Relaxed) == 0 {
            self.woken.store(load_shedding::now(), Ordering::Relaxed);
        }
    }

    fn record_run(&self) {
        let since = match self.woken.swap(0, Ordering::Relaxed) {
            0 => load_shedding::now(),
            woken => woken,
        };
        self.since.store(since, Ordering::Relaxed);
    }
}

/// A waker that records when it was used.
struct RecordingWaker {
    wakeups: Arc<Wakeups>,
    task: Waker,
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakeups.record_wake();
        self.task.wake_by_ref();
    }
}

/// Runs a task to its end, and records when it is woken.
pub(crate) async fn record_wakeups<F: Future>(wakeups: Arc<Wakeups>, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut wakers: Option<(Waker, Waker)> = None;
    poll_fn(move |context| {
        wakeups.record_run();
        let (_, noting) = match wakers.take() {
            Some((task, noting)) if task.will_wake(context.waker()) => wakers.insert((task, noting)),
            _ => {
                let task = context.waker().clone();
                let noting =
                    Waker::from(Arc::new(RecordingWaker { wakeups: Arc::clone(&wakeups), task: task.clone() }));
                *wakeups.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.clone());
                wakers.insert((task, noting))
            }
        };
        future.as_mut().poll(&mut Context::from_waker(noting))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A task that is ready and does not run: another keeps the only thread busy.
    #[tokio::test]
    async fn a_task_knows_since_when_it_waits_for_its_turn() {
        let busy = Duration::from_millis(5);
        let wakeups = Arc::new(Wakeups::new());
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let noted = Arc::clone(&wakeups);
        let task = tokio::spawn(record_wakeups(Arc::clone(&wakeups), async move {
            receiver.await.unwrap();
            (noted.waiting_since(), load_shedding::elapsed(noted.waiting_since()))
        }));
        tokio::task::yield_now().await;
        let before = load_shedding::now();
        sender.send(()).unwrap();
        std::thread::sleep(busy);
        let (since, waited) = task.await.unwrap();
        wakeups.first_waits_since(since);
        let next = Arc::clone(&wakeups);
        let handed_over = tokio::spawn(record_wakeups(Arc::clone(&wakeups), async move {
            tokio::task::yield_now().await;
            [next.request_since(), next.request_since()]
        }));
        let [first, second] = handed_over.await.unwrap();
        assert_eq!(first, since, "what the first request waited counts in the task that goes on");
        assert!(second > since, "and for that request only");
        let left = Arc::downgrade(&wakeups);
        drop(wakeups);
        assert!(left.upgrade().is_none(), "nothing of a task that has ended is left");
        assert!(since >= before, "the time before it was woken does not count");
        assert!(waited >= busy, "{waited:?}");
    }
}
