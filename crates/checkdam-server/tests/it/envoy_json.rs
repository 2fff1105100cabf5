//! Envoy's rate limit service over HTTP, in protobuf's JSON mapping.

use serde_json::json;

use crate::server_process::Server;

const RULES: &str = "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 10}}]";

#[test]
fn both_spellings_and_numbers_as_text_are_understood() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}]}]}"#;
    let answer = client.ok("/json", body);
    let until = answer["statuses"][0]["durationUntilReset"].as_str().unwrap().strip_suffix('s').unwrap();
    assert!((1..=86_400).contains(&until.parse::<u64>().unwrap()), "{answer}");
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["statuses"][0]["currentLimit"], json!({"requestsPerUnit": 10, "unit": "DAY"}));
    assert_eq!(answer["statuses"][0]["limitRemaining"], 9);
    for (body, remaining) in [
        (r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}], "hitsAddend": "2"}]}"#, 7),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}], "hits_addend": 2.0}]}"#,
            5,
        ),
        (r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}]}], "hitsAddend": "2"}"#, 3),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}], "limit": null}], "hits_addend": 1}"#,
            2,
        ),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "7"}], "limit": {"requestsPerUnit": 5, "unit": "HOUR"}}]}"#,
            4,
        ),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "8"}], "limit": {"requests_per_unit": "5", "unit": 3}}]}"#,
            4,
        ),
    ] {
        assert_eq!(client.ok("/json", body)["statuses"][0]["limitRemaining"], remaining, "{body}");
    }
}

#[test]
fn over_limit_is_a_429_with_the_same_answer() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let body = r#"{"domain": "edge", "hits_addend": 11, "descriptors": [{"entries": [{"key": "user"}]}, {"entries": [{"key": "other"}]}]}"#;
    let reply = client.post("/json", body);
    assert_eq!((reply.status, reply.header("content-type")), (429, Some("application/json")));
    let mut answer = reply.json();
    answer["statuses"][0]["durationUntilReset"].take();
    assert_eq!(
        answer,
        json!({"overallCode": "OVER_LIMIT", "statuses": [
            {"code": "OVER_LIMIT", "currentLimit": {"requestsPerUnit": 10, "unit": "DAY"}, "durationUntilReset": null},
            {"code": "OK"},
        ]})
    );
}

#[test]
fn what_is_not_understood_is_a_400_that_names_the_field() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for (body, field) in [
        ("", "body"),
        ("[]", "body"),
        (r#"{"domain": 5}"#, "domain"),
        (r#"{"domain": "edge"}"#, "descriptors"),
        (r#"{"descriptors": [{"entries": [{"key": "k"}]}]}"#, "domain"),
        (r#"{"domain": "edge", "extra": 1}"#, "extra"),
        (r#"{"domain": "edge", "descriptors": [{"entries": [["k", "v"]]}]}"#, "descriptors[0].entries[0]"),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}], "hits_addend": -1}]}"#,
            "descriptors[0].hits_addend",
        ),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}], "hitsAddend": "x"}]}"#,
            "descriptors[0].hitsAddend",
        ),
        (
            r#"{"domain": "edge", "hits_addend": 4294967296, "descriptors": [{"entries": [{"key": "k"}]}]}"#,
            "hits_addend",
        ),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}], "limit": {"unit": "FORTNIGHT"}}]}"#,
            "descriptors[0].limit.unit",
        ),
        (
            r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}], "limit": {}}]}"#,
            "descriptors[0].limit.unit",
        ),
        (r#"{"domain": "edge", "descriptors": [{"entries": [{"value": "v"}]}]}"#, "descriptors[0].entries"),
    ] {
        let reply = client.post("/json", body);
        assert_eq!((reply.status, reply.header("content-type")), (400, Some("application/problem+json")), "{body}");
        assert_eq!(reply.json()["field"], field, "{body}: {reply:?}");
    }
    assert_eq!(client.get("/json").status, 405);
    let server = Server::with_rules("rules: []");
    let reply = server.client().post("/json", r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}]}]}"#);
    assert_eq!(reply.status, 500, "{reply:?}");
}
