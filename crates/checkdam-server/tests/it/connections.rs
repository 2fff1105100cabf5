//! Slow and idle clients: nobody holds a connection for nothing, and nobody
//! who pools connections loses them.

use std::time::Duration;

use tokio::time::Instant;

use crate::process::Server;

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
