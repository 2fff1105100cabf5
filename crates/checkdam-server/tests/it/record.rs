//! Usage that is charged afterwards (`/v1/record`), and debt.

use serde_json::{Value, json};
use testkit::Redis;

use crate::server_process::{Server, rule_file};

const RULES: &str = r#"
rules:
  - { name: tokens, key: "user:{user}", limits: ["60/h", "1000/d max_debt 50"] }
  - { name: watched, key: "user:{user}", limits: ["5/h"], mode: shadow }
  - { name: log, key: "log:{log}", limits: ["10/h"], algorithm: sliding_log }
  - { name: edge, domain: edge, key: "user:{user}", limits: ["10/h"] }
bans:
  - { subject: "user:mallory", reason: scraping }
"#;

fn user(cost: u64) -> String {
    json!({"attributes": {"user": "42"}, "cost": cost}).to_string()
}

fn debts(answer: &Value) -> Vec<Option<u64>> {
    answer["tiers"].as_array().unwrap().iter().map(|tier| tier.get("debt").map(|debt| debt.as_u64().unwrap())).collect()
}

#[test]
fn a_record_is_charged_whatever_is_left_and_nothing_passes_while_a_bucket_is_in_debt() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let within = client.ok("/v1/record", &user(4));
    assert_eq!((&within["allowed"], &within["remaining"], debts(&within)), (&json!(true), &json!(56), vec![None; 3]));
    assert_eq!(within.get("cut_off"), None);
    let reply = client.post("/v1/record", &user(100));
    assert_eq!((reply.status, reply.header("retry-after")), (200, None), "never denied: {reply:?}");
    let beyond = reply.json();
    assert_eq!(
        (&beyond["allowed"], &beyond["remaining"], &beyond["violated"]),
        (&json!(false), &json!(0), &json!("tokens"))
    );
    assert_eq!(debts(&beyond), [Some(44), None, Some(99)], "of an hour, of a day, in shadow");
    // 44 of 60 an hour.
    let wait_ms = beyond["retry_after_ms"].as_u64().unwrap();
    assert!((2_600_000..=2_640_000).contains(&wait_ms), "{wait_ms}");
    let denied = client.post("/v1/check", &user(1));
    assert_eq!((denied.status, debts(&denied.json())), (429, vec![Some(44), None, Some(99)]));
    assert_eq!(debts(&client.ok("/v1/peek", &user(1))), [Some(44), None, Some(99)]);
    let explained = client.ok("/v1/explain", &user(1));
    assert_eq!(explained["matches"][0]["tiers"][0]["debt"], 44, "{explained}");
    let refunded = client.ok("/v1/refund", &user(50));
    assert_eq!((debts(&refunded)[0], &refunded["remaining"]), (None, &json!(6)), "{refunded}");
    assert_eq!(client.post("/v1/check", &user(6)).status, 200);
}

#[test]
fn nothing_is_recorded_for_a_cost_of_0_or_one_that_is_none() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    assert_eq!(client.ok("/v1/record", &user(0))["remaining"], 60);
    assert_eq!(client.ok("/v1/record", r#"{"attributes": {"user": "42"}, "cost": 0.0}"#)["remaining"], 60);
    for (cost, status, field) in [
        ("-1", 422, "cost"),
        ("1.5", 422, "cost"),
        ("1000000000001", 422, "cost"),
        ("1e300", 422, "cost"),
        ("\"5\"", 400, "cost"),
        ("null", 400, "cost"),
        ("[]", 400, "cost"),
    ] {
        let reply = client.post("/v1/record", &format!(r#"{{"attributes": {{"user": "42"}}, "cost": {cost}}}"#));
        assert_eq!((reply.status, &reply.json()["field"]), (status, &json!(field)), "{cost}: {reply:?}");
    }
    for (body, part) in [("[]", "one record is an object"), ("", "send JSON"), (r#"{"cost": 1}"#, "attributes")] {
        let reply = client.post("/v1/record", body);
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(part), "{reply:?}");
    }
    assert_eq!(client.post("/v1/record", &" ".repeat(70_000)).status, 413);
    assert_eq!(client.ok("/v1/peek", &user(1))["remaining"], 60, "nothing was charged");
    assert_eq!(client.ok("/v1/record", r#"{"attributes": {"user": "42"}}"#)["remaining"], 59, "1 without a cost");
    let unlimited = client.ok("/v1/record", r#"{"attributes": {"nobody": "x"}, "cost": 5}"#);
    assert_eq!((&unlimited["allowed"], &unlimited["limit"]), (&json!(true), &json!(null)));
}

#[test]
fn debt_is_bounded_and_what_is_cut_off_is_told() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let answer = client.ok("/v1/record", &user(1_100));
    assert_eq!(debts(&answer), [Some(1_040), Some(50), Some(500)]);
    assert_eq!(answer["cut_off"], 50 + 595, "{answer}");
    let log = client.ok("/v1/record", r#"{"attributes": {"log": "1"}, "cost": 30}"#);
    assert_eq!((debts(&log), log.get("cut_off")), (vec![Some(20)], None));
    let edge = client.ok("/v1/record", r#"{"domain": "edge", "attributes": {"user": "42"}, "cost": 12}"#);
    assert_eq!((&edge["tiers"][0]["rule"], debts(&edge)), (&json!("edge"), vec![Some(2)]));
    let metrics = client.get("/metrics").body;
    for line in [
        r#"rate_limiter_recorded_cost_total{rule="tokens"} 1100"#,
        r#"rate_limiter_recorded_cost_total{rule="log"} 30"#,
        "rate_limiter_record_cut_off_total 645",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} in {metrics}");
    }
}

#[test]
fn a_record_is_no_decision_and_a_ban_does_not_keep_it_off() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let banned = client.ok("/v1/record", r#"{"attributes": {"user": "mallory"}, "cost": 100}"#);
    assert_eq!((debts(&banned)[0], banned.get("ban")), (Some(40), None));
    assert_eq!(client.post("/v1/check", r#"{"attributes": {"user": "mallory"}}"#).status, 403);
    client.ok("/v1/record", &user(100));
    let metrics = client.get("/metrics").body;
    for line in [
        r#"rate_limiter_requests_total{rule="tokens",decision="denied",store="memory"} 0"#,
        r#"rate_limiter_rule_decisions_total{rule="tokens",decision="denied"} 0"#,
        r#"rate_limiter_rule_decisions_total{rule="watched",decision="shadow_denied"} 0"#,
        "rate_limiter_audit_denied_total 1",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} in {metrics}");
    }
}

#[test]
fn whoever_may_check_may_record() {
    let rules = rule_file(RULES);
    let token = "the-api-token-of-tests";
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--api-token", token]);
    let send =
        |headers: &[(&str, &str)]| server.client().send_with("POST", "/v1/record", headers, &user(1)).unwrap().status;
    let authorization = ("authorization", &*format!("Bearer {token}"));
    assert_eq!((send(&[]), send(&[authorization])), (401, 200));
    assert_eq!(send(&[authorization, ("origin", "https://example.com")]), 403, "a page of another origin");
}

#[test]
fn nodes_share_debt() {
    let (redis, rules) = (Redis::start(), rule_file(RULES));
    let arguments = ["--rules", rules.to_str().unwrap(), "--store", &redis.url(), "--store-deadline", "2s"];
    let (one, other) = (Server::with(&arguments), Server::with(&arguments));
    let recorded = one.client().ok("/v1/record", &user(100));
    assert_eq!((debts(&recorded), &recorded["decided_by"]), (vec![Some(40), None, Some(95)], &json!("redis")));
    let denied = other.client().post("/v1/check", &user(1));
    assert_eq!((denied.status, debts(&denied.json())[0]), (429, Some(40)));
    assert_eq!(other.client().ok("/v1/record", &user(1_000))["cut_off"], 50 + 595);
    assert_eq!(other.client().ok("/v1/reset", &user(1))["remaining"], 60);
}
