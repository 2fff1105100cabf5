//! One Redis server: a queue of requests, coalesced into few calls.
//!
//! A task drains what is queued, at most a batch at a time, with at most two
//! calls under way: under load requests share calls, and an idle server is
//! asked at once. An unknown outcome is never replayed.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::breaker::{Breaker, BreakerOptions};
use super::script::Packed;
use super::server::{Connector, Server};
use crate::time::ManualClock;

/// No gain was measured beyond this many requests a call.
const BATCH_MAX: usize = 32;
/// One call is answered while the next is written.
const CALLS_MAX: usize = 2;

/// Why a server did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Too many requests wait for it, or the breaker is open.
    #[error("the store is not asked: {reason}")]
    NotAsked {
        /// Why.
        reason: &'static str,
    },
    /// It did not answer in time: whether it did anything is unknown.
    #[error("the store did not answer before the deadline")]
    Late,
    /// The connection failed: whether it did anything is unknown.
    #[error("the connection to the store failed: {reason}")]
    Disconnected {
        /// What the connection said.
        reason: String,
    },
    /// It refused, and did nothing.
    #[error("the store refused: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The keys are elsewhere, or will be; nothing was done.
    #[error("the keys have moved: {reason}")]
    Moved {
        /// What it said.
        reason: String,
        /// Where to ask, if it said so.
        to: Option<String>,
        /// Whether only this once.
        is_ask: bool,
    },
}

impl CallError {
    /// Whether another connection should be made: this one is of no use, or
    /// leads to a server that is no longer the master.
    fn breaks_the_connection(&self) -> bool {
        match self {
            Self::Late | Self::Disconnected { .. } => true,
            Self::Refused { reason } => reason.contains("READONLY") || reason.contains("MASTERDOWN"),
            Self::NotAsked { .. } | Self::Moved { .. } => false,
        }
    }
}

/// What one request gets: the time, and one value a tier.
pub(super) type Reply = (u64, Vec<Value>);

/// One request on its way.
pub(super) struct Job {
    pub(super) packed: Packed,
    pub(super) tiers: usize,
    pub(super) is_asking: bool,
    deadline: Instant,
    reply: oneshot::Sender<Result<Reply, CallError>>,
}

/// How a server is waited for.
#[derive(Debug, Clone)]
pub(super) struct ShardOptions {
    pub(super) breaker: BreakerOptions,
    /// The most requests that may wait for the server.
    pub(super) waiting_max: usize,
    /// Whether a call may touch one slot only.
    pub(super) is_cluster: bool,
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
        tokio::spawn(drive(queue, Arc::new(server), options.is_cluster));
        Self { jobs, breaker: Arc::new(Breaker::new(options.breaker)), started: Instant::now() }
    }

    /// Sends one request and waits for its answer, at most until the deadline.
    pub(super) async fn call(
        &self,
        packed: Packed,
        tiers: usize,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        if !self.breaker.may_try(self.now_us()) {
            return Err(CallError::NotAsked { reason: "its circuit breaker is open" });
        }
        let (reply, answer) = oneshot::channel();
        if self.jobs.try_send(Job { packed, tiers, is_asking, deadline, reply }).is_err() {
            return Err(CallError::NotAsked { reason: "too many requests wait for it" });
        }
        let result = match timeout_at(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CallError::Disconnected { reason: "the request was dropped".to_owned() }),
            Err(_) => Err(CallError::Late),
        };
        match &result {
            // A server that sends us elsewhere is well.
            Ok(_) | Err(CallError::Moved { .. }) => self.breaker.succeeded(),
            Err(_) => {
                self.breaker.failed(self.now_us());
            }
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

/// Takes jobs off the queue and sends them, until the shard is dropped.
async fn drive(mut queue: mpsc::Receiver<Job>, server: Arc<Server>, is_cluster: bool) {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let mut connection: Option<MultiplexedConnection> = None;
    let (broken, mut breaks) = mpsc::unbounded_channel::<()>();
    loop {
        let Ok(permit) = Arc::clone(&calls).acquire_owned().await else { return };
        let Some(first) = queue.recv().await else { return };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(job) = queue.try_recv()
        {
            batch.push(job);
        }
        batch.retain(|job| !job.reply.is_closed());
        while breaks.try_recv().is_ok() {
            connection = None;
        }
        if batch.is_empty() {
            continue;
        }
        let link = match connection.take() {
            Some(link) => link,
            None => match server.connect().await {
                Ok(link) => link,
                Err(error) => {
                    fail(batch, &CallError::Disconnected { reason: error.to_string() });
                    continue;
                }
            },
        };
        connection = Some(link.clone());
        // In a cluster a call may touch one slot only: one call a request, all
        // of them written at once.
        let batch = if is_cluster { batch.into_iter().map(|job| vec![job]).collect() } else { vec![batch] };
        tokio::spawn(send(Arc::clone(&server), link, batch, permit, broken.clone()));
    }
}

async fn send(
    server: Arc<Server>,
    mut link: MultiplexedConnection,
    calls: Vec<Vec<Job>>,
    permit: OwnedSemaphorePermit,
    broken: mpsc::UnboundedSender<()>,
) {
    let Some(deadline) = calls.iter().flatten().map(|job| job.deadline).min() else { return };
    let results = match timeout_at(deadline, server.evaluate(&mut link, &calls, deadline)).await {
        Ok(results) => results,
        Err(_) => calls.iter().map(|_| Err(CallError::Late)).collect(),
    };
    drop(permit);
    let mut is_broken = false;
    for (call, result) in calls.into_iter().zip(results) {
        match result {
            Ok(values) => answer(call, values),
            Err(error) => {
                is_broken |= error.breaks_the_connection();
                fail(call, &error);
            }
        }
    }
    if is_broken {
        // Whoever listens has gone with the shard: nothing to tell.
        let _ = broken.send(());
    }
}

fn answer(call: Vec<Job>, values: Vec<Value>) {
    let mut values = values.into_iter();
    let Some(Value::Int(now_us)) = values.next() else { return };
    for job in call {
        let own: Vec<Value> = values.by_ref().take(job.tiers).collect();
        // A caller that has gone no longer cares.
        let _ = job.reply.send(Ok((now_us as u64, own)));
    }
}

fn fail(call: Vec<Job>, error: &CallError) {
    for job in call {
        let _ = job.reply.send(Err(error.clone()));
    }
}
