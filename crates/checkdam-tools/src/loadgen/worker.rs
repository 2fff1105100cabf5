//! A thread of the load generator, with its share of the clients.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::{self, Client};
use super::grpc::{GrpcClient, SharedChannel};
use super::http::HttpClient;
use super::key_distribution::KeyGenerator;
use super::schedule::Schedule;
use super::{LoadError, LoadOptions, LoadPlan, LoadTally, PlannedRequest};

/// This many clients share a gRPC connection.
const STREAMS_PER_CONNECTION: usize = 16;

pub(super) struct Worker {
    tally: Arc<Mutex<LoadTally>>,
    connected: mpsc::Receiver<()>,
    schedule: Option<oneshot::Sender<Arc<Schedule>>>,
    /// How long it had something to do.
    thread: JoinHandle<Duration>,
}

impl Worker {
    pub(super) fn start(plan: &LoadPlan, thread: u64, threads: u64) -> Result<Self, LoadError> {
        let tally = Arc::new(Mutex::new(LoadTally::new()?));
        let (connected_sender, connected) = mpsc::channel();
        let (schedule, given) = oneshot::channel();
        let (plan, shared, runtime) = (plan.clone(), Arc::clone(&tally), runtime()?);
        let work = move || {
            let metrics = runtime.metrics();
            let numbers = (thread..plan.options.connections).step_by(usize::try_from(threads).unwrap_or(1));
            runtime.block_on(async {
                let work = WorkerContext { plan: &plan, tally: &shared };
                match &plan.asked {
                    PlannedRequest::Http(request) => {
                        let clients =
                            numbers.map(|number| (number, HttpClient::new(plan.endpoint.clone(), Arc::clone(request))));
                        work.run(clients, connected_sender, given).await;
                    }
                    PlannedRequest::Grpc(request) => {
                        let mut link = Arc::new(SharedChannel::new(plan.endpoint.clone()));
                        let clients = numbers.enumerate().map(|(place, number)| {
                            if place.is_multiple_of(STREAMS_PER_CONNECTION) {
                                link = Arc::new(SharedChannel::new(plan.endpoint.clone()));
                            }
                            (number, GrpcClient::new(Arc::clone(&link), Arc::clone(request)))
                        });
                        work.run(clients, connected_sender, given).await;
                    }
                }
            });
            metrics.worker_total_busy_duration(0)
        };
        let thread = std::thread::Builder::new().name(format!("load-{thread}")).spawn(work)?;
        Ok(Self { tally, connected, schedule: Some(schedule), thread })
    }

    pub(super) fn wait_until_connected(&self) -> Result<(), LoadError> {
        self.connected.recv().map_err(|_| LoadError::Lost)
    }

    pub(super) fn begin(&mut self, schedule: &Arc<Schedule>) {
        if let Some(sender) = self.schedule.take() {
            // A thread that is lost is noticed when it should end.
            let _ = sender.send(Arc::clone(schedule));
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// The results since the last call.
    pub(super) fn take_tally(&self) -> Result<LoadTally, LoadError> {
        let mut fresh = LoadTally::new()?;
        std::mem::swap(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner), &mut fresh);
        Ok(fresh)
    }

    pub(super) fn end(self) -> Result<Duration, LoadError> {
        self.thread.join().map_err(|_| LoadError::Lost)
    }
}

struct WorkerContext<'a> {
    plan: &'a LoadPlan,
    tally: &'a Arc<Mutex<LoadTally>>,
}

impl WorkerContext<'_> {
    async fn run<D: Client + 'static>(
        &self,
        clients: impl Iterator<Item = (u64, D)>,
        connected: mpsc::Sender<()>,
        schedule: oneshot::Receiver<Arc<Schedule>>,
    ) {
        let LoadOptions { spread, keys, seed, timeout, .. } = self.plan.options;
        let mut opening = JoinSet::new();
        for (number, mut client) in clients {
            opening.spawn(async move {
                let _ = tokio::time::timeout(timeout, client.connect()).await;
                (number, client)
            });
        }
        let opened = opening.join_all().await;
        let _ = connected.send(());
        let Ok(schedule) = schedule.await else { return };
        let mut loops = JoinSet::new();
        for (number, mut client) in opened {
            let (schedule, tally) = (Arc::clone(&schedule), Arc::clone(self.tally));
            let mut keys = KeyGenerator::new(spread, keys, seed, number);
            loops.spawn(async move { client::run(&mut client, &mut keys, &schedule, &tally).await });
        }
        loops.join_all().await;
    }
}

/// The runtime of one thread's clients.
pub(super) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
