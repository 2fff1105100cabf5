//! Slow and idle clients: none can hold a connection for ever, and none that pools
//! connections loses them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use testkit::Upstream;
use tokio::time::Instant;

use crate::envoy_client::{RateLimitClient, of};
use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, checkdam};

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let server = Server::start();
    let start = Instant::now();
    let mut silent = server.client();
    let mut slow = server.client();
    slow.write("POST /v1/check HTTP/1.1\r\nhost:").unwrap();
    assert!(silent.is_closed() && slow.is_closed());
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(8)).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn a_body_that_does_not_come_is_a_408() {
    let server = Server::start();
    let mut client = server.client();
    client.write("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"attributes\":").unwrap();
    let reply = client.read().unwrap();
    assert_eq!(reply.status, 408);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["field"], "body");
}

#[test]
fn an_idle_connection_stays_usable_for_longer_than_a_head_may_take() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.get("/livez").status, 200);
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(client.get("/livez").status, 200);
    client.write("GET /livez HTTP/1.1\r\n").unwrap();
    let start = Instant::now();
    assert!(client.is_closed(), "a later head is not waited for either");
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[test]
fn requests_may_be_sent_ahead() {
    let server = Server::start();
    let mut client = server.client();
    client.write("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50)).unwrap();
    for _ in 0..50 {
        assert_eq!(client.read().unwrap().status, 200);
    }
}

/// So many connections are open at a time in the tests of a full listener.
const FULL: usize = 40;

/// Fills a listener with connections that have asked once and now ask nothing.
fn fill(address: &str, path: &str) -> Vec<Client> {
    let idle = |_| {
        let mut client = Client::connect(address);
        assert_eq!(client.get(path).status, 200);
        client
    };
    (0..FULL).map(idle).collect()
}

/// Whether the server has neither said anything on a connection nor closed it.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn idle_connections_close_no_listener_for_others() {
    let server = Server::with(&["--connections-max", &FULL.to_string()]);
    // What is under way is not idle, however long it has been.
    let mut busy = server.client();
    busy.write("POST /v1/peek HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n{").unwrap();
    let mut idle = fill(server.address(), "/openapi.json");
    busy.write(r#""attributes": {}}  "#).unwrap();
    assert_eq!(busy.read().unwrap().status, 200);
    let silent: Vec<_> = (0..FULL).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert_eq!(server.client().get("/livez").status, 200);
    assert_eq!(server.client().post("/v1/peek", r#"{"attributes": {}}"#).status, 200);
    assert!(is_open(&silent[FULL / 2]), "they were answered before the silent ones are overdue");
    assert!(idle[0].is_closed(), "the longest idle makes room");
    drop(silent);
    // The other listeners likewise.
    let _idle = fill(server.admin_address(), "/livez");
    assert_eq!(server.admin().get("/admin/v1/status").status, 200);
    let _silent: Vec<_> = (0..FULL).map(|_| TcpStream::connect(server.grpc_address()).unwrap()).collect();
    RateLimitClient::of(&server).ask(&[of(&[("key", "value")])]);
    let upstream = Upstream::start();
    let to = format!("http://{}", upstream.addr());
    let proxy = Server::proxy(&["--upstream", &to, "--connections-max", &FULL.to_string()]);
    let _idle = fill(proxy.address(), "/");
    assert_eq!(proxy.client().get("/").status, 200);
}

/// A client that pools connections may use one at any time: the request that comes
/// while the connection is being closed is answered.
#[test]
fn a_connection_that_makes_room_answers_a_last_request() {
    let server = Server::with(&["--connections-max", "2"]);
    let mut pooled = server.client();
    assert_eq!(pooled.get("/livez").status, 200);
    let mut next = server.client();
    let start = Instant::now();
    // Whichever comes first, a request or the end: nothing is cut off half way.
    while let Ok(reply) = pooled.send("GET", "/livez", "") {
        assert_eq!(reply.status, 200);
        if reply.header("connection") == Some("close") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it makes no room");
    }
    // The next one makes room too if it waits for too long before it asks.
    while next.send("GET", "/livez", "").is_err() {
        assert!(start.elapsed() < PATIENCE);
        next = server.client();
    }
}

/// HTTP/2 ends a connection only after its client has acknowledged a PING.
#[test]
fn http2_connections_that_acknowledge_nothing_make_room() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const REQUEST: &[u8] = b"\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    const HEADERS: u8 = 1;
    let server = Server::with(&["--connections-max", &FULL.to_string()]);
    let asked_once = |_| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[PREFACE, REQUEST].concat()).unwrap();
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            stream.read_exact(&mut vec![0; length as usize]).unwrap();
            if head[3] == HEADERS {
                break stream;
            }
        }
    };
    let _idle: Vec<_> = (0..FULL).map(asked_once).collect();
    let mut clients: Vec<_> = (0..5).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/openapi.json").status, 200);
    }
}

/// A client that reads nothing of a response, or sends a body byte by byte, makes room for
/// others. A request that waits for its upstream does not.
#[test]
fn requests_that_their_client_stalls_make_room_on_the_proxy() {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0; :method GET, :scheme http, :path /.
    const READS_NOTHING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\
                                   \0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    const SENDS_LITTLE: &[u8] = b"POST /sink HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
    let upstream = crate::test_upstream::Upstream::start();
    let rules = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;
    let server = crate::proxy::proxy(rules, &[&upstream.url()], &["--connections-max", &FULL.to_string()]);
    let address = server.address().parse().unwrap();
    for first in [READS_NOTHING, SENDS_LITTLE] {
        let mut polling = Client::connect_from("127.0.0.3", address);
        polling.write("GET /slow/9000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let stalling = |_| {
            let mut stream = testkit::connect_from([127, 0, 0, 3].into(), address).unwrap();
            stream.write_all(first).unwrap();
            stream
        };
        let mut stalled: Vec<_> = (0..FULL).map(stalling).collect();
        let start = Instant::now();
        let honest = std::thread::scope(|scope| {
            let honest = scope.spawn(|| server.client().get("/hello").status);
            while !honest.is_finished() && first == SENDS_LITTLE {
                // Some are closed by now.
                stalled.iter_mut().for_each(|stream| drop(stream.write_all(b"x")));
                std::thread::sleep(Duration::from_millis(200));
            }
            honest.join().unwrap()
        });
        assert_eq!(honest, 200);
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        assert_eq!(polling.read().unwrap().body, "slow");
    }
}

#[test]
fn a_request_that_is_not_understood_ends_its_connection() {
    let server = Server::start();
    for (address, path) in
        [(server.address(), "/v1/check"), (server.address(), "/json"), (server.admin_address(), "/admin/v1/inspect")]
    {
        let mut client = Client::connect(address);
        let reply = client.post(path, "not JSON");
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{path}: {reply:?}");
        assert!(client.is_closed(), "{path}");
    }
    let mut client = server.client();
    assert_eq!(client.post("/v1/check", r#"{"attributes": {}, "cost": 0}"#).status, 422);
    assert_eq!(client.get("/livez").status, 200, "what is understood and refused may go on");
}

#[test]
fn without_descriptors_idle_connections_make_room_and_the_log_stays_short() {
    const DESCRIPTORS: usize = 64;
    let program = checkdam();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")]).arg(program.get_program());
    command.args(["serve", "--http-listen", "127.0.0.1:0"]);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut server = Server::of(command);
    let start = Instant::now();
    let idle: Vec<_> = (0..DESCRIPTORS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    server.wait_for_log("cannot accept a connection");
    assert_eq!(server.client().get("/livez").status, 200);
    let lines = server.log().matches("cannot accept a connection").count();
    assert!(lines as u64 <= 1 + start.elapsed().as_secs(), "{lines} lines: {}", server.log());
    for mut connection in idle {
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        // Each is closed: at once, or because it asks nothing.
        assert!(!matches!(connection.read(&mut [0]), Ok(1)));
    }
}
