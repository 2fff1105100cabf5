//! Batch, peek, refund, reset, explain.

use serde_json::json;

use crate::server_process::Server;

const RULES: &str = r#"
rules:
  - name: per-user
    description: Everybody
    key: "user:{user}"
    limits: ["1/m burst 3"]
  - name: pro
    key: "user:{user}"
    when: { plan: pro }
    limits: ["1000/m"]
    algorithm: sliding_window
"#;

const USER: &str = r#"{"attributes": {"user": "42"}}"#;

#[test]
fn a_batch_decides_each_request_on_its_own_in_order() {
    let server = Server::with_rules(RULES);
    let user = |cost: u64| json!({"attributes": {"user": "42"}, "cost": cost});
    let other = json!({"attributes": {"user": "43"}});
    let body = json!({"requests": [user(2), user(2), user(1), user(9), other, {"attributes": {}}]}).to_string();
    let reply = server.client().post("/v1/check/batch", &body);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let answer = reply.json();
    let results = answer["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 429, 200, 422, 200, 200]);
    assert_eq!(results[0]["remaining"], 1);
    assert_eq!(results[1]["violated"], "per-user");
    assert_eq!(results[1]["violated-policies"], json!(["per-user"]));
    assert_eq!(results[2]["remaining"], 0, "what was denied before it left room");
    assert_eq!(results[3]["type"], "urn:checkdam:problem:cost_exceeds_burst");
    assert_eq!(results[4]["tiers"][0]["subject"], "user:43");
    assert_eq!(results[5]["limit"], json!(null));
}

#[test]
fn an_empty_batch_has_no_results_and_a_full_one_fits() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.ok("/v1/check/batch", r#"{"requests": []}"#), json!({"results": []}));
    let full = json!({"requests": vec![json!({"attributes": {"user": "42", "plan": "pro"}}); 256]}).to_string();
    assert_eq!(client.ok("/v1/check/batch", &full)["results"].as_array().unwrap().len(), 256);
}

#[test]
fn a_peek_tells_without_charging_and_is_always_200() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for _ in 0..5 {
        assert_eq!(client.ok("/v1/peek", USER)["remaining"], 3);
    }
    client.ok("/v1/check", r#"{"attributes": {"user": "42"}, "cost": 3}"#);
    let reply = client.post("/v1/peek", USER);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("retry-after"), None, "nobody was refused");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!((&reply.json()["allowed"], &reply.json()["violated"]), (&json!(false), &json!("per-user")));
}

#[test]
fn a_refund_gives_back_at_most_what_is_owed() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    client.ok("/v1/check", r#"{"attributes": {"user": "42"}, "cost": 3}"#);
    assert_eq!(client.ok("/v1/refund", r#"{"attributes": {"user": "42"}, "cost": 2}"#)["remaining"], 2);
    assert_eq!(client.ok("/v1/refund", r#"{"attributes": {"user": "42"}, "cost": 1000}"#)["remaining"], 3);
    assert_eq!(client.ok("/v1/refund", USER)["remaining"], 3);
}

#[test]
fn a_reset_forgets_one_subject_only() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for user in ["42", "43"] {
        client.ok("/v1/check", &json!({"attributes": {"user": user}, "cost": 3}).to_string());
    }
    let after = client.ok("/v1/reset", USER);
    assert_eq!((&after["allowed"], &after["remaining"]), (&json!(true), &json!(3)));
    assert_eq!(client.ok("/v1/peek", r#"{"attributes": {"user": "43"}}"#)["remaining"], 0);
}

#[test]
fn explain_says_which_rules_match_and_why_and_charges_nothing() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    client.ok("/v1/check", USER);
    for _ in 0..2 {
        let mut answer = client.ok("/v1/explain", USER);
        let tier = &mut answer["matches"][0]["tiers"][0];
        assert!(tier["reset_after_ms"].as_u64().unwrap() <= 60_000);
        tier["reset_after_ms"] = json!(0);
        assert_eq!(
            answer,
            json!({
                "allowed": true,
                "violated": null,
                "matches": [{
                    "rule": "per-user", "description": "Everybody", "key": "user:{user}", "subject": "user:42",
                    "scope": "user", "mode": "enforce", "algorithm": "token_bucket",
                    "reasons": ["the request has \"user\", which the key \"user:{user}\" names"],
                    "tiers": [{"quota": "1/m burst 3", "algorithm": "token_bucket", "allowed": true, "limit": 3, "remaining": 2,
                        "retry_after_ms": 0, "reset_after_ms": 0}],
                }],
                "others": [{
                    "rule": "pro", "description": "",
                    "reasons": ["the condition that \"plan\" is pro does not hold: it is absent"],
                }],
                "others_left_out": 0,
                "hints": ["no request of the last hour had \"plan\", without which rule \"pro\" matches nothing"],
            })
        );
    }
}

#[test]
fn explain_is_bounded_when_there_are_many_rules() {
    let rule =
        |number| format!("  - {{name: r{number}, key: \"k:{{k}}\", when: {{n: \"{number}\"}}, limits: [1/s]}}\n");
    let rules: String = (0..500).map(rule).collect();
    let server = Server::with_rules(&format!("rules:\n{rules}"));
    let answer = server.client().ok("/v1/explain", r#"{"attributes": {"k": "1", "n": "7"}}"#);
    assert_eq!(answer["matches"][0]["rule"], "r7");
    assert_eq!(answer["others"].as_array().unwrap().len(), 100);
    assert_eq!(answer["others_left_out"], 399);
}

#[test]
fn the_starter_rules_do_what_they_say() {
    let server = Server::start();
    let mut client = server.client();
    let mut rules = |attributes| {
        let answer = client.ok("/v1/check", &json!({"attributes": attributes}).to_string());
        let names: Vec<_> = answer["tiers"].as_array().unwrap().iter().map(|tier| tier["rule"].clone()).collect();
        (json!(names), answer["limit"].clone())
    };
    let free = json!(["user-free", "user-free", "user-free", "global"]);
    assert_eq!(rules(json!({"user": "42", "plan": "free"})), (free, json!(50)));
    assert_eq!(rules(json!({"user": "42", "plan": "pro"})), (json!(["user-pro", "user-pro", "global"]), json!(500)));
    let search = json!({"endpoint": "/api/search", "method": "GET"});
    assert_eq!(rules(search), (json!(["search", "global"]), json!(2000)));
    assert_eq!(rules(json!({"ip": "203.0.113.9"})), (json!(["per-ip", "global"]), json!(600)));
    for private in ["10.1.2.3", "192.168.1.1", "::1", "fd00::1", "127.0.0.1"] {
        assert_eq!(rules(json!({"ip": private})).0, json!(["global"]), "{private}");
    }
}

/// A visitor's browser sends such requests unasked, with the page's origin.
#[test]
fn a_page_of_another_origin_gives_nothing_back() {
    let server = Server::start();
    let asked = |path: &str, origin: &str| {
        let body = r#"{"attributes": {"user": "42", "plan": "free"}}"#;
        server.client().send_with("POST", path, &[("origin", origin)], body).unwrap().status
    };
    for path in ["/v1/refund", "/v1/reset"] {
        assert_eq!((asked(path, "https://example.com"), asked(path, "http://localhost")), (403, 200), "{path}");
    }
    assert_eq!(asked("/v1/peek", "https://example.com"), 403);
}
