//! Load generator of `checkdam bench`.
//!
//! It usually shares the machine with the server under test, so it is cheap, and
//! reports its own cost and where it was the bottleneck. It must never make a server
//! look better than it was: no request that was due is omitted (see `schedule.rs`). It
//! sends only to machines that the user declares their own, and always stops.

mod client;
mod endpoint;
mod grpc;
mod http;
mod http_response;
mod key_distribution;
mod key_template;
mod options;
mod report;
mod schedule;
mod tally;
mod target;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use self::client::Client;
pub use self::client::{RequestFailure, RequestResult};
pub use self::endpoint::Endpoint;
pub use self::grpc::GrpcRequest;
use self::grpc::{GrpcClient, SharedChannel};
pub use self::http::{HeaderTemplate, HttpRequest};
pub use self::key_distribution::KeyDistribution;
pub use self::key_template::KeyTemplate;
pub use self::options::LoadOptions;
pub use self::report::{LoadReport, PERCENTILES};
use self::schedule::Schedule;
pub use self::tally::LoadTally;
pub use self::target::Target;
use self::worker::{Worker, runtime};

/// The interval of progress reports.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct LoadPlan {
    pub target: Target,
    /// The one of the target's addresses that is loaded.
    pub endpoint: Endpoint,
    pub asked: PlannedRequest,
    pub options: LoadOptions,
}

#[derive(Debug, Clone)]
pub enum PlannedRequest {
    Http(Arc<HttpRequest>),
    Grpc(Arc<GrpcRequest>),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error("cannot keep latencies: {0}")]
    Latencies(#[from] hdrhistogram::CreationError),
    #[error("a thread ended unexpectedly: this is a bug in checkdam")]
    Lost,
}

/// What the last second brought.
#[derive(Debug)]
pub struct LoadProgress<'a> {
    /// Since counting began; none while it warms up.
    pub elapsed: Option<Duration>,
    /// The time that `fresh` is from.
    pub interval: Duration,
    pub fresh: &'a LoadTally,
    pub total: &'a LoadTally,
}

/// Sends one request, to find out whether a server responds.
pub fn probe_grpc(
    endpoint: Endpoint,
    request: GrpcRequest,
    timeout: Duration,
) -> std::io::Result<Result<RequestResult, RequestFailure>> {
    let mut client = GrpcClient::new(Arc::new(SharedChannel::new(endpoint)), Arc::new(request));
    let asked = async { tokio::time::timeout(timeout, client.send(0)).await.unwrap_or(Err(RequestFailure::Timeout)) };
    Ok(runtime()?.block_on(asked))
}

/// Runs the plan to its end, or until it is stopped, and reports progress every
/// second.
pub fn run(
    plan: &LoadPlan,
    is_stopped: &Arc<AtomicBool>,
    mut report: impl FnMut(&LoadProgress<'_>),
) -> Result<LoadReport, LoadError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = plan.options.threads.unwrap_or(cores / 2).clamp(1, plan.options.connections);
    let mut crew = (0..threads).map(|thread| Worker::start(plan, thread, threads)).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut crew {
        worker.wait_until_connected()?;
    }
    let schedule = Arc::new(Schedule::new(plan.options.clone(), Arc::clone(is_stopped)));
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
            report(&LoadProgress { elapsed, interval: looked.elapsed(), fresh: &fresh, total: &total });
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
