//! Closed loops of requests: so many are always under way. One thread on one
//! core sends them all and does as little as it can for each, so that the
//! server's core is the one that is full; where it is not, `server busy` tells.

mod grpc;
pub mod handshake;
mod http;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::machine::{cpu_seconds, load_core, pin_thread};

/// Subjects that requests are spread over.
pub const KEYS: usize = 100_000;

/// What [`run`] measures.
pub const METRICS: &[&str] = &["req/s", "µs p50", "µs p99", "CPU µs/req", "server busy"];

/// Which requests are sent, and how.
#[derive(Debug, Clone, Copy)]
pub enum RequestKind {
    /// `POST /v1/check`, HTTP/1.1, one request under way on each connection.
    Check,
    /// `GET /` and a header `X-User`, HTTP/1.1, the same.
    Get,
    /// `ShouldRateLimit`, sixteen under way on each connection.
    Grpc,
}

/// Streams that share a gRPC connection, as a proxy's would.
const STREAMS: usize = 16;

/// A server under load.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whose CPU time counts.
    pub process: u32,
    /// The requests it gets.
    pub kind: RequestKind,
}

/// Keeps `in_flight` requests under way for that long.
///
/// # Panics
/// If a request fails or is denied: no limit here is that low.
#[must_use]
pub fn run(target: Target, in_flight: usize, length: Duration) -> Vec<f64> {
    in_pinned_runtime(target.address, async move {
        let (connections, streams) = match target.kind {
            RequestKind::Check | RequestKind::Get => (in_flight, 1),
            RequestKind::Grpc => (in_flight.div_ceil(STREAMS), STREAMS.min(in_flight)),
        };
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(connect(target.address).await);
        }
        let (cpu, start) = (cpu_seconds(target.process), Instant::now());
        let end = start + length;
        let tasks: Vec<_> = (open.into_iter().enumerate())
            .map(|(seed, stream)| match target.kind {
                RequestKind::Check => tokio::spawn(http::drive(stream, http::check, seed, end)),
                RequestKind::Get => tokio::spawn(http::drive(stream, http::get, seed, end)),
                RequestKind::Grpc => tokio::spawn(grpc::drive(stream, streams, seed, end)),
            })
            .collect();
        let mut waits_ns = Vec::new();
        for task in tasks {
            waits_ns.extend(task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds(target.process) - cpu);
        summary(&mut waits_ns, seconds, cpu)
    })
}

/// Runs a load on a thread of its own, on the core for it.
fn in_pinned_runtime(address: SocketAddr, load: impl Future<Output = Vec<f64>> + Send) -> Vec<f64> {
    let run = || {
        pin_thread(&[load_core()]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(load)
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|fault| {
        let text = fault.downcast_ref::<String>().map_or("it panicked", String::as_str);
        panic!("the load on {address} ended early: {text}")
    })
}

fn summary(waits_ns: &mut [u32], seconds: f64, cpu: f64) -> Vec<f64> {
    waits_ns.sort_unstable();
    let count = waits_ns.len();
    assert!(count > 0, "no request was answered in {seconds:.1} s");
    let at = |share: f64| f64::from(waits_ns[((count - 1) as f64 * share) as usize]) / 1e3;
    vec![count as f64 / seconds, at(0.5), at(0.99), cpu * 1e6 / count as f64, cpu / seconds]
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap_or_else(|error| panic!("cannot reach {address}: {error}"));
    stream.set_nodelay(true).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream
}

/// How long ago that was.
fn since_ns(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)
}
