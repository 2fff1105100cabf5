//! envoyproxy/ratelimit's own rule files: served, checked, imported.

use std::time::Duration;

use tokio::time::Instant;

use crate::server_process::{Server, folder, rule_file, run, text};

const TREE: &str = "\
domain: edge
descriptors:
  - key: database
    value: users
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: database
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: path
    shadow_mode: true
    descriptors:
      - key: method
        rate_limit: { name: slow, unit: hour, requests_per_unit: 7 }
";

fn check(server: &Server, database: &str) -> (u16, Option<u64>) {
    let body = format!(r#"{{"domain": "edge", "attributes": {{"database": "{database}"}}}}"#);
    let reply = server.client().post("/v1/check", &body);
    (reply.status, reply.json()["limit"].as_u64())
}

fn wait_for_limit(server: &Server, database: &str, limit: u64) {
    let start = Instant::now();
    while check(server, database).1 != Some(limit) {
        assert!(start.elapsed() < Duration::from_secs(3), "not active after 3 s:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_folder_is_served_beside_our_own_rules_and_followed() {
    let rules = folder();
    std::fs::write(rules.join("edge.yaml"), TREE).unwrap();
    std::fs::write(rules.join("ours.yaml"), "rules: [{name: all, domain: edge, key: all, limits: [4/m]}]").unwrap();
    std::fs::write(rules.join(".hidden.yaml"), "nonsense").unwrap();
    let mut server = Server::with(&["--rules", rules.to_str().unwrap()]);
    let statuses: Vec<u16> = (0..3).map(|_| check(&server, "users").0).collect();
    assert_eq!(statuses, [200, 200, 429]);
    // What was denied took nothing from the rule beside it.
    assert_eq!([check(&server, "x").0, check(&server, "y").0, check(&server, "z").0], [200, 200, 429]);
    let listed = server.admin().get("/admin/v1/rules").json();
    let names: Vec<&str> =
        listed["rules"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all", "edge.database_users", "edge.database", "edge.path.method"]);

    std::fs::write(rules.join("other.yaml"), TREE).unwrap();
    server.wait_for_log("there are two trees of that domain");
    std::fs::write(rules.join("other.yaml"), TREE.replace("edge", "other")).unwrap();
    server.wait_for_log("rules reloaded");
    std::fs::write(rules.join("ours.yaml"), "rules: []").unwrap();
    std::fs::write(rules.join("edge.yaml"), TREE.replace("requests_per_unit: 3", "requests_per_unit: 30")).unwrap();
    wait_for_limit(&server, "new", 30);
}

#[test]
fn a_whole_file_is_made_exact_by_a_setting() {
    let path = rule_file(TREE);
    let server = Server::with(&["--rules", path.to_str().unwrap(), "--default-algorithm", "token_bucket"]);
    let reply = server.client().post("/v1/explain", r#"{"domain": "edge", "attributes": {"database": "users"}}"#);
    assert_eq!(reply.json()["matches"][0]["algorithm"], "token_bucket");
    assert_eq!(reply.json()["matches"][0]["rule"], "edge.database_users");
    let output = run(&["serve", "--default-algorithm", "dice"]);
    assert!(text(&output.stderr).contains("token_bucket, leaky_bucket"), "{output:?}");
}

#[test]
fn rules_check_judges_and_shows_descriptors() {
    let path = rule_file(&TREE.replace("shadow_mode: true", "shadow_mode: true\n    unit: day"));
    let output = run(&["rules", "check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (said, shown) = (text(&output.stderr), text(&output.stdout));
    assert!(said.contains("line 10: \"unit\" means nothing where it stands"), "{said}");
    assert!(shown.contains("3 rules ok") && shown.contains("edge.path.method"), "{shown}");
    let output = run(&["rules", "check", folder().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the folder holds no rule file"), "{output:?}");
}

#[test]
fn an_import_turns_descriptors_into_rules_or_says_what_it_cannot() {
    let server = Server::start();
    let admin = format!("http://{}", server.admin_address());
    let file = rule_file(TREE);
    let output = run(&["rules", "import", file.to_str().unwrap(), "--server", &admin]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("added 3"), "{output:?}");
    let body = r#"{"domain": "edge", "attributes": {"database": "users", "descriptor": "database"}}"#;
    let statuses: Vec<u16> = (0..3).map(|_| server.client().post("/v1/check", body).status).collect();
    assert_eq!(statuses, [200, 200, 429]);

    let banned = TREE.replace("requests_per_unit: 2", "requests_per_unit: 0").replace("edge", "more");
    let file = rule_file(&banned);
    let import = |more: &[&str]| {
        let arguments = ["rules", "import", file.to_str().unwrap(), "--server", &admin];
        run(&[&arguments, more].concat())
    };
    let output = import(&[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("more.database_users: it lets nothing pass"), "{output:?}");
    let output = import(&["--partly"]);
    assert!(text(&output.stdout).contains("added 2") && text(&output.stderr).contains("skipped"), "{output:?}");
    let reply = server.admin().post("/admin/v1/rules/import", &banned.replace("more", "third"));
    assert_eq!(reply.status, 422);
    assert!(reply.json()["detail"].as_str().unwrap().contains("third.database_users"), "{reply:?}");
}
