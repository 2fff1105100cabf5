//! Concurrent clients never get more than the limit, and a client that obeys
//! `Retry-After` always passes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::server_process::Server;

const CLIENTS: usize = 200;

#[test]
fn two_hundred_clients_never_pass_more_than_burst_and_rate_allow() {
    let server = Server::with_rules("rules: [{name: per-user, key: \"user:{user}\", limits: [\"10/s burst 50\"]}]");
    let (passed, denied, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (ready, mut start) = (Barrier::new(CLIENTS + 1), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.client();
                ready.wait();
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.post("/v1/check", r#"{"attributes": {"user": "42"}}"#);
                    let counter = match reply.status {
                        200 => &passed,
                        429 => &denied,
                        status => panic!("{status}: {reply:?}"),
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        start = Instant::now();
        ready.wait();
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
    });
    let elapsed = start.elapsed().as_secs_f64();
    let (passed, denied) = (passed.into_inner(), denied.into_inner());
    let most = (50.0 + 10.0 * elapsed).floor() as u64;
    assert!(passed <= most, "{passed} passed in {elapsed} s: at most {most} may");
    // All that was there at the start and nearly all that came since.
    assert!(passed >= 50 + 25, "only {passed} passed in {elapsed} s");
    assert!(denied > passed, "{denied} denied: the limit was not reached");
}

#[test]
fn a_client_that_obeys_retry_after_always_passes() {
    let server = Server::with_rules("rules: [{name: per-user, key: \"user:{user}\", limits: [\"2/s burst 1\"]}]");
    let mut client = server.client();
    let body = r#"{"attributes": {"user": "42"}}"#;
    assert_eq!(client.post("/v1/check", body).status, 200);
    for round in 0..3 {
        let denied = client.post("/v1/check", body);
        assert_eq!(denied.status, 429, "round {round}");
        let seconds = denied.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, 1, "half a second, rounded up");
        std::thread::sleep(Duration::from_secs(seconds));
        assert_eq!(client.post("/v1/check", body).status, 200, "round {round}");
    }
}

#[test]
fn a_client_that_waits_retry_after_ms_passes_and_not_much_earlier() {
    let server = Server::with_rules("rules: [{name: per-user, key: \"user:{user}\", limits: [\"5/s burst 1\"]}]");
    let mut client = server.client();
    let body = r#"{"attributes": {"user": "42"}}"#;
    assert_eq!(client.post("/v1/check", body).status, 200);
    for round in 0..5 {
        let denied = client.post("/v1/check", body).json();
        let wait_ms = denied["retry_after_ms"].as_u64().unwrap();
        assert!((1..=200).contains(&wait_ms), "{denied}");
        std::thread::sleep(Duration::from_millis(wait_ms));
        assert_eq!(client.post("/v1/check", body).status, 200, "round {round} after {wait_ms} ms");
    }
}
