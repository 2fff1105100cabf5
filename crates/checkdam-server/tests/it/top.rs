//! Who asks most and who is limited most.

use serde_json::{Value, json};

use crate::client::Client;
use crate::process::Server;

const RULES: &str = r#"{"rules": [
    {"name": "free", "key": "user:{user}", "limits": ["1/h burst 3", "1/d burst 100"]},
    {"name": "all", "key": "all", "limits": ["1000000/s"]},
    {"name": "tried", "key": "user:{user}", "limits": ["1/h"], "mode": "shadow"}],
  "bans": [{"subject": "user:bad"}]}"#;

fn ask(client: &mut Client, user: &str, times: usize) {
    for _ in 0..times {
        let reply = client.post("/v1/check", &json!({"attributes": {"user": user}}).to_string());
        assert!([200, 403, 429].contains(&reply.status), "{reply:?}");
    }
}

/// Rule, subject and count of each in the list.
fn told(answer: &Value) -> Vec<(&str, &str, u64)> {
    let subjects = answer["subjects"].as_array().unwrap().iter();
    let told = |entry: &Value| entry["count"].as_u64().unwrap();
    subjects.map(|entry| (entry["rule"].as_str().unwrap(), entry["subject"].as_str().unwrap(), told(entry))).collect()
}

fn top(server: &Server, query: &str) -> Value {
    let reply = server.admin().get(&format!("/admin/v1/top{query}"));
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    reply.json()
}

#[test]
fn subjects_are_counted_by_rule_and_by_what_became_of_them() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for (user, times) in [("loud", 23), ("calm", 5), ("quiet", 1), ("bad", 7)] {
        ask(&mut client, user, times);
    }
    let limited = top(&server, "");
    assert_eq!(told(&limited), [("free", "user:loud", 20), ("ban", "user:bad", 7), ("free", "user:calm", 2)]);
    assert_eq!(limited["subjects"][0]["too_high_by"], 0);
    let head = ["kind", "window", "scope", "nodes", "total", "missing_at_most"].map(|name| limited[name].clone());
    assert_eq!(json!(head), json!(["limited", "minute", "node", 1, 29, 0]));
    for window in ["minute", "hour"] {
        let allowed = top(&server, &format!("?kind=allowed&window={window}"));
        let expected =
            [("all", "all", 7), ("free", "user:calm", 3), ("free", "user:loud", 3), ("free", "user:quiet", 1)];
        assert_eq!(told(&allowed), expected, "{window}");
        assert_eq!(allowed["total"], 14, "shadow does not count");
    }
    let first = top(&server, "?limit=1");
    assert_eq!(told(&first), [("free", "user:loud", 20)]);
    assert_eq!(first["missing_at_most"], 7, "what is cut off is told");
    assert_eq!(told(&top(&server, "?rule=ban")), [("ban", "user:bad", 7)]);
    assert!(told(&top(&server, "?rule=all")).is_empty());
}

#[test]
fn what_cannot_be_asked_is_said() {
    let server = Server::with_rules(RULES);
    let table = [
        ("/admin/v1/top?kind=denied", 422, "use limited or allowed"),
        ("/admin/v1/top?window=day", 422, "use minute or hour"),
        ("/admin/v1/top?limit=101", 422, "use 1 to 100"),
        ("/admin/v1/top?rule=", 422, "rule is empty"),
        ("/admin/v1/top?rule=nobody", 404, "nobody"),
        ("/admin/v1/top?who=me", 422, "who"),
        ("/admin/v1/traffic?window=hour", 422, "use minute or quarter or day"),
        ("/admin/v1/traffic?rule=nobody", 404, "nobody"),
    ];
    for (path, status, reason) in table {
        let reply = server.admin().get(path);
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(reason), "{path}: {reply:?}");
    }
}

#[test]
fn a_node_alone_sees_itself_and_says_why() {
    let server = Server::with_rules(RULES);
    let answer = server.admin().get("/admin/v1/nodes").json();
    assert_eq!((&answer["shared"], answer["nodes"].as_array().unwrap().len()), (&json!(false), 1), "{answer}");
    assert!(answer["hint"].as_str().unwrap().contains("--store redis://"), "{answer}");
    let node = &answer["nodes"][0];
    let port = server.address().rsplit(':').next().unwrap();
    assert!(node["node"].as_str().unwrap().ends_with(&format!(":{port}")), "{answer}");
    assert_eq!(
        json!([node["is_self"], node["store"], node["ready"], node["rules_version"]]),
        json!([true, "memory", true, 0])
    );
}
