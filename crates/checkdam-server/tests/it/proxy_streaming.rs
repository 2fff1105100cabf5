//! Long bodies, connections that become something else, HTTP/2, and those who
//! keep others waiting.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Version};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use crate::http_client::Client as Http1;
use crate::proxy::proxy;
use crate::server_process::{PATIENCE, Server, rule_file};
use crate::test_upstream::{Upstream, WEBSOCKET_ACCEPT};

const RULES: &str = r#"rules: [{name: all, key: all, limits: ["5/h"]}]"#;
const GIGABYTE: usize = 1 << 30;
/// What buffers, pools and the allocator may take, in KiB. A gigabyte is 64 times as much.
const FLAT_KIB: u64 = 16 << 10;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(4 * PATIENCE)).unwrap();
    stream
}

/// Sends a gigabyte; the answer says how much arrived.
fn upload(server: &Server) {
    let mut stream = connect(server);
    write!(stream, "POST /sink HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {GIGABYTE}\r\n\r\n")
        .unwrap();
    let part = vec![0; 1 << 20];
    for _ in 0..GIGABYTE >> 20 {
        stream.write_all(&part).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&GIGABYTE.to_string()), "{answer}");
}

/// Receives a gigabyte.
fn download(server: &Server) {
    let mut stream = connect(server);
    write!(stream, "GET /zeros/{GIGABYTE} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let (mut part, mut length) = (vec![0; 1 << 20], 0);
    loop {
        match stream.read(&mut part).unwrap() {
            0 => break,
            read => length += part[..read].iter().filter(|byte| **byte == 0).count(),
        }
    }
    assert_eq!(length, GIGABYTE);
}

#[test]
fn a_gigabyte_streams_both_ways_with_flat_memory() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    assert_eq!(server.client().post("/sink", "warm").body, "4");
    let (before, most, is_over) = (server.resident_kib(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(server.resident_kib(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let both = [scope.spawn(|| upload(&server)), scope.spawn(|| download(&server))];
        let done = both.map(|one| one.join().is_ok());
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(done, [true, true]);
    });
    let grown = most.into_inner().saturating_sub(before);
    println!("a gigabyte each way: the memory grew by {grown} KiB from {before}");
    assert!(grown < FLAT_KIB, "the memory grew by {grown} KiB");
}

const HANDSHAKE: &str = "GET /websocket HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Reads the head of an answer, and nothing behind it.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Sends a text in a masked frame and expects it back in a bare one.
fn exchange(stream: &mut TcpStream, text: &str) {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![0x81, 0x80 | text.len() as u8];
    frame.extend(mask);
    frame.extend(text.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    stream.write_all(&frame).unwrap();
    let mut answer = vec![0; 2 + text.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [0x81, text.len() as u8]);
    assert_eq!(&answer[2..], text.as_bytes());
}

#[test]
fn websockets_pass_within_the_limits() {
    let upstream = Upstream::start();
    let mut server = proxy(RULES, &[&upstream.url()], &["--drain-timeout", "1s"]);
    let mut open: Vec<_> = (0..5)
        .map(|left| {
            let mut stream = connect(&server);
            stream.write_all(HANDSHAKE.as_bytes()).unwrap();
            let head = head(&mut stream);
            assert!(head.starts_with("http/1.1 101 "), "{head}");
            for line in ["upgrade: websocket", &format!("accept: {}", WEBSOCKET_ACCEPT.to_lowercase())] {
                assert!(head.contains(line), "{line:?} is missing: {head}");
            }
            assert!(head.contains(&format!("x-ratelimit-remaining: {}", 4 - left)), "{head}");
            stream
        })
        .collect();
    for round in 0..3 {
        for stream in &mut open {
            exchange(stream, &format!("hello {round}\nhost: x\n"));
        }
    }
    let mut denied = connect(&server);
    denied.write_all(HANDSHAKE.as_bytes()).unwrap();
    assert!(head(&mut denied).starts_with("http/1.1 429 "));
    assert_eq!(upstream.requests(), 5);
    server.signal("TERM");
    server.wait_for_log("shutdown: not ready");
    exchange(&mut open[0], "still there");
    assert_eq!(server.wait().code(), Some(0));
    assert!(server.log().contains("connections=5"), "tunnels are connections: {}", server.log());
}

#[test]
fn a_tunnel_in_which_nothing_is_said_is_cut() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &["--idle-timeout", "300ms"]);
    let mut stream = connect(&server);
    stream.write_all(HANDSHAKE.as_bytes()).unwrap();
    assert!(head(&mut stream).contains(" 101 "));
    exchange(&mut stream, "hello");
    assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
}

/// Asks over HTTP/2 without TLS.
async fn ask_http2(server: &Server, request: Request<Body>) -> (u16, axum::http::HeaderMap, String, Option<String>) {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2, "{}", server.log());
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let checksum =
        body.trailers().and_then(|all| all.get("x-checksum")).map(|value| value.to_str().unwrap().to_owned());
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_bytes().to_vec()).unwrap(), checksum)
}

#[test]
fn http2_comes_in_and_trailers_pass() {
    let upstream = Upstream::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for arguments in [&[][..], &["--upstream-http2"]] {
        let server = proxy(RULES, &[&upstream.url()], arguments);
        let url = |path: &str| format!("{}{path}", server.url());
        let request = Request::get(url("/trailers")).header("te", "trailers").body(Body::empty()).unwrap();
        let (status, headers, body, checksum) = runtime.block_on(ask_http2(&server, request));
        assert_eq!((status, body.as_str(), checksum.as_deref()), (200, "\0\0\0\0", Some("42")), "{arguments:?}");
        assert_eq!(headers["x-ratelimit-remaining"], "4");
        let request = Request::post(url("/echo")).body(Body::from("x".repeat(300_000))).unwrap();
        let (status, _, body, _) = runtime.block_on(ask_http2(&server, request));
        assert_eq!((status, body.len()), (200, 300_000));
        let request = Request::get(url("/hello")).body(Body::empty()).unwrap();
        let (_, _, body, _) = runtime.block_on(ask_http2(&server, request));
        let seen: serde_json::Value = serde_json::from_str(&body).unwrap();
        let (via, host) = (&seen["headers"]["via"], &seen["headers"]["host"]);
        assert_eq!(via, "2 checkdam");
        // One host: an authority in HTTP/2 is the upstream's own, and there is no Host beside it.
        let is_http2 = arguments.contains(&"--upstream-http2");
        assert_eq!(host.as_str(), (!is_http2).then_some(server.address()), "{seen}");
        assert_eq!(seen["headers"]["x-forwarded-host"], server.address());
    }
}

/// Clients of HTTP/2 may send each cookie in a field of its own.
#[test]
fn cookies_of_http2_arrive_as_one_header() {
    let (upstream, rules) = (Upstream::start(), r#"rules: [{name: per-user, key: "user:{cookies}", limits: ["5/h"]}]"#);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mapped = ["--header-attributes", "Cookie=cookies"];
    for arguments in [&mapped[..], &[mapped[0], mapped[1], "--upstream-http2"]] {
        let server = proxy(rules, &[&upstream.url()], arguments);
        let ask = |cookies: &[&str]| {
            let request = Request::get(format!("{}/hello", server.url()));
            let request = cookies.iter().fold(request, |request, cookie| request.header("cookie", *cookie));
            let (status, headers, body, _) = runtime.block_on(ask_http2(&server, request.body(Body::empty()).unwrap()));
            assert_eq!(status, 200, "{body}");
            let seen: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(seen["headers"]["cookie"], "a=1; b=2; c=3", "{arguments:?}");
            headers["x-ratelimit-remaining"].to_str().unwrap().to_owned()
        };
        assert_eq!([ask(&["a=1", "b=2", "c=3"]), ask(&["a=1; b=2", "c=3"])], ["4", "3"], "{arguments:?}");
    }
    let file = rule_file(rules);
    let server = Server::with(&["--rules", file.to_str().unwrap(), mapped[0], mapped[1]]);
    let request = Request::get(format!("{}/v1/auth", server.url())).header("cookie", "a=1").header("cookie", "b=2");
    let (status, ..) = runtime.block_on(ask_http2(&server, request.body(Body::empty()).unwrap()));
    assert_eq!(status, 200);
    let peeked = server.client().ok("/v1/peek", r#"{"attributes": {"cookies": "a=1; b=2"}}"#);
    assert_eq!(peeked["remaining"], 4);
}

#[test]
fn a_client_that_stops_in_its_body_is_cut() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &["--body-timeout", "300ms"]);
    let mut client = server.client();
    client.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nsome").unwrap();
    let reply = client.read().unwrap();
    assert_eq!((reply.status, &reply.json()["type"]), (408, &"urn:checkdam:problem:timeout".into()));
    assert!(client.is_closed());
}

/// It is never silent for as long as it may be, and would take an hour.
#[test]
fn a_client_that_sends_its_body_too_slowly_is_cut() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &["--body-timeout", "2s"]);
    let mut client = server.client();
    client.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n").unwrap();
    for _ in 0..110 {
        std::thread::sleep(Duration::from_millis(20));
        // Once it is cut, nothing more is read.
        let _ = client.write("x");
    }
    let reply = client.read().unwrap();
    assert_eq!((reply.status, reply.header("connection")), (408, Some("close")), "{reply:?}");
    assert!(reply.json()["detail"].as_str().unwrap().contains("too slowly"), "{reply:?}");
    // By the same clock, without a minimum.
    let server = proxy(RULES, &[&upstream.url()], &["--body-timeout", "2s", "--body-rate-min", "0"]);
    let mut client = server.client();
    client.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 110\r\n\r\n").unwrap();
    for _ in 0..110 {
        std::thread::sleep(Duration::from_millis(20));
        client.write("x").unwrap();
    }
    assert_eq!(client.read().unwrap().status, 200);
}

#[test]
fn slow_uploads_of_one_client_hold_few_connections_to_the_upstream() {
    const UPLOADS: usize = 80;
    const MAX: usize = 64;
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--trusted-proxies", "127.0.0.1"]);
    let begin = |client: &mut Http1| {
        let head = "POST /sink HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.1\r\ncontent-length: 5\r\n\r\nx";
        client.write(head).unwrap();
    };
    let mut clients: Vec<_> = (0..UPLOADS).map(|_| server.client()).collect();
    let (held, refused) = clients.split_at_mut(MAX);
    held.iter_mut().for_each(begin);
    let start = Instant::now();
    while upstream.requests() < MAX as u64 {
        assert!(start.elapsed() < PATIENCE, "{} arrived", upstream.requests());
        std::thread::sleep(Duration::from_millis(5));
    }
    for client in refused {
        begin(client);
        let reply = client.read().unwrap();
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{reply:?}");
        assert_eq!(reply.json()["type"], "urn:checkdam:problem:too_many_uploads");
    }
    assert_eq!(upstream.requests(), MAX as u64, "nobody else has a connection");
    // Another client may, and requests without a body.
    let upload = |from| server.client().send_with("POST", "/sink", &[("x-forwarded-for", from)], "hello").unwrap();
    assert_eq!(upload("192.0.2.2").status, 200);
    let get = server.client().send_with("GET", "/echo", &[("x-forwarded-for", "192.0.2.1")], "").unwrap();
    assert_eq!(get.status, 200);
    for client in held {
        client.write("rest").unwrap();
        assert_eq!(client.read().unwrap().status, 200);
    }
    assert_eq!(upload("192.0.2.1").status, 200, "what has ended makes room");
    let remaining = server.client().get("/echo").header("x-ratelimit-remaining").map(str::to_owned);
    let charged = 1_000 - remaining.unwrap().parse::<usize>().unwrap();
    assert_eq!(charged, MAX + 4, "what is refused is not charged");
}

/// Behind a proxy on the same machine are many clients.
#[test]
fn uploads_from_loopback_are_not_those_of_one_client() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--uploads-per-client", "1"]);
    let mut held = server.client();
    held.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nx").unwrap();
    let start = Instant::now();
    while upstream.requests() < 1 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(server.client().post("/sink", "hello").status, 200);
    held.write("rest").unwrap();
    assert_eq!(held.read().unwrap().status, 200);
}

#[test]
fn an_upstream_has_no_more_connections_than_it_may() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--upstream-connections", "2"]);
    let mut held = [server.client(), server.client()];
    for (number, client) in held.iter_mut().enumerate() {
        client.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nx").unwrap();
        let start = Instant::now();
        while upstream.requests() <= number as u64 {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut client = server.client();
    let reply = client.get("/echo");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert_eq!(reply.json()["type"], "urn:checkdam:problem:upstream_full");
    for client in &mut held {
        client.write("rest").unwrap();
        assert_eq!(client.read().unwrap().status, 200);
    }
    assert_eq!(client.get("/echo").status, 200);
}

#[test]
fn an_upstream_that_stops_in_its_answer_is_cut() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &["--idle-timeout", "300ms"]);
    let mut stream = connect(&server);
    stream.write_all(b"GET /stall HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(head(&mut stream).starts_with("http/1.1 200 "));
    let mut rest = Vec::new();
    // It may be reset, or closed without the last chunk.
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "half an answer is not passed on as a whole one");
}

#[test]
fn a_denied_upload_is_answered_and_not_forwarded() {
    let upstream = Upstream::start();
    let server = proxy(r#"rules: [{name: all, key: all, limits: ["1/h"]}]"#, &[&upstream.url()], &[]);
    assert_eq!(server.client().get("/x").status, 200);
    let mut client = server.client();
    client
        .write("POST /sink HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000000\r\n\r\n")
        .unwrap();
    assert_eq!(client.read().unwrap().status, 429, "nobody is asked to go on");
    let mut client = server.client();
    client.write("POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 600000\r\n\r\n").unwrap();
    client.write("x".repeat(600_000)).unwrap();
    assert_eq!(client.read().unwrap().status, 429);
    assert_eq!(client.get("/x").status, 429, "and its connection stays");
    assert_eq!(upstream.requests(), 1);
}
