//! Overrides and bans, from the rule file to the response.

use serde_json::json;

use crate::server_process::{Server, checkdam, text};

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["1/m burst 3"] }
overrides:
  - { rule: per-user, subject: "user:42", scale: 10 }
  - { rule: per-user, subject: "user:root", unlimited: true }
bans:
  - { subject: "user:13", reason: "fraud, case 7" }
  - { subject: "ip:198.51.100.0/24", until: "2999-01-01T00:00:00Z", reason: scraping }
  - { subject: "ip:203.0.113.0/24", until: "2001-01-01T00:00:00Z" }
"#;

#[test]
fn a_banned_request_is_a_403_problem_that_says_why() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let reply = client.post("/v1/check", r#"{"attributes": {"user": "13"}}"#);
    assert_eq!(reply.status, 403);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(
        reply.json(),
        json!({
            "type": "urn:checkdam:problem:banned", "title": "The request is banned", "status": 403,
            "detail": "\"user:13\" is banned: fraud, case 7", "violated-policies": [],
            "allowed": false, "limit": null, "remaining": null, "retry_after_ms": null, "reset_after_ms": 0,
            "violated": null, "ban": {"subject": "user:13", "reason": "fraud, case 7", "until": null},
            "decided_by": "policy", "tiers": [],
        })
    );
    let reply = client.post("/v1/check", r#"{"attributes": {"user": "1", "ip": "198.51.100.9"}}"#);
    assert_eq!(reply.status, 403);
    let answer = reply.json();
    assert_eq!(answer["ban"]["until"], "2999-01-01T00:00:00Z");
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds > 900 * 365 * 86_400 && answer["retry_after_ms"].as_u64().unwrap() <= seconds * 1_000, "{answer}");
    let passes = client.ok("/v1/check", r#"{"attributes": {"user": "1", "ip": "203.0.113.9"}}"#);
    assert_eq!(passes["remaining"], 2, "the ban that is over bans nobody, and the other charged nothing");
}

#[test]
fn a_ban_is_seen_in_batches_peeks_and_explanations() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let batch = r#"{"requests": [{"attributes": {"user": "13"}}, {"attributes": {"user": "1"}}]}"#;
    let results = client.ok("/v1/check/batch", batch)["results"].clone();
    assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!(403), &json!(200)));
    let banned = r#"{"attributes": {"user": "13"}}"#;
    for path in ["/v1/peek", "/v1/explain"] {
        let answer = client.ok(path, banned);
        assert_eq!((&answer["allowed"], &answer["ban"]["subject"]), (&json!(false), &json!("user:13")), "{path}");
    }
    let ask = |command| checkdam().args([command, "user=13"]).env("CHECKDAM_SERVER", server.url()).output().unwrap();
    let (checked, explained) = (ask("check"), ask("explain"));
    assert_eq!((checked.status.code(), explained.status.code()), (Some(1), Some(1)));
    assert_eq!(text(&checked.stdout), "denied: \"user:13\" is banned: fraud, case 7\n");
    let said = text(&explained.stdout);
    assert!(said.starts_with("1 of 1 rules match the request: but user:13 is banned (fraud, case 7)\n"), "{said}");
}

#[test]
fn an_override_counts_instead_of_the_rules_own_limits() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let limit = |answer: &serde_json::Value| answer["limit"].clone();
    assert_eq!(limit(&client.ok("/v1/check", r#"{"attributes": {"user": "1"}}"#)), 3);
    assert_eq!(limit(&client.ok("/v1/check", r#"{"attributes": {"user": "42"}}"#)), 30);
    let free = client.ok("/v1/check", r#"{"attributes": {"user": "root"}}"#);
    assert_eq!((limit(&free), &free["tiers"]), (json!(null), &json!([])));
    let explained = client.ok("/v1/explain", r#"{"attributes": {"user": "42"}}"#);
    assert_eq!(explained["matches"][0]["reasons"][1], "the override of \"user:42\" allows 10 times its limits");
    assert_eq!(explained["matches"][0]["tiers"][0]["quota"], "10/m burst 30");
    let explained = client.ok("/v1/explain", r#"{"attributes": {"user": "root"}}"#);
    assert_eq!(explained["others"][0]["reasons"][1], "the override of \"user:root\" lifts it");
}
