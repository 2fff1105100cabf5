//! Several nodes that share their rules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Postgres, Redis};
use tokio::time::Instant;

use crate::server_process::{Server, SetOnDrop, rule_file, run, text};

const USER: &str = r#"{"attributes": {"user": "42"}}"#;

/// Two rules that always change together: a request that sees one old and one
/// new was decided by half a rule set.
fn rules(number: u64) -> String {
    let burst = 1_000_000 + number;
    json!({"rules": [
        {"name": "first", "key": "user:{user}", "limits": [format!("1000000/s burst {burst}")]},
        {"name": "second", "key": "all", "limits": [format!("1000000/s burst {burst}")]},
    ]})
    .to_string()
}

fn contract(postgres: &Postgres, redis: &Redis) {
    let (database, store) = (postgres.create_database(), redis.url());
    let node = || Server::with(&["--database", &database, "--store", &store, "--store-deadline", "2s"]);
    let nodes = [node(), node()];
    let import = |number: u64| {
        let reply =
            nodes[0].admin().send("POST", "/admin/v1/rules/import?replace=true", &rules(number)).expect("an answer");
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    import(0);
    let (start, mut other) = (Instant::now(), nodes[1].client());
    while other.ok("/v1/peek", USER)["limit"] != 1_000_000 {
        assert!(start.elapsed() < Duration::from_secs(10), "the first edit is not active after 10 s");
    }
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (nodes, is_over, answered) = (&nodes, &is_over, &answered);
            scope.spawn(move || {
                let mut client = nodes[client % 2].client();
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.post("/v1/check", USER);
                    assert_eq!(reply.status, 200, "{reply:?}");
                    let body = reply.json();
                    let limits: Vec<u64> =
                        body["tiers"].as_array().unwrap().iter().map(|tier| tier["limit"].as_u64().unwrap()).collect();
                    assert!(
                        limits.is_empty() || limits.len() >= 2 && limits[0] == limits[1],
                        "half a rule set: {body}"
                    );
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also if an assertion fails: the clients would go on for ever.
        let _ending = SetOnDrop(&is_over);
        for number in 1..=50 {
            import(number);
            let (start, mut other) = (Instant::now(), nodes[1].client());
            while other.ok("/v1/peek", USER)["limit"] != 1_000_000 + number {
                assert!(start.elapsed() < Duration::from_secs(1), "edit {number} is not active after 1 s");
                std::thread::sleep(Duration::from_millis(2));
            }
            slowest = slowest.max(start.elapsed());
        }
    });
    println!("50 edits under {} checks: the slowest was active after {slowest:?}", answered.into_inner());
}

#[test]
fn an_edit_on_one_node_is_in_force_on_the_other_within_a_second_fifty_times() {
    contract(&Postgres::start(), &Redis::start());
}

/// The tables of a rulebook.
const TABLES: [&str; 4] = ["checkdam_rulebook", "rate_limit_rule", "rate_limit_override", "rate_limit_ban"];

/// Bans a user, and waits until the ban is active on that node.
fn ban(node: &Server, user: &str) {
    let reply = node.admin().send("PUT", "/admin/v1/bans", &json!({"subject": format!("user:{user}")}).to_string());
    let status = reply.expect("an answer").status;
    assert!([200, 202].contains(&status), "{user}: {status}");
    if status == 202 {
        testkit::wait_until("the ban is active", Duration::from_secs(20), || is_banned(node, user));
    }
}

fn is_banned(node: &Server, user: &str) -> bool {
    node.client().post("/v1/check", &json!({"attributes": {"user": user}}).to_string()).status == 403
}

/// PostgreSQL fails over to a replica without the last edits: its tables are as they were, and their numbers too.
fn lose_edits(postgres: &Postgres, database: &str) {
    let back =
        TABLES.iter().map(|table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM old_{table};"));
    postgres.sql(database, &format!("SET session_replication_role = replica; {}", back.collect::<String>()));
}

#[test]
fn a_ban_is_enforced_by_every_node_after_the_database_lost_edits() {
    let postgres = Postgres::builder().fsync(false).start();
    let database = postgres.create_database();
    let node = || Server::with(&["--database", &database]);
    let nodes = [node(), node()];
    ban(&nodes[0], "kept");
    let copies: String = TABLES.iter().map(|table| format!("CREATE TABLE old_{table} AS TABLE {table};")).collect();
    postgres.sql(&database, &copies);
    for user in ["lost-1", "lost-2", "lost-3"] {
        ban(&nodes[0], user);
    }
    let versions = |node: &Server| node.admin().get("/admin/v1/status").json()["rules"]["version"].as_u64().unwrap();
    let (before, start) = (versions(&nodes[0]), Instant::now());
    while versions(&nodes[1]) < before && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    lose_edits(&postgres, &database);
    // With the third edit the numbers are as before; the rules are not.
    for user in ["new-1", "new-2", "new-3", "new-4"] {
        ban(&nodes[0], user);
        assert!(is_banned(&nodes[0], user), "{user}: the node that acknowledged the ban lets it pass");
        let start = Instant::now();
        while !is_banned(&nodes[1], user) {
            assert!(start.elapsed() < Duration::from_secs(10), "{user}: the other node lets it pass");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(versions(&nodes[0]), before + 1);
    let restarted = node();
    let listed = |node: &Server| node.admin().get("/admin/v1/bans").json();
    for node in nodes.iter().chain([&restarted]) {
        assert_eq!(listed(node), listed(&restarted), "a restarted node enforces something else");
        assert_eq!((is_banned(node, "lost-2"), is_banned(node, "kept")), (false, true));
    }
    let warnings = |node: &Server| node.admin().get("/admin/v1/status").json()["warnings"].to_string();
    for node in &nodes {
        testkit::wait_until("the lost edits are reported", Duration::from_secs(10), || {
            let warnings = warnings(node);
            warnings.contains("\"lost_edits\"") && warnings.contains(&before.to_string())
        });
        assert!(node.log().contains("lost edits"), "{}", node.log());
    }
    assert_eq!(warnings(&restarted), "[]");
    an_edit_that_cannot_be_active_says_so(&postgres, &database, &nodes[0]);
}

/// Two rows that were broken by hand: who removes one has stored an edit, and the other is still in the way.
fn an_edit_that_cannot_be_active_says_so(postgres: &Postgres, database: &str, node: &Server) {
    let broken =
        "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('bad-1', '{', 1), ('bad-2', '{{', 1)";
    postgres.sql(database, broken);
    let reply = node.admin().send("DELETE", "/admin/v1/rules/bad-1", "").expect("an answer");
    assert_eq!(reply.status, 202, "{reply:?}");
    let pending = reply.json()["pending"].as_str().unwrap_or_default().to_owned();
    assert!(pending.contains("bad-2") && pending.contains("not active"), "{pending}");
    let refused = node.admin().send("PUT", "/admin/v1/bans", r#"{"subject": "user:never"}"#).expect("an answer");
    assert_eq!(refused.status, 422, "nothing is acknowledged while the rulebook cannot be loaded");
    let (start, detail) = (Instant::now(), || node.client().get("/readyz").json()["detail"].to_string());
    while !detail().contains("newest") {
        assert!(start.elapsed() < Duration::from_secs(10), "readiness says nothing of it");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(node.admin().send("DELETE", "/admin/v1/rules/bad-2", "").expect("an answer").status, 204);
    ban(node, "at-last");
    assert!(is_banned(node, "at-last"));
}

/// A node without the secret, and one with other rules: each of them multiplies a limit, and by itself each looks well.
#[test]
fn nodes_whose_settings_differ_say_so() {
    let redis = Redis::start();
    let rules = |limit: u32| rule_file(&format!("rules: [{{name: a, key: 'user:{{user}}', limits: [{limit}/s]}}]"));
    let (ours, others, store) = (rules(10), rules(20), redis.url());
    let secret = ["--key-secret", "a secret that is long enough"];
    let node = |file: &std::path::Path, more: &[&str]| {
        Server::with(&[&["--rules", file.to_str().unwrap(), "--store", &store], more].concat())
    };
    let first = node(&ours, &secret);
    // A node that has just started may not hear the first question.
    let doctor_says = |words: &[&str]| {
        testkit::wait_until(&format!("doctor says {words:?}"), Duration::from_secs(20), || {
            let said = text(&run(&["doctor", "--store", &store]).stdout);
            words.iter().all(|words| said.contains(words))
        });
    };
    doctor_says(&["1 node answers"]);
    assert_eq!(first.admin().get("/admin/v1/status").json()["warnings"], json!([]));
    let mut nodes = [first, node(&ours, &[])];
    for node in &mut nodes {
        node.wait_for_log("nodes that share this Redis have different settings");
        let warnings = node.admin().get("/admin/v1/status").json()["warnings"].clone();
        assert_eq!(warnings[0]["topic"], "key_secret", "{warnings}");
        assert!(warnings[0]["detail"].as_str().unwrap().contains("1 node has no secret"), "{warnings}");
        assert!(!node.log().contains("long enough"));
    }
    let _third = node(&others, &secret);
    doctor_says(&["1 node has no secret", "1 node has other rules", "--nodes is 1, and 2 nodes are seen"]);
}
