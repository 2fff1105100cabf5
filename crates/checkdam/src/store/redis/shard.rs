//! One Redis server: a queue of requests, coalesced into few calls.
//!
//! A task drains what is queued, at most a batch at a time, with at most two
//! calls under way: under load requests share calls, and an idle server is
//! asked at once. An unknown outcome is never replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::breaker::{Breaker, BreakerOptions};
use super::call_error::CallError;
use super::reply::{Reply, Told};
use super::script::Packed;
use super::server::{Connector, Server};
use crate::time::ManualClock;

/// The most requests that are written at once, in one call or several: no gain
/// was measured beyond.
const GATHERED_MAX: usize = 32;
/// One call is answered while the next is written.
const CALLS_MAX: usize = 2;
/// How much of its deadline a request may lose to another in the same call.
const DEADLINE_SPREAD: Duration = Duration::from_millis(2);
/// After so many calls in a row without an answer another connection is tried.
const UNANSWERED_MAX: u32 = 3;

/// One request on its way.
pub(super) struct Job {
    pub(super) packed: Packed,
    pub(super) tiers: usize,
    pub(super) is_asking: bool,
    pub(super) deadline: Instant,
    reply: oneshot::Sender<Result<Reply, CallError>>,
}

/// Where a request's answer will come.
type Waiting = oneshot::Receiver<Result<Reply, CallError>>;

/// How a server is waited for.
#[derive(Debug, Clone)]
pub(super) struct ShardOptions {
    pub(super) breaker: BreakerOptions,
    /// The most requests that may wait for the server.
    pub(super) waiting_max: usize,
    /// The most requests of one call; one in a cluster, where a call may touch
    /// one slot only.
    pub(super) batch_max: usize,
    /// In tests: the time to use in place of the server's clock.
    pub(super) clock: Option<Arc<ManualClock>>,
}

/// One server, as requests see it.
#[derive(Debug)]
pub(super) struct Shard {
    jobs: mpsc::Sender<Job>,
    breaker: Arc<Breaker>,
    started: Instant,
}

impl Shard {
    pub(super) fn new(connector: Connector, options: ShardOptions) -> Self {
        let (jobs, queue) = mpsc::channel(options.waiting_max);
        let server = Server::new(connector, options.clock);
        tokio::spawn(drive(queue, Arc::new(server), options.batch_max));
        Self { jobs, breaker: Arc::new(Breaker::new(options.breaker)), started: Instant::now() }
    }

    /// Sends one request, at once, and waits for its answer, at most until the
    /// deadline.
    pub(super) fn call(
        &self,
        packed: Packed,
        tiers: usize,
        is_asking: bool,
        deadline: Instant,
    ) -> impl Future<Output = Result<Reply, CallError>> {
        // Not in the future, which would carry the request with it.
        let sent = self.send(packed, tiers, is_asking, deadline);
        async move { self.wait(sent?, deadline).await }
    }

    fn send(&self, packed: Packed, tiers: usize, is_asking: bool, deadline: Instant) -> Result<Waiting, CallError> {
        if self.breaker.is_open() && !self.breaker.may_try(self.now_us()) {
            return Err(CallError::NotAsked { reason: "its circuit breaker is open" });
        }
        let (reply, waiting) = oneshot::channel();
        match self.jobs.try_send(Job { packed, tiers, is_asking, deadline, reply }) {
            Ok(()) => Ok(waiting),
            Err(_) => Err(CallError::NotAsked { reason: "too many requests wait for it" }),
        }
    }

    async fn wait(&self, waiting: Waiting, deadline: Instant) -> Result<Reply, CallError> {
        let result = match timeout_at(deadline, waiting).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CallError::Disconnected { reason: "the request was dropped".to_owned() }),
            Err(_) => Err(CallError::Late),
        };
        match &result {
            Err(error) if error.is_of_the_server() => {
                self.breaker.failed(self.now_us());
            }
            _ => self.breaker.succeeded(),
        }
        result
    }

    pub(super) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

/// A connection, and what the calls over it have found.
#[derive(Clone)]
struct Link {
    connection: MultiplexedConnection,
    is_broken: Arc<AtomicBool>,
    /// Calls in a row that were not answered.
    unanswered: Arc<AtomicU32>,
}

impl Link {
    fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, is_broken: Arc::default(), unanswered: Arc::default() }
    }

    /// A slow server keeps its connection; one that is silent may be a peer
    /// that has vanished without a word.
    fn is_of_use(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && self.unanswered.load(Ordering::Relaxed) < UNANSWERED_MAX
    }
}

/// Takes jobs off the queue and sends them, until the shard is dropped.
async fn drive(mut queue: mpsc::Receiver<Job>, server: Arc<Server>, batch_max: usize) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let mut link: Option<Link> = None;
    let mut next: Option<Job> = None;
    loop {
        let Ok(permit) = Arc::clone(&calls).acquire_owned().await else { return };
        let first = match next.take() {
            Some(job) => job,
            None => match queue.recv().await {
                Some(job) => job,
                None => return,
            },
        };
        // Whoever is ready to ask does so first: the more share a call the better.
        yield_now().await;
        let mut batch = gather(first, &mut queue, &mut next);
        if batch.is_empty() {
            continue;
        }
        let current = match link.take().filter(Link::is_of_use) {
            Some(current) => current,
            None => match server.connect().await {
                Ok(connection) => Link::new(connection),
                Err(error) => {
                    fail(batch, &CallError::Unreachable { reason: error.to_string() });
                    continue;
                }
            },
        };
        link = Some(current.clone());
        let mut calls = Vec::new();
        while batch.len() > batch_max {
            let rest = batch.split_off(batch_max);
            calls.push(std::mem::replace(&mut batch, rest));
        }
        calls.push(batch);
        tokio::spawn(send(Arc::clone(&server), current, calls, permit));
    }
}

/// The jobs that go out together: those that wait, whose callers still do, and
/// whose deadlines are close to each other, because a call has but one.
fn gather(first: Job, queue: &mut mpsc::Receiver<Job>, next: &mut Option<Job>) -> Vec<Job> {
    let (since, until) = (first.deadline.checked_sub(DEADLINE_SPREAD), first.deadline + DEADLINE_SPREAD);
    let mut batch = Vec::with_capacity(GATHERED_MAX);
    batch.push(first);
    while batch.len() < GATHERED_MAX
        && let Ok(job) = queue.try_recv()
    {
        if job.deadline > until || Some(job.deadline) < since {
            *next = Some(job);
            break;
        }
        batch.push(job);
    }
    let now = Instant::now();
    let is_waiting = |job: &mut Job| !job.reply.is_closed() && job.deadline > now;
    let gone: Vec<Job> = batch.extract_if(.., |job| !is_waiting(job)).collect();
    fail(gone, &CallError::NotAsked { reason: "its turn came too late" });
    let order = |one: &Job, other: &Job| one.packed.order(&other.packed);
    if !batch.is_sorted_by(|one, other| order(one, other).is_le()) {
        batch.sort_by(order);
    }
    batch
}

async fn send(server: Arc<Server>, mut link: Link, calls: Vec<Vec<Job>>, permit: OwnedSemaphorePermit) {
    let Some(last) = calls.iter().flatten().map(|job| job.deadline).max() else { return };
    let results = match timeout_at(last, server.evaluate(&mut link.connection, &calls)).await {
        Ok(results) => {
            link.unanswered.store(0, Ordering::Relaxed);
            results
        }
        Err(_) => {
            link.unanswered.fetch_add(1, Ordering::Relaxed);
            calls.iter().map(|_| Err(CallError::Late)).collect()
        }
    };
    if results.iter().any(|result| result.as_ref().is_err_and(CallError::breaks_the_connection)) {
        link.is_broken.store(true, Ordering::Relaxed);
    }
    drop(permit);
    for (call, result) in calls.into_iter().zip(results) {
        match result {
            Ok(told) => answer(call, told),
            Err(error) => fail(call, &error),
        }
    }
}

fn answer(call: Vec<Job>, mut told: Told) {
    for job in call {
        // A caller that has gone no longer cares.
        let _ = job.reply.send(Ok(told.next(job.tiers)));
    }
}

fn fail(call: Vec<Job>, error: &CallError) {
    for job in call {
        let _ = job.reply.send(Err(error.clone()));
    }
}
