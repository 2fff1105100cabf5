//! Rules that change while the server runs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::server_process::{Server, folder, rule_file};

const USER: &str = r#"{"attributes": {"user": "42"}}"#;

fn rules(burst: u64) -> String {
    format!("rules: [{{name: per-user, key: \"user:{{user}}\", limits: [\"1/h burst {burst}\"]}}]\n")
}

/// As careful editors and deployment tools write: beside it, then over it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

fn wait_for_limit(server: &Server, limit: u64) -> Duration {
    let (mut client, start) = (server.client(), Instant::now());
    while client.ok("/v1/peek", USER)["limit"] != limit {
        assert!(start.elapsed() < Duration::from_secs(2), "the edit is not active after 2 s:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

#[test]
fn edits_are_in_force_within_two_seconds_under_load_and_fail_no_request() {
    let path = rule_file(&rules(10));
    let server = Server::with(&["--rules", path.to_str().unwrap()]);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.post("/v1/check", USER);
                    assert!([200, 429].contains(&reply.status), "{reply:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for limit in [20, 30, 40] {
            replace(&path, &rules(limit));
            wait_for_limit(&server, limit);
        }
        std::fs::write(&path, rules(50)).unwrap();
        wait_for_limit(&server, 50);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(answered.into_inner() > 100);
    assert_eq!(server.log().matches("rules reloaded").count(), 4, "{}", server.log());
}

#[cfg(unix)]
#[test]
fn a_swapped_link_is_followed() {
    let folder = folder();
    let link = folder.join("rules.yaml");
    for burst in [1_u64, 2] {
        std::fs::write(folder.join(format!("{burst}.yaml")), rules(burst)).unwrap();
    }
    std::os::unix::fs::symlink("1.yaml", &link).unwrap();
    let server = Server::with(&["--rules", link.to_str().unwrap()]);
    assert_eq!(server.client().ok("/v1/peek", USER)["limit"], 1);
    std::os::unix::fs::symlink("2.yaml", folder.join("next")).unwrap();
    std::fs::rename(folder.join("next"), &link).unwrap();
    wait_for_limit(&server, 2);
}

#[test]
fn what_is_owed_survives_a_reload() {
    let path = rule_file(&rules(10));
    let server = Server::with(&["--rules", path.to_str().unwrap()]);
    let remaining = || server.client().ok("/v1/peek", USER)["remaining"].clone();
    server.client().ok("/v1/check", r#"{"attributes": {"user": "42"}, "cost": 4}"#);
    // A bucket of another burst is new, the old one stays as it is.
    replace(&path, &rules(20));
    wait_for_limit(&server, 20);
    assert_eq!(remaining(), 20);
    replace(&path, &rules(10));
    wait_for_limit(&server, 10);
    assert_eq!(remaining(), 6);
    // The count of a window is valid for any limit.
    let window =
        |limit: u64| rules(0).replace("1/h burst 0", &format!("{limit}/d")).replace("}]", ", algorithm: sliding_log}]");
    for (limit, left) in [(15, 15), (30, 26), (5, 1)] {
        replace(&path, &window(limit));
        wait_for_limit(&server, limit);
        assert_eq!(remaining(), left, "{limit}/d");
        if limit == 15 {
            server.client().ok("/v1/check", r#"{"attributes": {"user": "42"}, "cost": 4}"#);
        }
    }
}

#[test]
fn an_invalid_edit_is_refused_whole_and_says_where() {
    let path = rule_file(&rules(10));
    let mut server = Server::with(&["--rules", path.to_str().unwrap()]);
    let second = "\n  - name: broken\n    key: \"user:{user}\"\n    limits: [\"ten/s\"]\n";
    replace(&path, &format!("rules:\n  - {{name: first, key: k, limits: [1/s]}}{second}"));
    server.wait_for_log("the active rules stay");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("the active rules stay")).unwrap();
    for part in ["ERROR", path.to_str().unwrap(), "line=5", "broken", "ten/s"] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
    assert_eq!(server.client().ok("/v1/peek", USER)["limit"], 10, "the old rules stay");
    replace(&path, &rules(11));
    wait_for_limit(&server, 11);
}

#[test]
fn a_file_that_vanishes_leaves_the_rules_and_may_come_back() {
    let path = rule_file(&rules(10));
    let mut server = Server::with(&["--rules", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    server.wait_for_log("cannot be read");
    assert_eq!(server.client().ok("/v1/peek", USER)["limit"], 10);
    std::fs::write(&path, rules(12)).unwrap();
    wait_for_limit(&server, 12);
}

#[test]
fn a_hangup_reloads_and_never_ends_the_server() {
    let path = rule_file(&rules(10));
    let mut server = Server::with(&["--rules", path.to_str().unwrap()]);
    server.signal("HUP");
    server.wait_for_log("rules reloaded");
    replace(&path, &rules(13));
    server.signal("HUP");
    wait_for_limit(&server, 13);
    replace(&path, "rules: [{}]");
    server.signal("HUP");
    server.wait_for_log("the active rules stay");
    assert_eq!(server.client().ok("/v1/peek", USER)["limit"], 13);
    let mut server = Server::start();
    server.signal("HUP");
    server.wait_for_log("SIGHUP: reloading the rulebook");
    assert_eq!(server.client().get("/livez").status, 200);
}
