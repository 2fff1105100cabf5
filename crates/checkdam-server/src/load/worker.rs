//! A thread that sends, with its share of the lanes.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::grpc::{GrpcDoor, Link};
use super::http::HttpDoor;
use super::keys::Keys;
use super::lane::{self, Door};
use super::schedule::Schedule;
use super::{Asked, LoadError, Plan, Tally};

/// So many lanes share a connection of gRPC.
const STREAMS_PER_CONNECTION: usize = 16;

/// A thread with its share of the lanes.
pub(super) struct Worker {
    tally: Arc<Mutex<Tally>>,
    connected: mpsc::Receiver<()>,
    schedule: Option<oneshot::Sender<Arc<Schedule>>>,
    /// How long it had something to do.
    thread: JoinHandle<Duration>,
}

impl Worker {
    pub(super) fn start(plan: &Plan, thread: u64, threads: u64) -> Result<Self, LoadError> {
        let tally = Arc::new(Mutex::new(Tally::new()?));
        let (connected_sender, connected) = mpsc::channel();
        let (schedule, given) = oneshot::channel();
        let (plan, shared, runtime) = (plan.clone(), Arc::clone(&tally), runtime()?);
        let work = move || {
            let metrics = runtime.metrics();
            let lanes = (thread..plan.lanes).step_by(usize::try_from(threads).unwrap_or(1));
            runtime.block_on(async {
                let work = Work { plan: &plan, tally: &shared };
                match &plan.asked {
                    Asked::Http(request) => {
                        let doors = lanes.map(|lane| (lane, HttpDoor::new(plan.address, Arc::clone(request))));
                        work.run(doors, connected_sender, given).await;
                    }
                    Asked::Grpc(request) => {
                        let mut link = Arc::new(Link::new(plan.address));
                        let doors = lanes.enumerate().map(|(place, lane)| {
                            if place.is_multiple_of(STREAMS_PER_CONNECTION) {
                                link = Arc::new(Link::new(plan.address));
                            }
                            (lane, GrpcDoor::new(Arc::clone(&link), Arc::clone(request)))
                        });
                        work.run(doors, connected_sender, given).await;
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

    /// What was tallied since this was last asked.
    pub(super) fn take(&self) -> Result<Tally, LoadError> {
        let mut fresh = Tally::new()?;
        std::mem::swap(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner), &mut fresh);
        Ok(fresh)
    }

    pub(super) fn end(self) -> Result<Duration, LoadError> {
        self.thread.join().map_err(|_| LoadError::Lost)
    }
}

/// What the lanes of a thread share.
struct Work<'a> {
    plan: &'a Plan,
    tally: &'a Arc<Mutex<Tally>>,
}

impl Work<'_> {
    async fn run<D: Door + 'static>(
        &self,
        doors: impl Iterator<Item = (u64, D)>,
        connected: mpsc::Sender<()>,
        schedule: oneshot::Receiver<Arc<Schedule>>,
    ) {
        let Plan { spread, keys, seed, .. } = *self.plan;
        let mut opening = JoinSet::new();
        for (lane, mut door) in doors {
            let timeout = self.plan.bounds.timeout;
            opening.spawn(async move {
                let _ = tokio::time::timeout(timeout, door.open()).await;
                (lane, door)
            });
        }
        let opened = opening.join_all().await;
        let _ = connected.send(());
        let Ok(schedule) = schedule.await else { return };
        let mut lanes = JoinSet::new();
        for (lane, mut door) in opened {
            let (schedule, tally) = (Arc::clone(&schedule), Arc::clone(self.tally));
            let mut keys = Keys::new(spread, keys, seed, lane);
            lanes.spawn(async move { lane::run(&mut door, &mut keys, &schedule, &tally).await });
        }
        lanes.join_all().await;
    }
}

/// What lanes of one thread run on.
pub(super) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
