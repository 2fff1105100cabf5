//! Denials in the log.

use crate::server_process::{Server, rule_file};

#[test]
fn some_denials_are_logged_and_all_are_accounted_for() {
    let path =
        rule_file("rules: [{ name: few, key: 'user:{user}', limits: ['2/h'] }]\nbans: [{ subject: 'user:eve' }]");
    let rules = path.to_str().unwrap();
    let mut server = Server::with(&["--rules", rules, "--log-denials", "2"]);
    let mut client = server.client();
    for _ in 0..12 {
        client.post("/v1/check", r#"{"attributes": {"user": "a \"b\"\n\u001b[31mINFO forged"}}"#);
    }
    client.post("/v1/check", r#"{"attributes": {"user": "eve"}}"#);
    server.wait_for_log("not logged individually");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("denied rule=")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(r#"rule="few" subject="user:a \"b\"\n\u{1b}[31mINFO forged" limit=2/h"#), "{line}");
    assert!(log.contains(r#"rule="ban" subject="user:eve""#), "{log}");
    let logged = log.lines().filter(|line| line.contains(r#"denied rule="few""#)).count();
    let left_out = log.lines().filter(|line| line.contains(r#"rule="few""#));
    let left_out: usize = left_out.filter_map(|line| line.split("left_out=").nth(1)?.parse::<usize>().ok()).sum();
    assert_eq!(logged + left_out, 10, "{log}");
}
