//! The commands: their output and exit codes.

use std::process::Output;

use crate::server_process::{Server, checkdam, rule_file, run, text};

/// Asks a server; the last of the arguments are the command's own.
fn ask(server: &Server, arguments: &[&str]) -> Output {
    checkdam().args(arguments).env("CHECKDAM_SERVER", server.url()).output().unwrap()
}

#[test]
fn check_exits_by_the_decision_and_prints_a_table() {
    let server = Server::with_rules("rules: [{name: per-user, key: \"user:{user}\", limits: [\"1/h burst 2\"]}]");
    let first = ask(&server, &["check", "user=42"]);
    assert_eq!(first.status.code(), Some(0));
    insta::assert_snapshot!(text(&first.stdout).replace("59m 59s", "1h 0m"), @r"
    allowed: 1 of 2 left, full again in 1h 0m

    RULE      SUBJECT  LIMIT        DECISION  LEFT    RETRY IN  FULL IN
    per-user  user:42  1/h burst 2  allowed   1 of 2  -         1h 0m
    ");
    assert!(first.stderr.is_empty(), "{first:?}");
    assert_eq!(ask(&server, &["check", "user=42"]).status.code(), Some(0));
    let denied = ask(&server, &["check", "user=42"]);
    assert_eq!(denied.status.code(), Some(1));
    assert!(text(&denied.stdout).starts_with("denied: rule \"per-user\" (1/h burst 2) is exceeded"), "{denied:?}");
    let never = ask(&server, &["check", "user=42", "--cost", "3"]);
    assert_eq!(never.status.code(), Some(1));
    assert!(text(&never.stdout).starts_with("denied: a cost of 3 can never pass rule \"per-user\""), "{never:?}");
    let free = ask(&server, &["check", "--domain", "elsewhere", "user=42"]);
    assert_eq!(free.status.code(), Some(0));
    assert_eq!(text(&free.stdout), "allowed: no enforced rule matches the request\n");
}

#[test]
fn record_charges_what_was_used_and_tells_the_debt() {
    let rules = "rules: [{name: per-user, key: \"user:{user}\", limits: [\"1/h burst 2 max_debt 3\"]}]";
    let server = Server::with_rules(rules);
    let first = ask(&server, &["record", "user=42"]);
    assert_eq!((first.status.code(), text(&first.stdout).lines().next()), (Some(0), Some("recorded 1: 1 of 2 left")));
    let beyond = ask(&server, &["record", "user=42", "--cost", "5"]);
    assert_eq!(beyond.status.code(), Some(0));
    insta::assert_snapshot!(text(&beyond.stdout).replace("2h 59m", "3h 0m").replace("4h 59m", "5h 0m"), @r"
    recorded 5: requests are denied for 3h 0m; 1 not charged because of max_debt

    RULE      SUBJECT  LIMIT                   DECISION  LEFT               RETRY IN  FULL IN
    per-user  user:42  1/h burst 2 max_debt 3  denied    0 of 2, 3 in debt  3h 0m     5h 0m
    ");
    let json = ask(&server, &["record", "user=42", "--cost", "5", "--json"]);
    assert!(text(&json.stdout).contains("\"cut_off\":5,"), "{json:?}");
    let free = ask(&server, &["record", "--domain", "elsewhere", "user=42"]);
    assert_eq!(text(&free.stdout), "no rule matches the request: nothing was charged\n");
    let denied = ask(&server, &["check", "user=42"]);
    assert!(denied.status.code() == Some(1) && text(&denied.stdout).contains("0 of 2, 3 in debt"), "{denied:?}");
}

#[test]
fn check_prints_the_servers_own_json_when_asked() {
    let server = Server::start();
    let output = ask(&server, &["check", "user=42", "plan=free", "--cost", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    assert!(printed.starts_with("{\"allowed\":true,\"limit\":50,\"remaining\":48,"), "{printed}");
    assert!(printed.ends_with("}\n"), "{printed}");
}

#[test]
fn what_the_server_refuses_is_wrong_usage() {
    let server = Server::start();
    let long = format!("user={}", "k".repeat(600));
    for (arguments, part) in [
        (["check", "user=1", "user=2"], "twice"),
        (["check", "plan=1", &long], "600"),
        (["explain", "a=1", &long], "600"),
    ] {
        let output = ask(&server, &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
    }
}

#[test]
fn an_unreachable_server_is_exit_2_with_a_hint() {
    for arguments in [["check", "user=42"], ["explain", "user=42"]] {
        let output = checkdam().args(arguments).args(["--server", "http://127.0.0.1:1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("http://127.0.0.1:1") && said.contains("checkdam serve"), "{said}");
    }
    for (server, part) in [
        ("https://127.0.0.1:1", "cannot reach a server"),
        ("ftp://127.0.0.1", "not reached by HTTP"),
        ("http://", "not a URL"),
        ("no such", "not a URL"),
    ] {
        let output = run(&["check", "user=42", "--server", server]);
        assert_eq!(output.status.code(), Some(2), "{server}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
    }
}

#[test]
fn wrong_usage_is_exit_2_and_says_what_is_wrong() {
    for (arguments, part) in [
        (vec!["check", "user"], "user=42"),
        (vec!["check", "=42"], "user=42"),
        (vec!["check", "user=42", "--cost", "0"], "0"),
        (vec!["check", "user=42", "--cost", "1.5"], "1.5"),
        (vec!["frobnicate"], "frobnicate"),
        (vec!["rules"], "check"),
        (vec!["rules", "check"], "PATH"),
        (vec!["completions", "csh"], "bash"),
        (vec![], "Usage"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {output:?}");
    }
}

#[test]
fn explain_needs_no_server_when_it_has_the_rules() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/starter-rules.yaml");
    let arguments = ["explain", "user=42", "plan=pro", "ip=203.0.113.9", "--rules", path];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    insta::assert_snapshot!(text(&output.stdout), @r#"
    3 of 5 rules match the request: it would be allowed

    user-pro: user:42 (enforce, token_bucket)
      The pro plan, per user
      because the request has "user", which the key "user:{user}" names
      because the condition that "plan" is pro holds: it is "pro"
      100/s burst 500: 500 of 500 left
      100000/h: 100000 of 100000 left

    per-ip: ip:203.0.113.9 (enforce, sliding_window)
      Every public address
      because the request has "ip", which the key "ip:{ip}" names
      because the condition that "ip" is none of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 127.0.0.0/8, ::1/128, fc00::/7, fe80::/10 holds: it is "203.0.113.9"
      600/m: 600 of 600 left

    global: global (enforce, token_bucket)
      Capacity of the machines behind the limiter
      because the rule matches every request
      50000/s burst 100000: 100000 of 100000 left

    Not matching:
      user-free: the condition that "plan" is free does not hold: it is "pro"
      search: the request lacks "endpoint", which the key "endpoint:{endpoint}" names; the condition that "endpoint" is /api/search does not hold: it is absent; the condition that "method" is one of GET, POST does not hold: it is absent
    "#);
    let output = run(&[&arguments[..], &["--cost", "501", "--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "it would be denied");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["allowed"], &answer["violated"]), (&false.into(), &"user-pro".into()));
}

/// It decides on no listener of its own but the admin API.
#[test]
fn explain_works_with_a_proxy_and_tells_of_attributes_that_nothing_has() {
    let rules = rule_file("rules: [{name: per-user, key: \"user:{user}\", limits: [\"5/h\"]}]");
    let (rules, token) = (rules.to_str().unwrap().to_owned(), "a-token-that-nobody-guesses");
    let arguments = ["--rules", &rules, "--upstream", "http://127.0.0.1:1", "--admin-token", token];
    let proxy = Server::proxy(&[&arguments[..], &["--header-attributes", "X-User=user"]].concat());
    assert_eq!(proxy.client().send_with("GET", "/", &[("x-usr", "7")], "").unwrap().status, 502);
    let file = crate::server_process::folder().join("token");
    std::fs::write(&file, token).unwrap();
    let explain = |attribute: &str, more: &[&str]| {
        let server = format!("http://{}", proxy.admin_address());
        let output = checkdam().args(["explain", attribute, "--server", &server]).args(more).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let with_token = ["--token-file", file.to_str().unwrap()];
    let (code, said) = explain("user=42", &with_token);
    assert!(code == Some(0) && said.contains("5 of 5 left"), "{code:?}: {said}");
    assert!(said.contains("no request of the last hour had \"user\""), "{said}");
    let (_, said) = explain("usr=42", &with_token);
    assert!(said.contains("no rule names an attribute of the request (usr): rules name user"), "{said}");
    let (code, said) = explain("user=42", &[]);
    assert!(code != Some(0) && said.contains("admin token"), "{code:?}: {said}");
}

#[test]
fn explain_asks_the_server_for_its_state() {
    let server = Server::start();
    ask(&server, &["check", "user=42", "plan=free", "--cost", "50"]);
    let output = ask(&server, &["explain", "user=42", "plan=free", "--cost", "50"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.starts_with("2 of 5 rules match the request: user-free would deny it\n"), "{said}");
    assert!(said.contains("of 50 left, denies it for"), "{said}");
}

#[test]
fn rules_check_prints_what_the_file_says() {
    let path = rule_file(
        r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["10/s burst 50", "5000/h"] }
  - { name: monthly, key: "user:{user}", limits: [100 per calendar month], algorithm: fixed_window, mode: shadow }
  - { name: idle, key: global, limits: [1/s], mode: off }
"#,
    );
    let path = path.to_str().unwrap();
    let output = run(&["rules", "check", path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    insta::assert_snapshot!(text(&output.stdout).replace(path, "rules.yaml"), @r"
    rules.yaml: 3 rules ok

    NAME      KEY          LIMITS                  ALGORITHM     MODE
    per-user  user:{user}  10/s burst 50, 5000/h   token_bucket  enforce
    monthly   user:{user}  100 per calendar month  fixed_window  shadow
    idle      global       1/s                     token_bucket  off
    ");
    let output = run(&["rules", "check", path, "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["rules"].as_array().unwrap().len(), 3);
    assert_eq!(answer["rules"][0]["limits"], serde_json::json!(["10/s burst 50", "5000/h"]));
}

#[test]
fn completions_and_help_are_data() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("checkdam"), "{shell}");
    }
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for command in ["serve", "check", "explain", "rules", "completions"] {
        assert!(text(&help.stdout).contains(command), "{command}");
        assert_eq!(run(&[command, "--help"]).status.code(), Some(0), "{command}");
    }
    let version = run(&["--version"]);
    assert_eq!(text(&version.stdout), concat!("checkdam ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_banner_has_a_line_to_paste_that_works() {
    let server = Server::start();
    let log = server.log();
    let line = log.lines().find(|line| line.starts_with("curl ")).unwrap();
    let (url, body) = line.strip_prefix("curl -i ").unwrap().split_once(" -d ").unwrap();
    let path = url.strip_prefix(&server.url()).unwrap();
    let answer = server.client().ok(path, body.trim_matches('\''));
    assert_eq!((&answer["limit"], &answer["remaining"]), (&50.into(), &49.into()));
    assert!(log.contains(&format!("{}/docs", server.url())), "{log}");
}
