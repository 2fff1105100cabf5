//! Several nodes that share their rules.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Postgres, Redis};
use tokio::time::Instant;

use crate::process::Server;

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
        assert!(start.elapsed() < Duration::from_secs(10), "the first edit is not in force after 10 s");
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
        for number in 1..=50 {
            import(number);
            let (start, mut other) = (Instant::now(), nodes[1].client());
            while other.ok("/v1/peek", USER)["limit"] != 1_000_000 + number {
                assert!(start.elapsed() < Duration::from_secs(1), "edit {number} is not in force after 1 s");
                std::thread::sleep(Duration::from_millis(2));
            }
            slowest = slowest.max(start.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("50 edits under {} checks: the slowest was in force after {slowest:?}", answered.into_inner());
}

#[test]
fn an_edit_on_one_node_is_in_force_on_the_other_within_a_second_fifty_times() {
    contract(&Postgres::start(), &Redis::start());
}
