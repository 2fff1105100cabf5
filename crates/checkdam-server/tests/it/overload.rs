//! Load shedding: under overload requests are rejected early, with 503.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use testkit::{Redis, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::time::Instant;
use tonic::Code;

use crate::envoy_client::{RateLimitClient, RateLimitRequest, of};
use crate::http_client::{Client, Reply};
use crate::server_process::{PATIENCE, Server, SetOnDrop, checkdam, rule_file};

/// A rule that gives nothing back while a test runs.
const RULES: &str = "rules: [{name: all, key: all, limits: [\"10000000 per calendar month\"], algorithm: fixed_window, on_store_failure: closed}]";
const USER: &str = r#"{"attributes": {"user": "42"}}"#;
const LIMIT: u64 = 10_000_000;

fn is_turned_away(reply: &Reply) {
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["type"], "urn:checkdam:problem:overloaded");
}

/// Waits until so many requests are being decided.
fn wait_for_load(server: &Server, in_flight: u64) {
    let (mut admin, start) = (server.admin(), Instant::now());
    while admin.get("/admin/v1/status").json()["load"]["in_flight"] != in_flight {
        assert!(start.elapsed() < PATIENCE);
    }
}

fn remaining(client: &mut Client) -> u64 {
    client.ok("/v1/peek", USER)["remaining"].as_u64().unwrap()
}

/// The store hangs: two requests wait for it, and further requests are shed at once, on
/// every listener.
#[test]
fn requests_beyond_the_maximum_in_flight_are_shed() {
    let redis = Redis::start();
    let (rules, url) = (rule_file(RULES), redis.url());
    let common =
        ["--rules", rules.to_str().unwrap(), "--store", &url, "--store-deadline", "8s", "--in-flight-max", "2"];
    let mut server = Server::with(&common);
    let mut client = server.client();
    assert_eq!(client.post("/v1/check", USER).status, 200);
    let mut grpc = RateLimitClient::of(&server);
    redis.pause();
    let waiting =
        [server.client(), server.client()].map(|mut client| std::thread::spawn(move || client.post("/v1/check", USER)));
    wait_for_load(&server, 2);
    is_turned_away(&client.post("/v1/check", "not even read"));
    for path in ["/v1/peek", "/v1/check/batch", "/v1/explain", "/json", "/v1/auth"] {
        is_turned_away(&client.post(path, USER));
    }
    let for_nginx = client.post("/v1/auth/denied=403", "");
    assert_eq!((for_nginx.status, for_nginx.header("x-checkdam-status")), (403, Some("503")), "{for_nginx:?}");
    let asked = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![of(&[("k", "1")])], hits_addend: 0 };
    assert_eq!(grpc.send(asked).unwrap_err().code(), Code::Unavailable);
    for path in ["/livez", "/readyz", "/openapi.json"] {
        assert_eq!(client.get(path).status, 200, "{path} is never turned away");
    }
    assert_eq!(server.admin().get("/admin/v1/status").status, 200);
    server.wait_for_log("overloaded: shedding requests");
    redis.resume();
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap().status, 200, "who was let in is answered");
    }
    assert_eq!(remaining(&mut client), LIMIT - 3, "only those three were charged");
    server.wait_for_log("no longer overloaded");
    assert_eq!(client.post("/v1/check", USER).status, 200);
}

/// The proxy answers for its upstream, which hears nothing of it.
#[test]
fn the_proxy_turns_away_what_it_does_not_forward() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let (rules, store) = (rule_file("rules: [{name: all, key: all, limits: [1000000/d]}]"), redis.url());
    let to = format!("http://{}", upstream.addr());
    let server = Server::proxy(
        &[
            ["--rules", rules.to_str().unwrap()],
            ["--store", &store],
            ["--store-deadline", "8s"],
            ["--in-flight-max", "1"],
            ["--upstream", &to],
        ]
        .concat(),
    );
    let mut client = server.client();
    assert_eq!(client.get("/").status, 200);
    redis.pause();
    let mut other = server.client();
    let waiting = std::thread::spawn(move || other.get("/"));
    wait_for_load(&server, 1);
    // A body that is larger than what is read with the head: the connection lives on.
    is_turned_away(&client.post("/upload", &"x".repeat(200_000)));
    is_turned_away(&client.get("/"));
    redis.resume();
    assert_eq!(waiting.join().unwrap().status, 200);
    assert_eq!(client.get("/").status, 200);
}

/// Far more clients than one thread can answer within a millisecond: some are
/// turned away, nobody of them is charged, health is answered, and when they
/// are gone all is as before.
#[test]
fn when_work_begins_late_some_are_turned_away_until_it_does_not() {
    let rules = rule_file(RULES);
    let mut command = checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0", "--shed-after", "1ms"]);
    command.args(["--rules", rules.to_str().unwrap()]).env("TOKIO_WORKER_THREADS", "1");
    let mut server = Server::of(command);
    let (passed, shed, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..24 {
            let (passed, shed, is_over) = (&passed, &shed, &is_over);
            let mut client = server.client();
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let (ok, away) = flood(&mut client);
                    passed.fetch_add(ok, Ordering::Relaxed);
                    shed.fetch_add(away, Ordering::Relaxed);
                }
            });
        }
        // However this ends, the clients do.
        let _ending = SetOnDrop(&is_over);
        let (mut health, start) = (server.client(), Instant::now());
        assert_eq!(health.get("/readyz").status, 200);
        while shed.load(Ordering::Relaxed) < 1_000 && start.elapsed() < PATIENCE {
            // As probes ask: by a connection of their own, or by one that they keep.
            assert_eq!(server.client().get("/livez").status, 200, "health is never turned away");
            assert_eq!(health.get("/readyz").status, 200);
        }
        let mut admin = server.admin();
        testkit::wait_until("the wait of requests is reported", PATIENCE, || {
            admin.get("/admin/v1/status").json()["load"]["late_ms"].as_u64().unwrap() >= 1
        });
    });
    let (passed, shed) = (passed.into_inner(), shed.into_inner());
    println!("{passed} passed, {shed} were turned away");
    assert!(passed > 0 && shed >= 1_000, "{passed} passed, {shed} were turned away: {}", server.log());
    server.wait_for_log("no longer overloaded");
    // On a busy machine some still wait for longer than a millisecond.
    let mut client = server.client();
    let later = (0..50).filter(|_| client.post("/v1/check", USER).status == 200).count() as u64;
    assert!(later > 0, "it is as before");
    let mut left = None;
    testkit::wait_until("a peek is answered", PATIENCE, || {
        let reply = client.post("/v1/peek", USER);
        left = (reply.status == 200).then(|| reply.json()["remaining"].as_u64().unwrap());
        left.is_some()
    });
    assert_eq!(left, Some(LIMIT - passed - later), "what is turned away is not charged");
}

/// Sends many at once on a connection: how many passed, and how many were turned away.
fn flood(client: &mut Client) -> (u64, u64) {
    const AT_ONCE: usize = 100;
    let one = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{USER}", USER.len());
    client.write(one.repeat(AT_ONCE)).unwrap();
    let mut counts = (0, 0);
    for _ in 0..AT_ONCE {
        let reply = client.read().unwrap();
        if reply.status == 200 {
            counts.0 += 1;
        } else {
            is_turned_away(&reply);
            counts.1 += 1;
        }
    }
    counts
}

/// Four times what the server can do, from clients that do not wait as they are
/// asked to, and as many connections as never rest: those who are let in are
/// answered in time, and so is health. To be run alone and optimised:
/// `./test --overload`
#[test]
#[ignore = "takes a minute and the whole machine"]
fn four_times_the_capacity() {
    let seconds = 10;
    // The server has one core to itself, and the clients have another.
    let pinned = std::process::Command::new("taskset").args(["-acp", "1", &std::process::id().to_string()]).output();
    assert!(pinned.unwrap().status.success(), "needs two cores and taskset");
    let server = serve("0s");
    let capacity = press(server.address(), 64, Duration::ZERO, seconds, &OnceLock::new()).1.rate();
    drop(server);
    // So many clients, each with a pause between its requests, ask four times as much.
    let pause = Duration::from_millis(40);
    let clients = ((4.0 * capacity * pause.as_secs_f64()) as usize).min(9_000);
    println!("capacity {capacity:.0}/s");
    let mut missed = Vec::new();
    for (clients, pause) in [(clients, pause), (3_000, Duration::ZERO)] {
        for shed_after_ms in [0, 100, 20] {
            let server = serve(&format!("{shed_after_ms}ms"));
            let is_over = AtomicBool::new(false);
            let connected = OnceLock::new();
            let ((burst, pressed), health) = std::thread::scope(|scope| {
                let probes = scope.spawn(|| probe(&server, &is_over));
                let pressed = press(server.address(), clients, pause, seconds, &connected);
                is_over.store(true, Ordering::Relaxed);
                (pressed, probes.join().unwrap())
            });
            println!("{clients} clients with pauses of {pause:?}, --shed-after {shed_after_ms}ms:");
            println!("  first requests of all connections at once: {burst}");
            println!("  then in {seconds} s: {pressed}");
            let connected = connected.get().copied().unwrap();
            let longest_ms = |is_steady: bool| {
                let probes = health.iter().filter(|(start, _)| (*start > connected) == is_steady);
                probes.map(|(_, took)| took.as_secs_f64() * 1e3).fold(0.0, f64::max)
            };
            let (burst_ms, longest_ms) = (longest_ms(false), longest_ms(true));
            println!(
                "  slowest of {} health probes: {burst_ms:.1} ms in the burst, {longest_ms:.1} ms then",
                health.len()
            );
            let is_late = shed_after_ms > 0 && pressed.at(0.99) > 2.0 * f64::from(shed_after_ms);
            if longest_ms > 100.0 || is_late {
                missed.push((clients, shed_after_ms));
            }
        }
    }
    assert!(missed.is_empty(), "too late with (clients, --shed-after in ms): {missed:?}");
}

/// How long health took, asked for as Kubernetes does: each time by a connection of its own.
fn probe(server: &Server, is_over: &AtomicBool) -> Vec<(Instant, Duration)> {
    let mut took = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        for path in ["/livez", "/readyz"] {
            let start = Instant::now();
            assert_eq!(server.client().get(path).status, 200);
            took.push((start, start.elapsed()));
        }
        let start = Instant::now();
        assert_eq!(server.admin().get("/admin/v1/status").status, 200);
        took.push((start, start.elapsed()));
        std::thread::sleep(Duration::from_millis(20));
    }
    took
}

fn serve(shed_after: &str) -> Server {
    let (program, rules) = (checkdam(), rule_file(RULES));
    let mut command = std::process::Command::new("taskset");
    command.args(["-c", "0"]).arg(program.get_program());
    command.args(["serve", "--http-listen", "127.0.0.1:0", "--rules", rules.to_str().unwrap()]);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["--shed-after", shed_after]);
    Server::of(command)
}

/// What clients saw.
#[derive(Default)]
struct ClientCounts {
    admitted_us: Vec<u64>,
    shed: u64,
    seconds: u64,
}

impl ClientCounts {
    fn add(&mut self, admitted_us: Option<u64>) {
        match admitted_us {
            Some(us) => self.admitted_us.push(us),
            None => self.shed += 1,
        }
    }

    fn extend(&mut self, other: Self) {
        self.admitted_us.extend(other.admitted_us);
        self.shed += other.shed;
    }

    fn rate(&self) -> f64 {
        self.admitted_us.len() as f64 / self.seconds as f64
    }

    /// How long this share of those who were let in waited at most, in milliseconds.
    fn at(&self, share: f64) -> f64 {
        let last = self.admitted_us.len().saturating_sub(1);
        self.admitted_us.get((last as f64 * share) as usize).map_or(0.0, |us| *us as f64 / 1_000.0)
    }
}

impl std::fmt::Display for ClientCounts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (admitted, shed) = (self.admitted_us.len(), self.shed);
        write!(
            out,
            "{admitted} admitted in p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms; {shed} shed",
            self.at(0.5),
            self.at(0.99),
            self.at(0.999)
        )
    }
}

/// Lets so many clients connect and ask once, all together, and then again and again:
/// what they saw in the burst, and after `connected`.
fn press(
    address: &str,
    clients: usize,
    pause: Duration,
    seconds: u64,
    connected: &OnceLock<Instant>,
) -> (ClientCounts, ClientCounts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut burst, mut steady) = (ClientCounts::default(), ClientCounts { seconds, ..ClientCounts::default() });
    runtime.block_on(async {
        let barrier = Arc::new(Barrier::new(clients + 1));
        let clients: Vec<_> = (0..clients)
            .map(|number| tokio::spawn(ask(address.to_owned(), pause, number, Arc::clone(&barrier), seconds)))
            .collect();
        barrier.wait().await;
        connected.get_or_init(Instant::now);
        for client in clients {
            let (first, others) = client.await.unwrap();
            burst.extend(first);
            steady.extend(others);
        }
    });
    burst.admitted_us.sort_unstable();
    steady.admitted_us.sort_unstable();
    (burst, steady)
}

/// One client: what it saw of its first request, and of the others.
async fn ask(
    address: String,
    pause: Duration,
    number: usize,
    connected: Arc<Barrier>,
    seconds: u64,
) -> (ClientCounts, ClientCounts) {
    let (mut first, mut others) = (ClientCounts::default(), ClientCounts::default());
    let sent = Instant::now();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    first.add(exchange(&mut stream, sent).await);
    connected.wait().await;
    // Not all at the same instant.
    tokio::time::sleep(pause / 97 * (number % 97) as u32).await;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        others.add(exchange(&mut stream, Instant::now()).await);
        tokio::time::sleep(pause).await;
    }
    (first, others)
}

/// How long it took until a request was admitted; none if it was shed.
async fn exchange(stream: &mut TcpStream, since: Instant) -> Option<u64> {
    let one = format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{USER}", USER.len());
    let mut space = [0; 4096];
    stream.write_all(one.as_bytes()).await.unwrap();
    let length = stream.read(&mut space).await.unwrap();
    match &space[9..12.min(length)] {
        b"200" => Some(u64::try_from(since.elapsed().as_micros()).unwrap()),
        b"503" => None,
        _ => panic!("{}", String::from_utf8_lossy(&space[..length])),
    }
}
