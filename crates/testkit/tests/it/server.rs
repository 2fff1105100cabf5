//! One server: start, kill, pause, restart, users.

use std::time::{Duration, Instant};

use testkit::{Connection, Engine, Redis, Reply, free_port, wait_until};

#[test]
fn each_engine_starts_and_says_what_it_is() {
    for (engine, version_field) in [(Engine::Redis, "redis_version"), (Engine::Valkey, "valkey_version")] {
        let server = Redis::builder().engine(engine).start();
        assert_eq!(server.command(&["PING"]), Reply::Status("PONG".to_owned()));
        let version = server.info_field("server", version_field);
        assert!(engine.version().contains(&version), "{} is not {version}", engine.version());
        assert_eq!(server.info_field("server", "process_id"), server.pid().to_string());
        assert!(server.cpu_seconds() >= 0.0);
    }
}

#[test]
fn a_server_listens_on_tcp_and_on_its_unix_socket() {
    let server = Redis::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.addr().port()));
    let mut tcp = Connection::tcp(server.addr()).unwrap();
    tcp.command(&["SET", "key", "value"]).unwrap().expect_ok();
    let mut unix = Connection::unix(&server.unix_path()).unwrap();
    assert_eq!(unix.command(&["GET", "key"]).unwrap().text(), "value");
    assert!(server.unix_url().starts_with("redis+unix:///"));
}

#[test]
fn arguments_reach_the_server() {
    let server = Redis::builder().args(["--maxmemory", "123mb"]).start();
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory"]).array()[1].int(), 123 << 20);
}

#[test]
fn a_paused_server_answers_after_it_is_resumed() {
    let server = Redis::start();
    let mut client = Connection::tcp_with_timeout(server.addr(), Duration::from_millis(200)).unwrap();
    server.pause();
    client.send(&["INCR", "key"]).unwrap();
    assert!(client.receive().is_err(), "a stopped process answered");
    server.resume();
    assert_eq!(client.receive().unwrap(), Reply::Int(1));
}

#[test]
fn a_killed_server_refuses_and_a_restarted_one_is_empty_on_the_same_port() {
    let server = Redis::start();
    let (addr, pid) = (server.addr(), server.pid());
    let mut held = Connection::tcp(addr).unwrap();
    held.command(&["SET", "key", "value"]).unwrap().expect_ok();
    server.kill();
    assert!(!server.is_running());
    assert!(held.command(&["PING"]).is_err());
    assert!(Connection::tcp(addr).is_err());

    server.restart();
    assert_eq!(server.addr(), addr);
    assert_ne!(server.pid(), pid);
    assert_eq!(Connection::tcp(addr).unwrap().command(&["GET", "key"]).unwrap(), Reply::Nil);
}

#[test]
fn a_server_restarts_while_clients_hold_and_dial_connections() {
    let server = Redis::start();
    let held: Vec<Connection> = (0..50).map(|_| Connection::tcp(server.addr()).unwrap()).collect();
    std::thread::scope(|scope| {
        let dialling = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(1);
            while Instant::now() < deadline {
                drop(Connection::tcp(server.addr()));
            }
        });
        for _ in 0..3 {
            server.restart();
        }
        dialling.join().unwrap();
    });
    drop(held);
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_server_that_ends_by_itself_is_noticed() {
    let server = Redis::start();
    assert!(server.try_command(&["SHUTDOWN", "NOSAVE"]).is_err());
    wait_until("the server to end", Duration::from_secs(5), || !server.is_running());
    assert!(server.log().contains("Redis is now ready to exit"), "{}", server.log());
    server.restart();
    assert!(server.is_running());
}

#[test]
fn acl_users_may_do_what_their_lines_say() {
    let server = Redis::builder().acl(["user default off", "user app on >secret ~cd:* +get +set"]).start();
    assert_eq!(server.url_for("app", "secret"), format!("redis://app:secret@{}", server.addr()));
    let mut client = Connection::tcp(server.addr()).unwrap();
    assert!(client.command(&["GET", "cd:1"]).unwrap().error().unwrap().starts_with("NOAUTH"));
    client.command(&["AUTH", "app", "secret"]).unwrap().expect_ok();
    client.command(&["SET", "cd:1", "x"]).unwrap().expect_ok();
    for forbidden in [["GET", "other"], ["DEL", "cd:1"]] {
        assert!(client.command(&forbidden).unwrap().error().unwrap().starts_with("NOPERM"), "{forbidden:?}");
    }
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(1), "the kit's own connection has all rights");
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn a_server_that_cannot_start_fails_with_its_log() {
    drop(Redis::builder().args(["--no-such-option", "1"]).start());
}

#[test]
fn ports_differ_and_stay_below_the_ephemeral_range() {
    let ports: std::collections::HashSet<u16> = (0..100).map(|_| free_port()).collect();
    assert_eq!(ports.len(), 100);
    assert!(ports.iter().all(|port| (10_000..32_000).contains(port)));
}
