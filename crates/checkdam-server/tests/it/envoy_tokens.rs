//! A real Envoy that charges what a language model's answers used, when they have ended.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Envoy, Redis, wait_until};

use crate::envoy::envoy_before;
use crate::server_process::{PATIENCE, Server, rule_file};
use crate::test_upstream::Upstream;

/// What users copy.
const SHIPPED: &str = include_str!("../../../../deploy/envoy-tokens/envoy.yaml");
const SHIPPED_RULES: &str = include_str!("../../../../deploy/envoy-tokens/rules.yaml");

/// Reads an answer to its end, streamed or not: its status.
fn ask(envoy: &Envoy, path: &str, key: &str) -> u16 {
    let mut stream = TcpStream::connect(envoy.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{path}: {answer:?}"))
}

/// The state of a key's budget.
fn budget(server: &Server, endpoint: &str, key: &str) -> Value {
    let request = json!({"domain": "models", "attributes": {"api_key": key}});
    server.client().ok(endpoint, &request.to_string())["tiers"][0].clone()
}

/// Envoy charges after the client has its answer: waits until that is done.
fn wait_for(server: &Server, key: &str, field: &str, is_reached: impl Fn(u64) -> bool) {
    wait_until(&format!("{field} of {key}"), PATIENCE, || {
        is_reached(budget(server, "/v1/peek", key)[field].as_u64().unwrap_or(0))
    });
}

fn spend_and_be_denied(server: &Server) {
    let upstream = Upstream::start();
    let envoy = envoy_before(SHIPPED, server, upstream.port());
    for (kind, key) in [("completion", "json"), ("completion-stream", "events")] {
        assert_eq!(ask(&envoy, &format!("/{kind}/4000"), key), 200);
        wait_for(server, key, "remaining", |remaining| remaining < 7_000);
        // It may begin, since something is left, and uses more than that.
        assert_eq!(ask(&envoy, &format!("/{kind}/26000"), key), 200);
        wait_for(server, key, "debt", |debt| debt > 15_000);
        let served = upstream.requests();
        assert_eq!(ask(&envoy, &format!("/{kind}/1"), key), 429);
        assert_eq!(upstream.requests(), served, "what is denied is not forwarded");
        assert_eq!(ask(&envoy, &format!("/{kind}/1"), "other"), 200, "others have budgets of their own");
        budget(server, "/v1/reset", key);
        assert_eq!(ask(&envoy, &format!("/{kind}/1"), key), 200);
    }
    assert_eq!(envoy.counter("ratelimit.error"), 0, "{}", envoy.log());
}

#[test]
fn the_shipped_configuration_charges_what_answers_used() {
    spend_and_be_denied(&Server::with_rules(SHIPPED_RULES));
}

#[test]
fn the_same_with_redis() {
    let (redis, rules) = (Redis::start(), rule_file(SHIPPED_RULES));
    spend_and_be_denied(&Server::with(&["--rules", rules.to_str().unwrap(), "--store", &redis.url()]));
}

#[test]
fn a_debt_is_paid_back_at_the_rate_of_the_budget() {
    let server = Server::with_rules(&SHIPPED_RULES.replace("unit: minute", "unit: second"));
    let upstream = Upstream::start();
    let envoy = envoy_before(SHIPPED, &server, upstream.port());
    assert_eq!(ask(&envoy, "/completion/40000", "k"), 200);
    // 30,000 beyond the limit: three seconds.
    wait_for(&server, "k", "debt", |debt| debt > 0);
    let mut denied = 0;
    wait_until("the debt to be paid back", Duration::from_secs(60), || {
        let status = ask(&envoy, "/completion/0", "k");
        denied += u32::from(status == 429);
        status == 200
    });
    assert!(denied > 0, "the debt lasts for seconds");
}
