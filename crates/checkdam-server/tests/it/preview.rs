//! Previews of edits on the requests that were just made.

use serde_json::{Value, json};

use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, rule_file};

/// So slow that no token comes back during a test.
const RULES: &str = "rules:\n  - { name: per-user, key: \"user:{user}\", limits: [\"1/h burst 10\"] }\n  \
                     - { name: everybody, key: global, limits: [\"1000/h\"] }\n";
/// How often each user asks.
const ASKED: [(&str, u64); 4] = [("ann", 4), ("bob", 9), ("cat", 15), ("dan", 30)];

fn per_user(burst: u64) -> Value {
    json!({"name": "per-user", "key": "user:{user}", "limits": [format!("1/h burst {burst}")]})
}

fn server() -> Server {
    let server = Server::start();
    let reply = server.admin().post("/admin/v1/rules/import?replace=true", RULES);
    assert_eq!(reply.status, 200, "{reply:?}");
    ask(&server);
    server
}

/// Every user asks in turn, as often as it does.
fn ask(server: &Server) {
    let mut client = server.client();
    for round in 0..30 {
        for (user, _) in ASKED.iter().filter(|(_, times)| round < *times) {
            let reply = client.post("/v1/check", &json!({"attributes": {"user": user}}).to_string());
            assert_eq!(reply.status, if round < 10 { 200 } else { 429 });
        }
    }
}

fn preview(admin: &mut Client, name: Option<&str>, rule: &Value) -> Value {
    admin.ok("/admin/v1/rules/preview", &json!({"name": name, "rule": rule}).to_string())
}

/// What a limit of so many denies.
fn limited(burst: u64) -> u64 {
    ASKED.iter().map(|(_, times)| times.saturating_sub(burst)).sum()
}

#[test]
fn an_edit_is_tried_on_what_was_asked_and_changes_nothing() {
    let server = server();
    let mut admin = server.admin();
    let (before, asked) = (admin.get("/admin/v1/rules/export").body, 58);
    for burst in [5, 10, 20] {
        let tried = preview(&mut admin, Some("per-user"), &per_user(burst));
        let (was, is) = (limited(10), limited(burst));
        assert_eq!(tried["before"], json!({"allowed": asked - was, "limited": was}), "{tried}");
        assert_eq!(tried["after"], json!({"allowed": asked - is, "limited": is}), "{tried}");
        assert_eq!(tried["newly_limited"], is.saturating_sub(was), "{tried}");
        assert_eq!(tried["newly_allowed"], was.saturating_sub(is), "{tried}");
        let rule =
            json!({"before": {"concerned": asked, "limited": was}, "after": {"concerned": asked, "limited": is}});
        assert_eq!(tried["rule"], rule);
        assert_eq!((&tried["requests"], &tried["sampled_one_in"]), (&json!(asked), &json!(1)));
        let dan = tried["subjects"].as_array().unwrap().iter().find(|row| row["subject"] == "user:dan").unwrap();
        assert_eq!(dan["concerned"], 30);
        assert_eq!((&dan["limited_before"], &dan["limited_after"]), (&json!(20), &json!(30 - burst)));
    }
    let strictest = preview(&mut admin, Some("per-user"), &per_user(5));
    assert_eq!(strictest["subjects"][3]["subject"], "user:ann", "nothing changes for her: {strictest}");
    assert!(strictest["seconds"].as_f64().unwrap() >= 1.0, "{strictest}");
    assert!(strictest["note"].as_str().unwrap().contains("starts full"), "{strictest}");
    assert_eq!(admin.get("/admin/v1/rules/export").body, before, "nothing has changed");
    let peeked = server.client().ok("/v1/peek", r#"{"attributes": {"user": "ann"}}"#);
    assert_eq!(peeked["remaining"], 6, "and nothing was charged: {peeked}");
}

#[test]
fn rules_are_added_removed_renamed_and_tried_in_shadow() {
    let server = server();
    let mut admin = server.admin();
    let removed = preview(&mut admin, Some("per-user"), &Value::Null);
    assert_eq!((&removed["newly_allowed"], &removed["after"]["limited"]), (&json!(limited(10)), &json!(0)));
    assert_eq!(removed["rule"]["after"], json!({"concerned": 0, "limited": 0}));
    let tight = json!({"name": "tight", "key": "all", "limits": ["8/h"]});
    let added = preview(&mut admin, None, &tight);
    assert_eq!(added["after"], json!({"allowed": 8, "limited": 50}));
    assert_eq!(added["subjects"][0]["subject"], "all");
    let mut renamed = per_user(2);
    renamed["name"] = json!("one-by-one");
    let renamed = preview(&mut admin, Some("per-user"), &renamed);
    assert_eq!(renamed["after"]["limited"], limited(2));
    let mut shadow = per_user(2);
    shadow["mode"] = json!("shadow");
    let shadow = preview(&mut admin, Some("per-user"), &shadow);
    assert_eq!((&shadow["after"]["limited"], &shadow["rule"]["after"]["limited"]), (&json!(0), &json!(limited(2))));
    assert!(shadow["note"].as_str().unwrap().contains("shadow"), "{shadow}");
}

#[test]
fn a_file_of_rules_can_be_tried_too_and_without_requests_the_answer_says_so() {
    let file = rule_file(RULES);
    let server = Server::with(&["--rules", file.to_str().unwrap(), "--audit-rate", "0"]);
    let none = preview(&mut server.admin(), Some("per-user"), &per_user(5));
    assert_eq!((&none["requests"], &none["seconds"]), (&json!(0), &json!(0.0)));
    assert!(none["note"].as_str().unwrap().contains("no requests"), "{none}");
    ask(&server);
    let tried = preview(&mut server.admin(), Some("per-user"), &per_user(5));
    assert_eq!(tried["after"]["limited"], limited(5));

    let forgetful = Server::with(&["--rules", file.to_str().unwrap(), "--recent-requests", "0"]);
    ask(&forgetful);
    let none = preview(&mut forgetful.admin(), Some("per-user"), &per_user(5));
    assert_eq!(none["requests"], 0, "{none}");
}

/// More than fits is asked: the busiest clients are in the preview all the same.
#[test]
fn a_preview_of_more_than_fits_agrees_with_what_was_decided() {
    let file = rule_file(RULES);
    let server = Server::with(&["--rules", file.to_str().unwrap(), "--recent-requests", "700", "--audit-rate", "0"]);
    let mut client = server.client();
    let mut check = |user: String| client.post("/v1/check", &json!({"attributes": {"user": user}}).to_string());
    let mut admin = server.admin();
    let mut tried = Value::Null;
    for second in 1..=3 {
        for round in 0..75 {
            check("loud".to_owned());
            check("noisy".to_owned());
            check(format!("quiet-{second}-{round}"));
            check(format!("quiet-{second}-{round}-too"));
        }
        testkit::wait_until("a second ends", PATIENCE, || {
            tried = preview(&mut admin, Some("per-user"), &per_user(20));
            tried["seconds"].as_f64() > Some(f64::from(second))
        });
    }
    assert!(tried["sampled_one_in"].as_u64() > Some(1), "{tried}");
    // Two users ask 225 times each, and pass ten times.
    let limited = tried["before"]["limited"].as_u64().unwrap();
    assert_eq!(limited, 430, "{tried}");
    assert_eq!(tried["disagrees"], false, "{tried}");
    assert_eq!(tried["live"]["limited"], 430, "{tried}");
    let changed: Vec<&str> =
        tried["subjects"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap()).collect();
    assert!(changed[..2].contains(&"user:loud") && changed[..2].contains(&"user:noisy"), "{tried}");
}

#[test]
fn a_replay_that_disagrees_with_what_was_decided_says_so() {
    let server = server();
    let mut admin = server.admin();
    assert_eq!(preview(&mut admin, Some("per-user"), &per_user(5))["disagrees"], false);
    for user in ["eve", "fay"] {
        (0..30)
            .for_each(|_| drop(server.client().post("/v1/check", &json!({"attributes": {"user": user}}).to_string())));
    }
    let wider = RULES.replace("burst 10", "burst 100");
    assert_eq!(admin.post("/admin/v1/rules/import?replace=true", &wider).status, 200);
    let tried = preview(&mut admin, Some("per-user"), &per_user(5));
    assert_eq!((&tried["disagrees"], &tried["before"]["limited"]), (&json!(true), &json!(0)), "{tried}");
    assert_eq!(tried["live"]["limited"], limited(10) + 40, "{tried}");
    assert!(tried["note"].as_str().unwrap().contains("differs"), "{tried}");
}

#[test]
fn edits_that_could_not_be_made_are_refused_as_they_would_be() {
    let server = server();
    let mut admin = server.admin();
    let wrong = json!({"name": "per-user", "key": "user:{user}", "limits": ["10/parsec"]});
    let reserved = json!({"name": "preview", "key": "k", "limits": ["1/s"]});
    let twin = json!({"name": "twin", "key": "user:{user}", "limits": ["1/s"]});
    let table = [
        ("{".to_owned(), 400, "EOF"),
        (json!({"name": "per-user"}).to_string(), 400, "rule must be"),
        (json!({"name": 5, "rule": null}).to_string(), 400, "name must be"),
        (json!({"name": "per-user", "rule": null, "rules": []}).to_string(), 400, "rules"),
        (json!({"name": null, "rule": null}).to_string(), 422, "both null"),
        (json!({"name": "nobody", "rule": per_user(1)}).to_string(), 404, "nobody"),
        (json!({"name": "nobody", "rule": null}).to_string(), 404, "nobody"),
        (json!({"name": null, "rule": per_user(1)}).to_string(), 409, "per-user"),
        (json!({"name": "everybody", "rule": per_user(1)}).to_string(), 409, "per-user"),
        (json!({"name": "per-user", "rule": wrong}).to_string(), 422, "10/parsec"),
        (json!({"name": "per-user", "rule": reserved}).to_string(), 422, "preview"),
        (json!({"name": null, "rule": twin}).to_string(), 422, "same domain, key"),
    ];
    for (body, status, word) in table {
        let reply = admin.post("/admin/v1/rules/preview", &body);
        assert_eq!(reply.status, status, "{body}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert!(reply.json()["detail"].as_str().unwrap().contains(word), "{body}: {reply:?}");
    }
}

#[test]
fn buckets_are_inspected_reset_and_refunded_by_those_who_have_the_token() {
    let file = rule_file(RULES);
    let server = Server::with(&["--rules", file.to_str().unwrap(), "--admin-token", "sesame-open-sesame"]);
    let (mut client, mut admin) = (server.client(), server.admin());
    let user = r#"{"attributes": {"user": "42"}, "cost": 4}"#;
    client.ok("/v1/check", user);
    let mut call = |path: &str, token: &str| {
        admin.send_with("POST", path, &[("authorization", &format!("Bearer {token}"))], user).expect("an answer")
    };
    for path in ["/admin/v1/inspect", "/admin/v1/reset", "/admin/v1/refund", "/admin/v1/rules/preview"] {
        assert_eq!(call(path, "guess").status, 401, "{path}");
    }
    let remaining = |body: &Value| body["matches"][0]["tiers"][0]["remaining"].clone();
    let mut inspect = || remaining(&call("/admin/v1/inspect", "sesame-open-sesame").json());
    assert_eq!((inspect(), inspect()), (json!(6), json!(6)), "nothing is charged");
    let refunded = call("/admin/v1/refund", "sesame-open-sesame");
    assert_eq!((refunded.status, &refunded.json()["remaining"]), (200, &json!(10)));
    client.ok("/v1/check", user);
    let reset = call("/admin/v1/reset", "sesame-open-sesame");
    assert_eq!((reset.status, &reset.json()["remaining"]), (200, &json!(10)));
}
