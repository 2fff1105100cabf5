//! One Redis server: a queue of requests, coalesced into few calls.
//!
//! A task drains the queue, at most one batch at a time, with as many calls in flight
//! as the round-trip time requires: under load requests share calls, and an idle
//! server is called at once. A call whose result is unknown is never retried.
//!
//! The circuit breaker counts calls, not requests: it observes a call's result even
//! if all its callers were dropped.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, timeout_at};

use super::breaker::{Breaker, BreakerOptions};
use super::call_error::CallError;
use super::in_flight_window::{InFlightCall, InFlightWindow};
use super::reply::{RequestReply, ScriptReply};
use super::script::ScriptCall;
use super::script_connection::{Connector, Server};
use crate::time::ManualClock;

/// The most requests that are written at once, in one call or several: no gain
/// was measured beyond.
const WRITTEN_MAX: usize = 32;
/// How much of its deadline a request may lose to another in the same call.
const DEADLINE_SPREAD: Duration = Duration::from_millis(2);
/// How far the deadlines of requests that are written at once may be apart: more
/// than any queue makes them, less than a request and a return of tokens are.
const WRITTEN_SPREAD: Duration = Duration::from_millis(20);
/// A call without a reply after this long no longer counts against the window:
/// returns of tokens may wait longer than requests.
const COUNTED_MAX: Duration = Duration::from_millis(50);
/// After this many calls in a row without a reply, another connection is tried.
const UNANSWERED_MAX: u32 = 3;

pub(super) struct Job {
    pub(super) packed: ScriptCall,
    pub(super) tiers: usize,
    pub(super) is_asking: bool,
    pub(super) deadline: Instant,
    reply: oneshot::Sender<Result<RequestReply, CallError>>,
}

type PendingReply = oneshot::Receiver<Result<RequestReply, CallError>>;

/// How a server is waited for.
#[derive(Debug, Clone)]
pub(super) struct ShardOptions {
    pub(super) breaker: BreakerOptions,
    /// The maximum number of queued requests.
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
    health: Arc<Health>,
}

/// What the calls to a server have shown.
#[derive(Debug)]
struct Health {
    breaker: Breaker,
    window: Arc<InFlightWindow>,
    started: Instant,
}

impl Health {
    fn learn(&self, is_well: bool) {
        if is_well {
            self.breaker.succeeded();
        } else {
            self.breaker.failed(self.now_us());
        }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

impl Shard {
    pub(super) fn new(connector: Connector, options: ShardOptions) -> Self {
        let (jobs, queue) = mpsc::channel(options.waiting_max);
        let health = Arc::new(Health {
            breaker: Breaker::new(options.breaker),
            window: Arc::new(InFlightWindow::new()),
            started: Instant::now(),
        });
        let server = Arc::new(Server::new(connector, options.clock));
        tokio::spawn(dispatch_loop(queue, server, Arc::clone(&health), options.batch_max));
        Self { jobs, health }
    }

    /// Sends one request, at once, and waits for its answer, at most until the
    /// deadline.
    pub(super) fn call(
        &self,
        packed: ScriptCall,
        tiers: usize,
        is_asking: bool,
        deadline: Instant,
    ) -> impl Future<Output = Result<RequestReply, CallError>> + use<> {
        // Not in the future, which would carry the request with it.
        let sent = self.send(packed, tiers, is_asking, deadline);
        async move {
            match timeout_at(deadline, sent?).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(CallError::Disconnected { reason: "the request was dropped".to_owned() }),
                Err(_) => Err(CallError::TimedOut),
            }
        }
    }

    fn send(
        &self,
        packed: ScriptCall,
        tiers: usize,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<PendingReply, CallError> {
        let Health { breaker, .. } = &*self.health;
        if breaker.is_open() && !breaker.may_try(self.health.now_us()) {
            return Err(CallError::NotSent { reason: "its circuit breaker is open" });
        }
        let (reply, waiting) = oneshot::channel();
        match self.jobs.try_send(Job { packed, tiers, is_asking, deadline, reply }) {
            Ok(()) => Ok(waiting),
            Err(_) => Err(CallError::NotSent { reason: "too many requests wait for it" }),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.health.breaker.is_open()
    }

    /// The shortest round trip lately, if there was one.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.health.window.round_trip.shortest()
    }
}

/// A connection, and what the calls over it have found.
#[derive(Clone)]
struct Link {
    connection: MultiplexedConnection,
    is_broken: Arc<AtomicBool>,
    unanswered: Arc<Mutex<Unanswered>>,
}

/// Calls in a row without a reply. Those that were in flight together count as one.
#[derive(Debug, Default)]
struct Unanswered {
    count: u32,
    counted_at: Option<Instant>,
}

impl Link {
    fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, is_broken: Arc::default(), unanswered: Arc::default() }
    }

    /// A slow server keeps its connection; one that is silent may be a peer
    /// that has vanished without a word.
    fn is_usable(&self) -> bool {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_broken.load(Ordering::Relaxed) && unanswered.count < UNANSWERED_MAX
    }

    fn learn(&self, sent: Instant, is_answered: bool) {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        if is_answered {
            *unanswered = Unanswered::default();
        } else if unanswered.counted_at.is_none_or(|at| sent >= at) {
            *unanswered = Unanswered { count: unanswered.count + 1, counted_at: Some(Instant::now()) };
        }
    }
}

/// Takes jobs off the queue and sends them, until the shard is dropped.
async fn dispatch_loop(mut queue: mpsc::Receiver<Job>, server: Arc<Server>, health: Arc<Health>, batch_max: usize) {
    let mut dialer = Dialer { server: Arc::clone(&server), dialing: None };
    let mut link: Option<Link> = None;
    let mut next: Option<Job> = None;
    loop {
        health.window.wait_for_room().await;
        let first = match next.take() {
            Some(job) => job,
            None => match queue.recv().await {
                Some(job) => job,
                None => return,
            },
        };
        // Tasks that are ready to enqueue run first: the more requests share a call the
        // better.
        yield_now().await;
        let batch = drain_queue(first, &mut queue, &mut next);
        let Some(last) = batch.iter().map(|job| job.deadline).max() else { continue };
        let current = match link.take().filter(Link::is_usable) {
            Some(current) => current,
            None => match dialer.connect(last).await {
                Ok((connection, round_trip)) => {
                    health.window.round_trip.restart(round_trip);
                    Link::new(connection)
                }
                Err(error) => {
                    health.learn(false);
                    send_errors(batch, &error);
                    continue;
                }
            },
        };
        link = Some(current.clone());
        let call = Dispatch { server: Arc::clone(&server), link: current, health: Arc::clone(&health) };
        tokio::spawn(call.send(split(batch, batch_max), last, health.window.begin_call()));
    }
}

/// Opens connections, one at a time, each in its own task: it may take longer than
/// the first requests wait.
struct Dialer {
    server: Arc<Server>,
    dialing: Option<JoinHandle<Result<(MultiplexedConnection, Duration), RedisError>>>,
}

impl Dialer {
    /// A connection, and its round trip.
    async fn connect(&mut self, deadline: Instant) -> Result<(MultiplexedConnection, Duration), CallError> {
        // What was begun for others is of use if it succeeded or still may.
        if let Some(dialing) = self.dialing.take() {
            if !dialing.is_finished() {
                self.dialing = Some(dialing);
            } else if let Ok(Ok(made)) = dialing.await {
                return Ok(made);
            }
        }
        let server = &self.server;
        let dialing = self.dialing.get_or_insert_with(|| {
            let server = Arc::clone(server);
            tokio::spawn(async move { server.connect().await })
        });
        let unreachable = |reason| CallError::Unreachable { reason };
        let made = match timeout_at(deadline, dialing).await {
            Ok(made) => made,
            // It may still succeed, for the next requests.
            Err(_) => return Err(CallError::NotSent { reason: "its connection was not made in time" }),
        };
        self.dialing = None;
        made.map_err(|error| unreachable(error.to_string()))?.map_err(|error| unreachable(error.to_string()))
    }
}

/// The jobs that are sent together: those queued whose callers still wait.
fn drain_queue(first: Job, queue: &mut mpsc::Receiver<Job>, next: &mut Option<Job>) -> Vec<Job> {
    let (since, until) = (first.deadline.checked_sub(WRITTEN_SPREAD), first.deadline + WRITTEN_SPREAD);
    let mut batch = Vec::with_capacity(WRITTEN_MAX);
    batch.push(first);
    while batch.len() < WRITTEN_MAX
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
    send_errors(gone, &CallError::NotSent { reason: "its turn came too late" });
    batch
}

/// Splits jobs into calls. A call has one deadline, the earliest of its jobs, so only
/// jobs with similar deadlines share one.
fn split(mut batch: Vec<Job>, batch_max: usize) -> Vec<Vec<Job>> {
    if !batch.is_sorted_by_key(|job| job.deadline) {
        batch.sort_by_key(|job| job.deadline);
    }
    let mut calls = Vec::with_capacity(1);
    while let Some(first) = batch.first() {
        let until = first.deadline + DEADLINE_SPREAD;
        let end = batch.partition_point(|job| job.deadline <= until).min(batch_max);
        let rest = batch.split_off(end);
        let mut call = std::mem::replace(&mut batch, rest);
        let order = |one: &Job, other: &Job| one.packed.order(&other.packed);
        if !call.is_sorted_by(|one, other| order(one, other).is_le()) {
            call.sort_by(order);
        }
        calls.push(call);
    }
    calls
}

/// What the calls that are written together need.
struct Dispatch {
    server: Arc<Server>,
    link: Link,
    health: Arc<Health>,
}

impl Dispatch {
    async fn send(mut self, calls: Vec<Vec<Job>>, last: Instant, in_flight: InFlightCall) {
        let sent = Instant::now();
        let results = {
            let mut evaluating = pin!(self.server.evaluate(&mut self.link.connection, &calls));
            match timeout_at(last.min(sent + COUNTED_MAX), &mut evaluating).await {
                Ok(results) => Some(results),
                Err(_) => {
                    drop(in_flight);
                    timeout_at(last, evaluating).await.ok()
                }
            }
        };
        self.link.learn(sent, results.is_some());
        if results.is_some() {
            self.health.window.round_trip.record(sent.elapsed());
        }
        let results = results.unwrap_or_else(|| calls.iter().map(|_| Err(CallError::TimedOut)).collect());
        if results.iter().any(|result| result.as_ref().is_err_and(CallError::breaks_connection)) {
            self.link.is_broken.store(true, Ordering::Relaxed);
        }
        self.health.learn(results.iter().any(|result| !result.as_ref().is_err_and(CallError::counts_against_server)));
        for (call, result) in calls.into_iter().zip(results) {
            match result {
                Ok(reply) => send_replies(call, reply),
                Err(error) => send_errors(call, &error),
            }
        }
    }
}

fn send_replies(call: Vec<Job>, mut reply: ScriptReply) {
    for job in call {
        let reply = reply.next(job.tiers);
        let result = if reply.is_outside_windows() { Err(CallError::clocks_apart(reply.at_us)) } else { Ok(reply) };
        // A caller that has gone no longer cares.
        let _ = job.reply.send(result);
    }
}

fn send_errors(call: Vec<Job>, error: &CallError) {
    for job in call {
        let _ = job.reply.send(Err(error.clone()));
    }
}
