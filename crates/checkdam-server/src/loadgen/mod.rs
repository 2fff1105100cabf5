//! Load generator of `checkdam bench`.
//!
//! It usually shares the machine with the server under test, so it is cheap, and
//! reports its own cost and where it was the bottleneck. It must never make a server
//! look better than it was: no request that was due is omitted (see [`schedule`]). It
//! sends only to machines that the user declares their own, and always stops.

mod connection_loop;
mod grpc;
mod http;
mod http_response;
mod key_distribution;
mod key_template;
mod report;
mod request_result;
mod schedule;
mod tally;
mod target;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use self::connection_loop::Client;
pub(crate) use self::grpc::GrpcRequest;
use self::grpc::{GrpcClient, SharedChannel};
pub(crate) use self::http::{HeaderTemplate, HttpRequest};
pub(crate) use self::key_distribution::KeyDistribution;
pub(crate) use self::key_template::KeyTemplate;
pub(crate) use self::report::{LoadReport, PERCENTILES};
pub(crate) use self::request_result::{RequestFailure, RequestResult};
pub(crate) use self::schedule::LoadLimits;
use self::schedule::Schedule;
pub(crate) use self::tally::LoadTally;
pub(crate) use self::target::{Target, invalid_port};
use self::worker::{Worker, runtime};

/// The interval of progress reports.
const LOOK: Duration = Duration::from_secs(1);

/// What is sent, and to which server.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    pub(crate) target: Target,
    /// The one of the target's addresses that is loaded.
    pub(crate) address: SocketAddr,
    pub(crate) asked: PlannedRequest,
    /// Requests in flight at once.
    pub(crate) lanes: u64,
    pub(crate) threads: u64,
    pub(crate) keys: u64,
    pub(crate) spread: KeyDistribution,
    pub(crate) seed: u64,
    pub(crate) bounds: LoadLimits,
}

/// The request to send.
#[derive(Debug, Clone)]
pub(crate) enum PlannedRequest {
    Http(Arc<HttpRequest>),
    Grpc(Arc<GrpcRequest>),
}

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LoadError {
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error("cannot keep latencies: {0}")]
    Latencies(#[from] hdrhistogram::CreationError),
    #[error("a thread ended unexpectedly: this is a bug in checkdam")]
    Lost,
}

/// What the last second brought.
#[derive(Debug)]
pub(crate) struct LoadProgress<'a> {
    /// Since counting began; none while it warms up.
    pub(crate) elapsed: Option<Duration>,
    /// The time that `fresh` is from.
    pub(crate) interval: Duration,
    pub(crate) fresh: &'a LoadTally,
    pub(crate) total: &'a LoadTally,
}

/// Sends one request, to find out whether a server responds.
pub(crate) fn probe_grpc(
    address: SocketAddr,
    request: GrpcRequest,
    timeout: Duration,
) -> std::io::Result<Result<RequestResult, RequestFailure>> {
    let mut client = GrpcClient::new(Arc::new(SharedChannel::new(address)), Arc::new(request));
    let asked = async { tokio::time::timeout(timeout, client.send(0)).await.unwrap_or(Err(RequestFailure::Timeout)) };
    Ok(runtime()?.block_on(asked))
}

/// Runs the plan to its end, or until it is stopped, and reports progress every
/// second.
pub(crate) fn run(
    plan: &LoadPlan,
    is_stopped: &Arc<AtomicBool>,
    mut tell: impl FnMut(&LoadProgress<'_>),
) -> Result<LoadReport, LoadError> {
    let threads = plan.threads.clamp(1, plan.lanes);
    let mut crew = (0..threads).map(|thread| Worker::start(plan, thread, threads)).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut crew {
        worker.wait_until_connected()?;
    }
    let schedule = Arc::new(Schedule::new(plan.bounds.clone(), Arc::clone(is_stopped)));
    for worker in &mut crew {
        worker.begin(&schedule);
    }
    let pacer = Arc::clone(&schedule);
    let pacer = std::thread::Builder::new().name("pacer".to_owned()).spawn(move || pacer.release_due_requests())?;
    let mut total = LoadTally::new()?;
    let mut looked = Instant::now();
    loop {
        let is_done = crew.iter().all(Worker::is_finished);
        if is_done || looked.elapsed() >= LOOK {
            let mut fresh = LoadTally::new()?;
            for worker in &crew {
                fresh.add(&worker.take_tally()?);
            }
            total.add(&fresh);
            let elapsed = Instant::now().checked_duration_since(schedule.counted_from());
            tell(&LoadProgress { elapsed, interval: looked.elapsed(), fresh: &fresh, total: &total });
            looked = Instant::now();
        }
        if is_done {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = pacer.join();
    let mut busy = Duration::ZERO;
    for worker in crew {
        busy += worker.end()?;
    }
    schedule.unsent_waits().for_each(|waited| total.count_unsent(waited));
    Ok(LoadReport::new(plan.clone(), threads, total, &schedule, busy, is_stopped))
}
