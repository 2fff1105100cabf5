//! When a node is ready: not before it has rules, and without its store only if it
//! can still decide.

use std::time::Duration;

use testkit::{Redis, free_port};
use tokio::time::Instant;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::envoy_client::connect;
use crate::http_client::{Client, Reply};
use crate::server_process::{PATIENCE, Server, checkdam, rule_file};

fn rules(policies: [&str; 2]) -> String {
    let rule = |(name, policy): (&str, &str)| {
        format!("  - {{ name: {name}, key: \"user:{{user}}\", limits: [\"{name}/h\"], on_store_failure: {policy} }}\n")
    };
    format!("rules:\n{}{}", rule(("10", policies[0])), rule(("20", policies[1])))
}

fn node(redis: &Redis, policies: [&str; 2]) -> Server {
    let file = rule_file(&rules(policies));
    Server::with(&["--rules", file.to_str().unwrap(), "--store", &redis.url(), "--store-deadline", "1s"])
}

/// Asks until the answer has this status, on a connection of its own: idle ones are closed.
fn readyz(address: &str, status: u16) -> Reply {
    let start = Instant::now();
    loop {
        let reply = Client::connect(address).get("/readyz");
        if reply.status == status {
            return reply;
        }
        assert!(start.elapsed() < PATIENCE, "still {reply:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn grpc_health(server: &Server) -> ServingStatus {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = HealthClient::new(connect(server).await);
        client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status()
    })
}

#[test]
fn a_node_that_can_only_refuse_is_not_ready_and_is_again_by_itself() {
    let redis = Redis::start();
    let (closed, mixed) = (node(&redis, ["closed", "closed"]), node(&redis, ["closed", "local"]));
    assert_eq!(readyz(closed.address(), 200).body, r#"{"status":"ready"}"#);
    redis.kill();
    // Nobody asks for a decision: it is found out all the same.
    let reply = readyz(closed.address(), 503);
    assert_eq!(reply.json()["status"], "store_away", "{reply:?}");
    assert_eq!(closed.client().get("/livez").status, 200, "it lives");
    assert!(closed.client().get("/metrics").body.contains("\nrate_limiter_ready 0\n"));
    let start = Instant::now();
    while grpc_health(&closed) != ServingStatus::NotServing {
        assert!(start.elapsed() < PATIENCE, "gRPC does not hear of it");
    }
    mixed.client().post("/v1/check", r#"{"attributes": {"user": "1"}}"#);
    assert_eq!(readyz(mixed.address(), 200).json()["status"], "ready", "some rules are answered");
    redis.restart();
    readyz(closed.address(), 200);
    assert!(closed.log().contains("Redis answers again"), "{}", closed.log());
}

#[test]
fn a_store_that_cannot_be_used_is_told_at_the_start() {
    let url = format!("redis://:pass-word@127.0.0.1:{}", free_port());
    let file = rule_file(&rules(["closed", "closed"]));
    let mut server = Server::with(&["--rules", file.to_str().unwrap(), "--store", &url]);
    let log = server.log();
    assert!(log.contains("Redis cannot be used") && log.contains("…@127.0.0.1:") && log.contains("doctor"), "{log}");
    assert!(!log.contains("pass-word"), "{log}");
    server.wait_for_log("nothing listens there");
    assert_eq!(readyz(server.address(), 503).json()["status"], "store_away");
    let server = Server::with(&["--store", &url]);
    assert_eq!(readyz(server.address(), 200).json()["status"], "ready", "by default rules decide by themselves");
}

/// What is wrong with a store is in the log, not only that it does not answer.
#[test]
fn the_cause_of_a_store_that_cannot_be_used_is_told() {
    let nobody = free_port().to_string();
    let replica = Redis::builder().args(["--replicaof", "127.0.0.1", &nobody]).start();
    let plain = Redis::start();
    for (store, cause) in [
        (replica.url(), "the server is a replica and refuses to write (READONLY)"),
        (plain.url().replace("redis://", "rediss://"), "write redis:// instead of rediss://"),
        (format!("{}/99", plain.url()), "the server has no database of that number"),
    ] {
        let mut server = Server::with(&["--store", &store]);
        server.wait_for_log(cause);
    }
    // Also if it becomes one later.
    let mut server = Server::with(&["--store", &plain.url()]);
    plain.command(&["REPLICAOF", "127.0.0.1", &nobody]).expect_ok();
    let (start, mut client) = (Instant::now(), server.client());
    while !server.log().contains("Redis does not answer") && start.elapsed() < Duration::from_secs(10) {
        client.post("/v1/check", r#"{"attributes": {"user": "42", "plan": "free"}}"#);
        std::thread::sleep(Duration::from_millis(5));
    }
    server.wait_for_log("the server is a replica and refuses to write (READONLY)");
}

#[test]
fn a_store_that_forgets_buckets_is_told_at_the_start() {
    let redis = Redis::builder().args(["--maxmemory-policy", "allkeys-lru"]).start();
    let mut server = Server::with(&["--store", &redis.url()]);
    server.wait_for_log("set maxmemory-policy to volatile-ttl or noeviction");
    assert!(!server.log().contains("cannot be used"), "{}", server.log());
}

#[test]
fn whoever_comes_before_there_are_rules_is_told_and_a_signal_is_obeyed() {
    let (address, admin) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let database = format!("postgres://127.0.0.1:{}/none", free_port());
    let mut command = checkdam();
    command.args(["serve", "--http-listen", &address, "--admin-listen", &admin, "--database", &database]);
    let mut server = Server::opening(command);
    server.wait_for_log("waiting for the database");
    server.wait_for_log("nothing listens there");
    for address in [&address, &admin] {
        let reply = readyz(address, 503);
        assert_eq!(reply.json()["status"], "starting", "{reply:?}");
        assert_eq!(Client::connect(address).get("/livez").status, 200);
    }
    let check = Client::connect(&address).post("/v1/check", r#"{"attributes": {"user": "1"}}"#);
    assert_eq!((check.status, check.header("retry-after")), (503, Some("1")), "{check:?}");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}
