//! The fault proxy's counters, capacity and shutdown.

use std::net::TcpListener;
use std::time::Duration;

use testkit::{Connection, FaultProxy, Mode, Redis, wait_until};

const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn connections_and_bytes_are_counted() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let mut client = Connection::tcp(proxy.addr()).unwrap();
    client.command(&["PING"]).unwrap();
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    assert_eq!((proxy.request_bytes(), proxy.reply_bytes()), (14, 7));
    drop(client);
    wait_until("the connection to end", LIMIT, || proxy.open() == 0);
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn a_client_that_leaves_a_half_open_connection_is_counted_out() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let mut client = Connection::tcp(proxy.addr()).unwrap();
    client.command(&["PING"]).unwrap();
    proxy.set(Mode::Drop);
    drop(client);
    wait_until("the client to be counted out", LIMIT, || proxy.open() == 0);
    assert_eq!(server.info_field("clients", "connected_clients"), "2", "the server still believes in the client");
}

#[test]
fn hundreds_of_connections_share_a_proxy() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let mut clients: Vec<Connection> = (0..400).map(|_| Connection::tcp(proxy.addr()).unwrap()).collect();
    for round in 1..=3 {
        for client in &mut clients {
            client.send(&["INCR", "key"]).unwrap();
        }
        for client in &mut clients {
            client.receive().unwrap();
        }
        assert_eq!(server.command(&["GET", "key"]).int(), round * 400);
    }
    assert_eq!(proxy.open(), 400);
    proxy.set(Mode::Drop);
    proxy.reset_all();
    assert!(clients.iter_mut().all(|client| client.receive().is_err()));
    wait_until("the server to lose its clients", LIMIT, || server.info_field("clients", "connected_clients") == "1");
}

#[test]
fn a_dropped_proxy_frees_its_port_and_closes_its_connections() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let addr = proxy.addr();
    let mut clients: Vec<Connection> = (0..20).map(|_| Connection::tcp(addr).unwrap()).collect();
    for client in &mut clients {
        client.command(&["PING"]).unwrap();
    }
    proxy.set(Mode::Hold);
    for client in &mut clients {
        client.send(&["PING"]).unwrap();
    }
    drop(proxy);
    assert!(clients.iter_mut().all(|client| client.receive().is_err()));
    assert!(TcpListener::bind(addr).is_ok());
}
