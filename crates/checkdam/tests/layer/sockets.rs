//! Sixty-four clients at once, over real sockets, through hyper: never over
//! the limit, and the service is called exactly as often as admitted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use checkdam::conformance::oracle::{Take, verify};
use checkdam::layer::RateLimitLayer;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{MemoryOptions, MemoryStore, Store};
use checkdam::{DecidedBy, Limiter, Quota};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::server::conn::http1;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use testkit::Redis;
use tokio::net::TcpListener;
use tower_layer::Layer;

use crate::setup::{Counting, limiter};

const CLIENTS: usize = 64;
const REQUESTS: usize = 50;
const USERS: usize = 8;
const LIMIT: &str = "20/s burst 40";

type Takes = Arc<Mutex<HashMap<String, Vec<Take>>>>;

/// Serves until the test ends.
async fn serve<S: Store + 'static>(layer: RateLimitLayer<S>, inner: Counting) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = layer.layer(inner);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Clients that do not wait, on a few users. Every answer is accounted for.
async fn contend<S: Store + 'static>(limiter: Arc<Limiter<S>>, by: DecidedBy) {
    let takes = Takes::default();
    let seen = Arc::clone(&takes);
    let layer = RateLimitLayer::builder(limiter).header("user", "x-user").cost_header("x-cost").on_outcome(
        move |request, outcome| {
            assert_eq!(outcome.decided_by(), by);
            let take = Take { at_us: outcome.at_us(), cost: request.cost(), admitted: outcome.is_allowed() };
            seen.lock().unwrap().entry(request.get("user").unwrap().to_owned()).or_default().push(take);
        },
    );
    let inner = Counting::default();
    let address = serve(layer.build().unwrap(), inner.clone()).await;
    let (passed, denied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..CLIENTS).map(|client| {
        let (passed, denied) = (Arc::clone(&passed), Arc::clone(&denied));
        tokio::spawn(async move {
            let connection: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
            for round in 0..REQUESTS {
                let request = Request::get(format!("http://{address}/"))
                    .header("x-user", (client + round) % USERS)
                    .header("x-cost", 1 + round % 3)
                    .body(Empty::new())
                    .unwrap();
                let response = connection.request(request).await.unwrap();
                let status = response.status();
                assert!(response.headers().contains_key("ratelimit"), "{response:?}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                match status {
                    StatusCode::OK => assert_eq!(body.as_ref(), b"served"),
                    _ => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{body:?}"),
                }
                let counter = if status == StatusCode::OK { &passed } else { &denied };
                counter.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await.unwrap();
    }
    let (passed, denied) = (passed.load(Ordering::SeqCst), denied.load(Ordering::SeqCst));
    assert_eq!(passed + denied, CLIENTS * REQUESTS);
    assert_eq!(inner.calls(), passed, "the service is called for what passes and for nothing else");
    assert!(passed >= USERS * 15 && denied > passed, "{passed} passed, {denied} denied: the test must be tight");
    let quota: Quota = LIMIT.parse().unwrap();
    let (mut admitted, mut ideal) = (0, 0);
    for (user, takes) in takes.lock().unwrap().iter_mut() {
        let finding = verify(&quota, takes).unwrap_or_else(|error| panic!("user {user}: {error}"));
        admitted += finding.admitted;
        ideal += finding.ideal;
    }
    println!("{by:?}: {passed} passed, {denied} denied; admitted {admitted} of {ideal} ideally");
    assert!(admitted * 100 >= ideal * 99, "{admitted} of {ideal}");
}

fn rules() -> String {
    format!("rules: [{{name: per-user, key: \"user:{{user}}\", limits: [\"{LIMIT}\"]}}]")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_never_pass_more_than_an_ideal_bucket_admits() {
    contend(limiter(&rules(), MemoryStore::new(MemoryOptions::default())), DecidedBy::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_buckets_in_redis() {
    let redis = Redis::start();
    let options = RedisOptions { deadline: Some(Duration::from_secs(10)), ..RedisOptions::new(redis.url()) };
    contend(limiter(&rules(), RedisStore::new(options).unwrap()), DecidedBy::Redis).await;
}
