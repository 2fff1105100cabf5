//! The fault proxy: every mode, as a client and a server see it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use testkit::{Connection, FaultProxy, Mode, Redis, Reply, wait_until};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(5);

fn setup() -> (Redis, FaultProxy) {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    (server, proxy)
}

/// A connection whose first command has gone through, so that nothing of the setting up is in flight.
fn client(proxy: &FaultProxy, timeout: Duration) -> Connection {
    let mut client = Connection::tcp_with_timeout(proxy.addr(), timeout).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    client
}

fn value(server: &Redis) -> Reply {
    server.command(&["GET", "key"])
}

#[test]
fn delay_holds_each_direction() {
    let (_server, proxy) = setup();
    let mut client = client(&proxy, LONG);
    for set in [FaultProxy::set_requests, FaultProxy::set_replies] {
        set(&proxy, Mode::Delay(SHORT));
        let begin = Instant::now();
        client.command(&["PING"]).unwrap();
        assert!((SHORT..4 * SHORT).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        set(&proxy, Mode::Pass);
    }
}

#[test]
fn a_new_mode_ends_a_delay_in_progress() {
    let (_server, proxy) = setup();
    let mut client = client(&proxy, LONG);
    proxy.set_requests(Mode::Delay(Duration::from_secs(60)));
    client.send(&["PING"]).unwrap();
    proxy.set_requests(Mode::Pass);
    assert_eq!(client.receive().unwrap().text(), "PONG");
}

#[test]
fn dropped_requests_are_never_executed_and_the_connection_stays() {
    let (server, proxy) = setup();
    let mut client = client(&proxy, SHORT);
    proxy.set_requests(Mode::Drop);
    let error = client.command(&["SET", "key", "1"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "the read times out, it does not end");
    assert_eq!(proxy.open(), 1);
    proxy.set(Mode::Pass);
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    assert_eq!(value(&server), Reply::Nil);
}

#[test]
fn a_half_open_connection_hides_the_death_of_the_server() {
    let (server, proxy) = setup();
    let mut client = client(&proxy, SHORT);
    proxy.set(Mode::Drop);
    server.kill();
    assert_eq!(client.receive().unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.set(Mode::Pass);
    assert_eq!(client.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn held_requests_are_executed_late() {
    let (server, proxy) = setup();
    let mut client = client(&proxy, SHORT);
    proxy.set_requests(Mode::Hold);
    client.command(&["SET", "key", "1"]).unwrap_err();
    assert_eq!(value(&server), Reply::Nil);
    proxy.set_requests(Mode::Pass);
    wait_until("the held request to be executed", LONG, || value(&server) != Reply::Nil);
}

#[test]
fn a_cut_reply_means_executed_and_unknown() {
    let (server, proxy) = setup();
    let mut client = client(&proxy, LONG);
    proxy.set_replies(Mode::CutAfter(0));
    let error = client.command(&["SET", "key", "1"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(value(&server).text(), "1");
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(proxy.open(), 0);
}

#[test]
fn a_reply_can_be_cut_in_the_middle() {
    let (_server, proxy) = setup();
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    proxy.set_replies(Mode::CutAfter(3));
    stream.write_all(b"PING\r\n").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"+PO");
}

#[test]
fn one_reply_can_be_cut_out_of_many() {
    let (_server, proxy) = setup();
    let mut clients: Vec<Connection> = (0..10).map(|_| client(&proxy, LONG)).collect();
    proxy.set_replies(Mode::CutOnce(0));
    for client in &mut clients {
        client.send(&["PING"]).unwrap();
    }
    let lost = clients.iter_mut().map(Connection::receive).filter(Result::is_err).count();
    assert_eq!((lost, proxy.cuts()), (1, 1));
}

#[test]
fn refusing_leaves_open_connections_alone() {
    let (_server, proxy) = setup();
    let mut client = client(&proxy, LONG);
    for _ in 0..3 {
        proxy.refuse(true);
        let error = Connection::tcp(proxy.addr()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
        proxy.refuse(false);
        assert_eq!(Connection::tcp(proxy.addr()).unwrap().command(&["PING"]).unwrap().text(), "PONG");
    }
}

#[test]
fn connections_are_closed_or_reset() {
    let (_server, proxy) = setup();
    let (mut closed, mut reset) = (client(&proxy, LONG), client(&proxy, LONG));
    let reset_error = {
        let mut other = client(&proxy, LONG);
        proxy.reset_all();
        other.receive().unwrap_err().kind()
    };
    assert_eq!(reset_error, ErrorKind::ConnectionReset);
    assert_eq!(reset.receive().unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(closed.receive().unwrap_err().kind(), ErrorKind::ConnectionReset);

    closed = client(&proxy, LONG);
    proxy.close_all();
    assert_eq!(closed.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn throttled_bytes_trickle() {
    let (server, proxy) = setup();
    server.command(&["SET", "key", &"x".repeat(10_000)]).expect_ok();
    let mut client = client(&proxy, LONG);
    proxy.set_replies(Mode::Throttle(20_000));
    let begin = Instant::now();
    assert_eq!(client.command(&["GET", "key"]).unwrap().text().len(), 10_000);
    let taken = begin.elapsed();
    assert!((Duration::from_millis(450)..Duration::from_millis(1500)).contains(&taken), "{taken:?}");
}

#[test]
fn a_server_that_is_down_closes_the_client_and_a_new_upstream_serves_the_next() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = FaultProxy::start(closed);
    let mut client = Connection::tcp(proxy.addr()).unwrap();
    assert!(client.command(&["PING"]).is_err());
    let server = Redis::start();
    proxy.set_upstream(server.addr());
    assert_eq!(Connection::tcp(proxy.addr()).unwrap().command(&["PING"]).unwrap().text(), "PONG");
}
