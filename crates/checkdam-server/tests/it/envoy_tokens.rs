//! A real Envoy that charges what a language model's answers used, when they have ended.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Redis, wait_until};

use crate::envoy::envoy_before;
use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, rule_file};
use crate::test_upstream::Upstream;

/// What users copy.
const SHIPPED: &str = include_str!("../../../../deploy/envoy-tokens/envoy.yaml");
const SHIPPED_RULES: &str = include_str!("../../../../deploy/envoy-tokens/rules.yaml");

fn ask(client: &mut Client, path: &str, key: &str) -> u16 {
    client.send_with("GET", path, &[("x-api-key", key)], "").expect("an answer").status
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
    let mut client = Client::connect(&envoy.addr().to_string());
    for (kind, key) in [("completion", "json"), ("completion-stream", "events")] {
        assert_eq!(ask(&mut client, &format!("/{kind}/4000"), key), 200);
        wait_for(server, key, "remaining", |remaining| remaining < 7_000);
        // It may begin, since something is left, and uses more than that.
        assert_eq!(ask(&mut client, &format!("/{kind}/26000"), key), 200);
        wait_for(server, key, "debt", |debt| debt > 15_000);
        let served = upstream.requests();
        assert_eq!(ask(&mut client, &format!("/{kind}/1"), key), 429);
        assert_eq!(upstream.requests(), served, "what is denied is not forwarded");
        assert_eq!(ask(&mut client, &format!("/{kind}/1"), "other"), 200, "others have budgets of their own");
        budget(server, "/v1/reset", key);
        assert_eq!(ask(&mut client, &format!("/{kind}/1"), key), 200);
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
    let mut client = Client::connect(&envoy.addr().to_string());
    assert_eq!(ask(&mut client, "/completion/40000", "k"), 200);
    // 30,000 beyond the limit: three seconds.
    wait_for(&server, "k", "debt", |debt| debt > 0);
    let mut denied = 0;
    wait_until("the debt to be paid back", Duration::from_secs(60), || {
        let status = ask(&mut client, "/completion/0", "k");
        denied += u32::from(status == 429);
        status == 200
    });
    assert!(denied > 0, "the debt lasts for seconds");
}
