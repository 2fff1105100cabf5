//! Responses to checks: members, headers, statuses.

use serde_json::{Value, json};

use crate::server_process::Server;

const RULES: &str = r#"
rules:
  - name: per-user
    key: "user:{user}"
    when: { plan: free }
    limits: ["1/m burst 2", "100/d"]
  - name: watched
    key: "user:{user}"
    when: { plan: free }
    limits: ["1/h"]
    mode: shadow
  - name: queue
    key: "queue:{queue}"
    limits: ["1/m burst 3"]
    algorithm: leaky_bucket
  - name: tenant
    domain: other
    key: "tenant:{tenant}"
    limits: ["5/m"]
"#;

const FREE: &str = r#"{"attributes": {"user": "42", "plan": "free"}}"#;

/// Times depend on the moment: they become the range they must lie in.
fn without_times(mut answer: Value) -> Value {
    fn settle(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member.as_u64() {
                        Some(0) => {}
                        Some(ms) if name.ends_with("_ms") => *member = json!(format!("≤ {} s", ms.div_ceil(1_000))),
                        _ => settle(member),
                    }
                }
            }
            Value::Array(members) => members.iter_mut().for_each(settle),
            _ => {}
        }
    }
    settle(&mut answer);
    answer
}

#[test]
fn an_allowed_request_is_answered_with_200_and_every_tier() {
    let server = Server::with_rules(RULES);
    let reply = server.client().post("/v1/check", FREE);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let tier = |rule, name: &str, (limit, remaining): (u64, u64), reset: &str| {
        json!({"rule": rule, "scope": "user", "subject": "user:42", "limit_name": name, "allowed": true, "limit": limit,
            "remaining": remaining, "retry_after_ms": 0, "reset_after_ms": reset})
    };
    let mut watched = tier("watched", "1/h", (1, 0), "≤ 3600 s");
    watched["shadow"] = json!(true);
    assert_eq!(
        without_times(reply.json()),
        json!({
            "allowed": true, "limit": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": "≤ 60 s",
            "violated": null, "decided_by": "memory",
            "tiers": [
                tier("per-user", "1/m burst 2", (2, 1), "≤ 60 s"), tier("per-user", "100/d", (100, 99), "≤ 864 s"), watched,
            ],
        })
    );
    let members =
        ["allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "violated", "decided_by", "tiers"];
    let places: Vec<_> = members.iter().map(|name| reply.body.find(&format!("\"{name}\"")).unwrap()).collect();
    assert!(places.is_sorted(), "the members stand in the documented order: {}", reply.body);
}

#[test]
fn a_denied_request_is_a_429_problem_with_the_same_members() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    client.ok("/v1/check", FREE);
    client.ok("/v1/check", FREE);
    let reply = client.post("/v1/check", FREE);
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let answer = reply.json();
    assert_eq!(answer["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(answer["title"], "Request cannot be satisfied as assigned quota has been exceeded");
    assert_eq!(answer["status"], 429);
    assert!(answer["detail"].as_str().unwrap().contains("\"per-user\" (1/m burst 2)"), "{answer}");
    assert_eq!(answer["violated-policies"], json!(["per-user 1/m"]));
    assert_eq!(answer["violated"], "per-user");
    assert_eq!((&answer["allowed"], &answer["limit"], &answer["remaining"]), (&json!(false), &json!(2), &json!(0)));
    let retry_after_ms = answer["retry_after_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&retry_after_ms), "{answer}");
    assert_eq!(answer["tiers"].as_array().unwrap().len(), 3);
    assert_eq!(answer["tiers"][1]["remaining"], 98, "nothing was charged to the tier that would pass");
    let retry_after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(retry_after, retry_after_ms.div_ceil(1_000), "whole seconds, rounded up");
}

#[test]
fn both_families_of_headers_are_on_200_and_on_429() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let reply = client.post("/v1/check", FREE);
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(remaining));
        let reset: u64 = reply.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!((1_767_225_600..4_000_000_000).contains(&reset), "{reset} is no Unix time of ours");
        let policy = r#""per-user 1/m";q=2;w=120, "per-user 100/d";q=100;w=86400"#;
        assert_eq!(reply.header("ratelimit-policy"), Some(policy), "enforced tiers only");
        let standing = reply.header("ratelimit").unwrap();
        assert!(standing.starts_with(&format!("\"per-user 1/m\";r={remaining};t=")), "{standing}");
        assert_eq!(reply.header("retry-after").is_some(), status == 429);
    }
}

#[test]
fn each_dialect_sends_its_own_headers_only() {
    for (dialect, x, ietf) in [("both", true, true), ("x", true, false), ("ietf", false, true), ("none", false, false)]
    {
        let server = Server::with(&["--headers", dialect]);
        let mut client = server.client();
        let body = r#"{"attributes": {"user": "42", "plan": "free"}, "cost": 50}"#;
        assert_eq!(client.post("/v1/check", body).status, 200);
        let reply = client.post("/v1/check", body);
        assert_eq!(reply.status, 429, "{dialect}");
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            assert_eq!(reply.header(name).is_some(), x, "{dialect}: {name}");
        }
        for name in ["ratelimit", "ratelimit-policy"] {
            assert_eq!(reply.header(name).is_some(), ietf, "{dialect}: {name}");
        }
        assert!(reply.header("retry-after").is_some(), "{dialect}: Retry-After is always there");
    }
}

#[test]
fn a_cost_beyond_the_burst_is_a_422_without_retry_after() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let reply = client.post("/v1/check", r#"{"attributes": {"user": "42", "plan": "free"}, "cost": 3}"#);
    assert_eq!(reply.status, 422);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("retry-after"), None);
    let answer = reply.json();
    assert_eq!(answer["type"], "urn:checkdam:problem:cost_exceeds_burst");
    assert_eq!(answer["status"], 422);
    assert_eq!((&answer["allowed"], &answer["violated"]), (&json!(false), &json!("per-user")));
    assert_eq!(answer["retry_after_ms"], json!(null), "it never passes");
    let tiers = answer["tiers"].as_array().unwrap().iter();
    let waits: Vec<_> = tiers.map(|tier| (tier["limit_name"].as_str().unwrap(), &tier["retry_after_ms"])).collect();
    let expected = [("1/m burst 2", json!(null)), ("100/d", json!(0)), ("1/h", json!(null))];
    assert_eq!(waits, expected.each_ref().map(|(name, wait)| (*name, wait)));
    assert_eq!(client.ok("/v1/peek", FREE)["remaining"], 2, "nothing was charged");
}

#[test]
fn a_request_that_no_rule_concerns_passes_without_headers() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for body in [r#"{"attributes": {}}"#, r#"{"attributes": {"user": "42", "plan": "pro"}, "cost": 1000000}"#] {
        let reply = client.post("/v1/check", body);
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.json(),
            json!({"allowed": true, "limit": null, "remaining": null, "retry_after_ms": 0, "reset_after_ms": 0,
                "violated": null, "decided_by": "memory", "tiers": []})
        );
        for name in ["x-ratelimit-limit", "ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
}

#[test]
fn a_rule_in_shadow_reports_and_never_denies() {
    let server = Server::with_rules("rules: [{name: watched, key: \"user:{user}\", limits: [\"1/h\"], mode: shadow}]");
    let mut client = server.client();
    let body = r#"{"attributes": {"user": "42"}}"#;
    assert_eq!(client.ok("/v1/check", body)["tiers"][0]["allowed"], true);
    for _ in 0..3 {
        let reply = client.post("/v1/check", body);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-ratelimit-limit"), None, "a rule that only watches tells clients nothing");
        let answer = reply.json();
        assert_eq!(
            (&answer["allowed"], &answer["limit"], &answer["violated"]),
            (&json!(true), &Value::Null, &Value::Null)
        );
        let tier = &answer["tiers"][0];
        assert_eq!((&tier["allowed"], &tier["shadow"]), (&json!(false), &json!(true)));
        assert!(tier["retry_after_ms"].as_u64().unwrap() > 3_000_000);
    }
}

#[test]
fn violated_is_the_longest_wait_and_nothing_is_charged_elsewhere() {
    let server = Server::with_rules(
        r#"
rules:
  - { name: short, key: "user:{user}", limits: ["1/s"] }
  - { name: long, key: "user:{user}", limits: ["1/h"] }
  - { name: wide, key: "user:{user}", limits: ["100/h"] }
"#,
    );
    let mut client = server.client();
    let body = r#"{"attributes": {"user": "42"}}"#;
    client.ok("/v1/check", body);
    let reply = client.post("/v1/check", body);
    let answer = reply.json();
    assert_eq!(answer["violated"], "long");
    assert_eq!(answer["violated-policies"], json!(["short", "long"]), "every failing tier");
    let retry_after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((3_590..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(answer["tiers"][2]["remaining"], 99);
}

#[test]
fn a_leaky_bucket_answers_with_a_delay() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let body = r#"{"attributes": {"queue": "mail"}}"#;
    assert_eq!(client.ok("/v1/check", body).get("delay_ms"), None, "the first need not wait");
    let delay_ms = client.ok("/v1/check", body)["delay_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&delay_ms), "{delay_ms}");
}

#[test]
fn only_rules_of_the_same_domain_concern_a_request() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let inside = client.ok("/v1/check", r#"{"domain": "other", "attributes": {"tenant": "acme"}}"#);
    assert_eq!(inside["tiers"][0]["rule"], "tenant");
    assert_eq!(client.ok("/v1/check", r#"{"attributes": {"tenant": "acme"}}"#)["tiers"], json!([]));
    assert_eq!(client.ok("/v1/check", r#"{"domain": "none", "attributes": {"tenant": "acme"}}"#)["tiers"], json!([]));
}
