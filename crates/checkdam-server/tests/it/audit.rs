//! The audit log of violations.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::Postgres;
use tokio::time::Instant;

use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, checkdam, folder, rule_file, text};

const RULES: &str = "rules:\n  - { name: per-user, key: \"user:{user}\", limits: [\"1/h burst 2\"] }\n";

fn import(server: &Server, rules: &str) {
    let reply = server.admin().send("POST", "/admin/v1/rules/import?replace=true", rules).unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
}

fn audit(server: &Server) -> Value {
    server.admin().get("/admin/v1/status").json()["audit"].clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Waits until nothing waits to be written.
fn settled(server: &Server) -> Value {
    let start = Instant::now();
    loop {
        let counts = audit(server);
        if number(&counts, "waiting") == 0 {
            return counts;
        }
        assert!(start.elapsed() < PATIENCE, "{counts}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn violations(admin: &mut Client, query: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut before = String::new();
    loop {
        let reply = admin.get(&format!("/admin/v1/violations?limit=1000{query}{before}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        let page = reply.json();
        all.extend(page["violations"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_i64() else { return all };
        before = format!("&before={next}");
    }
}

/// What clients choose takes little room, and no secret is written down.
#[test]
fn recorded_values_are_cut_and_secrets_hashed() {
    let rules = "rules:\n  - { name: per-key, key: \"key:{api_key}:{user}\", limits: [1/h] }\n\
                 bans:\n  - { subject: \"token:stolen-token\" }\n";
    let path = rule_file(rules);
    let secret = ["--rules", path.to_str().unwrap(), "--log-denials", "10"];
    let mut server = Server::with(&secret);
    let long = format!("\u{202e}{}", "x".repeat(500));
    let names = ["user", "ip", "endpoint", "method", "tenant"];
    let mut attributes: serde_json::Map<String, Value> =
        names.map(|name| (name.to_owned(), long.clone().into())).into_iter().collect();
    attributes.insert("api_key".to_owned(), "sk_live_4242".into());
    let mut client = server.client();
    for status in [200, 429] {
        assert_eq!(client.post("/v1/check", &json!({ "attributes": attributes }).to_string()).status, status);
    }
    assert_eq!(client.post("/v1/check", r#"{"attributes": {"token": "stolen-token"}}"#).status, 403);
    settled(&server);
    let mut admin = server.admin();
    let all = violations(&mut admin, "");
    assert_eq!(all.len(), 2);
    for one in &all {
        let written = one.to_string();
        assert!(written.len() < 2_000, "{} bytes: {written}", written.len());
        assert!(!written.contains("sk_live_4242") && !written.contains("stolen-token"), "{written}");
    }
    let one = &all[1];
    let hash = checkdam::hashed("sk_live_4242", "");
    assert!(one["subject"].as_str().unwrap().starts_with(&format!("key:{hash}:")), "{one}");
    assert!(names.iter().all(|name| one.to_string().contains(name)) && one["user_id"].as_str().unwrap().len() <= 128);
    let found = violations(&mut admin, &format!("&user={}", "%E2%80%AE".to_owned() + &"x".repeat(500)));
    assert_eq!(found.len(), 1, "what is asked for is cut alike");
    server.wait_for_log(&hash);
    assert!(!server.log().contains("sk_live_4242") && !server.log().contains("stolen-token"), "{}", server.log());
    let listed = checkdam().args(["violations", "--server", &format!("http://{}", server.admin_address())]).output();
    let listed = text(&listed.unwrap().stdout);
    assert!(listed.contains("per-key") && !listed.contains('\u{202e}'), "{listed}");
}

#[test]
fn denials_are_found_by_user_address_rule_and_time() {
    let server = Server::start();
    import(&server, RULES);
    let mut client = server.client();
    for (user, times) in [("42", 5), ("43", 3), ("44", 1)] {
        let body = json!({"attributes": {
            "user": user, "ip": format!("203.0.113.{user}"), "endpoint": "/search", "method": "GET", "tenant": "acme"
        }, "cost": 1});
        for _ in 0..times {
            client.post("/v1/check", &body.to_string());
        }
    }
    let counts = settled(&server);
    assert_eq!((number(&counts, "denied"), number(&counts, "written")), (4, 4), "{counts}");
    assert_eq!(counts["denials_by_rule"], json!([{"rule": "per-user", "denied": 4}]));
    let mut admin = server.admin();
    let all = violations(&mut admin, "");
    assert_eq!(all.len(), 4);
    let ids: Vec<i64> = all.iter().map(|one| one["id"].as_i64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "newest first: {ids:?}");
    let one = &violations(&mut admin, "&user=43")[0];
    let told = ["user_id", "ip_address", "endpoint", "method", "tenant", "rule", "subject", "limit", "decided_by"];
    let told: Vec<&str> = told.iter().map(|name| one[name].as_str().unwrap()).collect();
    let expected = ["43", "203.0.113.43", "/search", "GET", "acme", "per-user", "user:43", "1/h burst 2", "memory"];
    assert_eq!(told, expected, "{one}");
    assert!(one["retry_after_ms"].as_i64().unwrap() > 3_000_000 && one["rule_id"].is_i64(), "{one}");
    for (query, count) in [
        ("&user=42", 3),
        ("&ip=203.0.113.43", 1),
        ("&rule=per-user", 4),
        ("&rule=other", 0),
        ("&subject=user:42", 3),
        ("&user=42&ip=203.0.113.43", 0),
        ("&since=2020-01-01T00:00:00Z", 4),
        ("&until=2020-01-01T00:00:00Z", 0),
    ] {
        assert_eq!(violations(&mut admin, query).len(), count, "{query}");
    }
}

#[test]
fn what_is_not_written_is_counted() {
    let data = folder();
    let arguments = ["--data-dir", data.to_str().unwrap(), "--audit-rate", "50", "--audit-queue", "200"];
    let mut server = Server::with(&arguments);
    import(&server, RULES);
    let denied: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|user| {
                let mut client = server.client();
                scope.spawn(move || {
                    let body = json!({"attributes": {"user": user.to_string()}}).to_string();
                    (0..1_000).map(|_| u64::from(client.post("/v1/check", &body).status == 429)).sum::<u64>()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(denied, 4 * 998);
    let counts = settled(&server);
    assert_eq!(number(&counts, "denied"), denied, "{counts}");
    let parts = ["written", "sampled_out", "dropped"].map(|name| number(&counts, name));
    assert_eq!(parts.iter().sum::<u64>(), denied, "{counts}");
    assert!(parts[0] >= 50 && parts[1] > 0, "{counts}");
    assert_eq!(violations(&mut server.admin(), "").len() as u64, parts[0], "each that was written is there");
    // A shutdown writes what waits.
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..20 {
        assert_eq!(server.client().post("/v1/check", r#"{"attributes": {"user": "0"}}"#).status, 429);
    }
    let last = number(&audit(&server), "denied");
    server.signal("TERM");
    assert!(server.wait().success());
    let server = Server::with(&arguments);
    let kept = violations(&mut server.admin(), "").len() as u64;
    assert_eq!((kept, last), (parts[0] + 20, denied + 20), "flushed at the end");
}

#[test]
fn old_violations_are_forgotten() {
    let data = folder();
    let path = ["--data-dir", data.to_str().unwrap()];
    let server = Server::with(&path);
    import(&server, RULES);
    let mut client = server.client();
    for _ in 0..12 {
        client.post("/v1/check", r#"{"attributes": {"user": "1"}}"#);
    }
    assert_eq!(number(&settled(&server), "written"), 10);
    drop(server);
    let mut server = Server::with(&[&path[..], &["--audit-rows", "4"]].concat());
    server.wait_for_log("deleted old violations");
    assert_eq!(violations(&mut server.admin(), "").len(), 4);
}

/// The database stops for half a minute: decisions go on, edits say that they
/// cannot be made, violations wait and are then counted, and everything
/// resumes by itself.
#[test]
fn postgres_stops_for_half_a_minute() {
    let postgres = Postgres::start();
    let url = postgres.create_database();
    let server = Server::with(&["--database", &url, "--audit-rate", "1000000", "--audit-queue", "1000"]);
    import(&server, RULES);
    let (mut admin, mut client) = (server.admin(), server.client());
    let body = r#"{"attributes": {"user": "42"}}"#;
    for _ in 0..4 {
        client.post("/v1/check", body);
    }
    assert_eq!(number(&settled(&server), "written"), 2);

    postgres.stop();
    let (start, mut denied, mut edits) = (Instant::now(), 2, 0);
    while start.elapsed() < Duration::from_secs(30) {
        for _ in 0..100 {
            assert_eq!(client.post("/v1/check", body).status, 429);
            denied += 1;
        }
        let edit = admin.send("POST", "/admin/v1/rules", r#"{"name": "n", "key": "n", "limits": ["1/s"]}"#).unwrap();
        assert_eq!(edit.status, 503, "{edit:?}");
        assert!(edit.header("retry-after").is_some() && edit.body.contains("database"), "{edit:?}");
        edits += 1;
    }
    let status = admin.get("/admin/v1/status").json();
    assert_eq!(status["rules"]["connected"], false, "{status}");
    let counts = &status["audit"];
    assert_eq!(number(counts, "denied"), denied, "{counts}");
    let waited = number(counts, "waiting");
    assert!((1..=2_000).contains(&waited), "the queue is bounded: {counts}");
    println!("{denied} denials, {edits} edits refused, {waited} waiting, {} dropped", number(counts, "dropped"));

    postgres.start_again();
    let start = Instant::now();
    while admin.send("POST", "/admin/v1/rules", r#"{"name": "n", "key": "n", "limits": ["1/s"]}"#).unwrap().status
        != 201
    {
        assert!(start.elapsed() < PATIENCE, "{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = settled(&server);
    assert_eq!(number(&counts, "written") + number(&counts, "dropped"), denied, "{counts}");
    assert_eq!(violations(&mut admin, "").len() as u64, number(&counts, "written"));
    assert_eq!(admin.get("/admin/v1/status").json()["rules"]["connected"], true);
}
