//! Upstreams that are down, slow, unhealthy or have the wrong certificate: what
//! clients get, and that each request is charged once.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::proxy::{proxy, remaining};
use crate::test_upstream::Upstream;

const RULES: &str = r#"rules: [{name: all, key: all, limits: ["100/h"]}]"#;

/// Where nobody listens.
fn nowhere() -> String {
    format!("http://127.0.0.1:{}", testkit::free_port())
}

#[test]
fn an_upstream_that_is_down_is_a_502_that_is_charged_once() {
    let mut server = proxy(RULES, &[&nowhere(), &nowhere()], &[]);
    for left in [99, 98] {
        let reply = server.client().post("/x", "body");
        assert_eq!((reply.status, reply.header("content-type")), (502, Some("application/problem+json")), "{reply:?}");
        assert_eq!(reply.json()["type"], "urn:checkdam:problem:upstream_unreachable");
        assert_eq!(reply.json()["detail"], "no upstream can be reached: try again later");
        assert_eq!(remaining(&reply), left, "both were tried, and one was charged");
    }
    server.wait_for_log("Connection refused");
}

#[test]
fn another_upstream_is_tried_and_nothing_charged_for_it() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&nowhere(), &upstream.url(), &nowhere()], &["--upstream-pause", "1ms"]);
    let mut client = server.client();
    for asked in 1..=10 {
        let reply = client.post("/sink", &"x".repeat(50_000));
        assert_eq!((reply.status, reply.body.as_str()), (200, "50000"), "the whole body arrives: {reply:?}");
        assert_eq!((remaining(&reply), upstream.requests()), (100 - asked, asked));
    }
}

#[test]
fn upstreams_take_turns() {
    let both = [Upstream::start(), Upstream::start()];
    let server = proxy(RULES, &[&both[0].url(), &both[1].url()], &[]);
    let mut client = server.client();
    for _ in 0..6 {
        assert_eq!(client.get("/x").status, 200);
    }
    assert_eq!((both[0].requests(), both[1].requests()), (3, 3));
}

#[test]
fn an_upstream_that_does_not_answer_is_a_504() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &["--response-timeout", "300ms"]);
    let mut client = server.client();
    let reply = client.post("/slow/5000", "body");
    assert_eq!((reply.status, &reply.json()["type"]), (504, &"urn:checkdam:problem:upstream_timeout".into()));
    assert_eq!((remaining(&reply), upstream.requests()), (99, 1));
    assert_eq!(client.get("/x").status, 200);
}

/// Answers once on each connection, and closes it when it is asked again. How
/// often it was asked.
fn fickle() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, asked) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let asked = Arc::clone(&counted);
            std::thread::spawn(move || once(stream, &asked));
        }
    });
    (url, asked)
}

fn once(mut stream: TcpStream, asked: &AtomicU64) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut head = || lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
    if head() == 0 {
        return;
    }
    asked.fetch_add(1, Ordering::Relaxed);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    if head() > 0 {
        asked.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_was_sent_is_repeated_only_if_it_may_be() {
    let (url, asked) = fickle();
    let server = proxy(RULES, &[&url], &[]);
    let mut client = server.client();
    let mut ask = |method: &str| {
        let reply = client.send(method, "/x", "").unwrap();
        (reply.status, remaining(&reply), asked.load(Ordering::Relaxed))
    };
    assert_eq!(ask("GET"), (200, 99, 1));
    assert_eq!(ask("GET"), (200, 98, 3), "repeated on a new connection");
    assert_eq!(ask("POST"), (502, 97, 4), "a second POST may have a second effect");
    assert_eq!(ask("POST"), (200, 96, 5));
}

#[test]
fn an_answer_that_is_none_is_a_502() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = proxy(RULES, &[&format!("http://{}", listener.local_addr().unwrap())], &[]);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            stream.write_all(b"nonsense\r\n\r\n").unwrap();
        }
    });
    let reply = server.client().get("/x");
    assert_eq!((reply.status, &reply.json()["type"]), (502, &"urn:checkdam:problem:upstream_failed".into()));
}

#[test]
fn an_upstream_that_is_ill_is_passed_over_until_it_is_well() {
    let (ill, well) = (Upstream::start(), Upstream::start());
    ill.set_ill(true);
    let asking = ["--health-path", "/health", "--health-interval", "50ms"];
    let mut server = proxy(RULES, &[&ill.url(), &well.url()], &asking);
    server.wait_for_log("is unhealthy");
    let mut client = server.client();
    for _ in 0..4 {
        assert_eq!(client.get("/x").status, 200);
    }
    assert_eq!((ill.requests(), well.requests()), (0, 4));
    ill.set_ill(false);
    server.wait_for_log("is healthy again");
    assert_eq!((client.get("/x").status, client.get("/x").status), (200, 200));
    assert_eq!((ill.requests(), well.requests()), (1, 5));
}

#[test]
fn upstreams_with_tls_are_verified() {
    let folder = crate::server_process::folder();
    let tls = testkit::Tls::generate(&folder);
    let (right, wrong) =
        (Upstream::start_with(Some(tls.server_paths())), Upstream::start_with(Some(tls.wrong_host_paths())));
    let status = |upstream: &Upstream, authority: std::path::PathBuf| {
        let server = proxy(RULES, &[&upstream.url()], &["--upstream-ca", authority.to_str().unwrap()]);
        server.client().get("/x").status
    };
    assert_eq!(status(&right, tls.ca_path()), 200);
    assert_eq!(status(&right, tls.unrelated_ca_path()), 502, "signed by somebody else");
    assert_eq!(status(&wrong, tls.ca_path()), 502, "signed for another host");
}
