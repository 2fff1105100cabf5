//! The commands that show and edit rules: the same on a running server and on a
//! database, SQLite or PostgreSQL.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use testkit::Postgres;

use crate::server_process::{PATIENCE, Server, checkdam, folder, rule_file, text};

/// A rule file that says something of everything.
const RULES: &str = r#"rules:
  - name: per-user
    description: "Free users"
    key: "user:{user}"
    when: { method: [GET, POST], plan: free }
    limits: ["10/s burst 50", "5000/h"]
  - name: per-ip
    priority: 5
    key: "ip:{ip}"
    when: { ip: { not_in: ["10.0.0.0/8", "::1/128"] } }
    limits: ["100/m"]
    algorithm: sliding_window
    strict: true
    mode: shadow
  - name: global
    key: global
    limits: ["50000/s burst 100000"]
    on_store_failure: open
    lease: "100ms"
overrides:
  - { rule: per-user, subject: "user:42", scale: 10 }
  - { rule: per-user, subject: "user:bot-*", limits: ["1/s"] }
bans:
  - { subject: "user:13", reason: spam }
  - { subject: "ip:198.51.100.0/24", until: "2999-12-01T00:00:00Z" }
"#;

/// Where the rules are: arguments for every command.
struct BackendCase {
    place: [String; 2],
}

impl BackendCase {
    /// A file that is not there yet.
    fn new_file() -> Self {
        Self::database(format!("sqlite://{}", folder().join("rules.db").display()))
    }

    fn database(url: String) -> Self {
        Self { place: ["--database".to_owned(), url] }
    }

    fn server(server: &Server) -> Self {
        Self { place: ["--server".to_owned(), format!("http://{}", server.admin_address())] }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        checkdam().args(arguments).args(&self.place).output().unwrap()
    }

    /// Runs a command that succeeds, and returns its data.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} on {:?}: {output:?}", self.place);
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that is answered no, and says why.
    fn refused(&self, arguments: &[&str], parts: &[&str]) {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} on {:?}: {said}", self.place);
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        for part in parts {
            assert!(said.contains(part), "{part:?} is missing: {arguments:?} on {:?}: {said}", self.place);
        }
    }

    /// Forgets everything, then takes over a rule file: rows that stay keep their place and count on.
    fn with(self, rules: &str) -> Self {
        for rules in ["rules: []", rules] {
            self.ok(&["rules", "import", rule_file(rules).to_str().unwrap(), "--replace"]);
        }
        self
    }
}

/// Runs a test on a file, on a PostgreSQL server, and on a server of ours.
fn everywhere(test: impl Fn(&BackendCase)) {
    let postgres = Postgres::builder().fsync(false).start();
    let server = Server::start();
    let url = postgres.create_database();
    insta::allow_duplicates! {
        for backend in [BackendCase::new_file(), BackendCase::database(url), BackendCase::server(&server)] {
            test(&backend.with(RULES));
        }
    }
}

#[test]
fn what_is_imported_is_exported_and_listed() {
    everywhere(|backend| {
        assert_eq!(backend.ok(&["rules", "export"]), RULES);
        insta::assert_snapshot!(backend.ok(&["rules", "list"]), @r"
        NAME      KEY          LIMITS                 ALGORITHM                MODE     WHEN                       PRIORITY  VERSION
        per-user  user:{user}  10/s burst 50, 5000/h  token_bucket             enforce  method=GET,POST plan=free         0        1
        per-ip    ip:{ip}      100/m                  sliding_window (strict)  shadow   ip!=10.0.0.0/8,::1/128            5        1
        global    global       50000/s burst 100000   token_bucket             enforce  -                                 0        1
        ");
        insta::assert_snapshot!(backend.ok(&["rules", "overrides"]), @r"
        RULE      SUBJECT     INSTEAD   VERSION  DESCRIPTION
        per-user  user:42     10 times        1
        per-user  user:bot-*  1/s             1
        ");
        insta::assert_snapshot!(backend.ok(&["bans"]), @r"
        SUBJECT             UNTIL                 REASON
        user:13             for ever              spam
        ip:198.51.100.0/24  2999-12-01T00:00:00Z
        ");
        assert_eq!(backend.ok(&["violations"]).lines().count(), 1, "headings only");

        let again = rule_file(RULES);
        let again = again.to_str().unwrap();
        assert_eq!(backend.ok(&["rules", "import", again]), "added 0, changed 0, removed 0, left 7 as they were\n");
        let fewer = rule_file("rules: [{ name: new, key: k, limits: [1/s] }]");
        let fewer = ["rules", "import", fewer.to_str().unwrap(), "--dry-run", "--replace"];
        assert_eq!(backend.ok(&fewer), "would add 1, change 0, remove 7, leave 0 as they are\n");
        assert_eq!(backend.ok(&["rules", "export"]), RULES, "a dry run changes nothing");

        let copy = BackendCase::new_file().with(&backend.ok(&["rules", "export"]));
        assert_eq!(copy.ok(&["rules", "export"]), RULES);
    });
}

#[test]
fn json_is_the_same_from_a_server_and_from_a_database() {
    let shape = |backend: &BackendCase| {
        let mut answers = Vec::new();
        for command in [&["rules", "list"][..], &["rules", "show", "per-ip"], &["rules", "overrides"], &["bans"]] {
            answers.push(without_row(backend.json(command)));
        }
        answers.push(backend.json(&["violations"]));
        answers
    };
    let server = Server::start();
    let (ours, theirs) = (BackendCase::new_file().with(RULES), BackendCase::server(&server).with(RULES));
    assert_eq!(shape(&ours), shape(&theirs));
    let found = ours.json(&["rules", "list", "--search", "IP:"]);
    assert_eq!((&found["total"], &found["rules"][0]["name"]), (&json!(1), &json!("per-ip")));
    assert_eq!(theirs.json(&["rules", "list", "--search", "IP:"])["total"], 1);
    assert_eq!(ours.json(&["rules", "overrides", "--rule", "global"])["total"], 0);
}

/// The same without what differs from database to database.
fn without_row(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for name in ["id", "version", "created_at", "updated_at"] {
                assert!(fields.get(name).is_none_or(|value| value.is_number() || value.is_string()), "{fields:?}");
                fields.remove(name);
            }
            fields.values_mut().for_each(|value| *value = without_row(value.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| *value = without_row(value.take())),
        _ => {}
    }
    value
}

#[test]
fn rules_are_added_changed_and_removed() {
    everywhere(|backend| {
        let added = backend.ok(&[
            "rules",
            "add",
            "new one",
            "--key",
            "k:{user}",
            "--limit",
            "1/s",
            "--limit",
            "9/m",
            "--when",
            "plan=pro,max",
            "--when",
            "ip!=10.0.0.0/8",
            "--priority",
            "-3",
            "--description",
            "for a test",
        ]);
        assert_eq!(added, "rule \"new one\": added, version 1\n");
        insta::assert_snapshot!(backend.ok(&["rules", "show", "new one"]), @r#"
        rules:
          - name: "new one"
            description: "for a test"
            priority: -3
            key: "k:{user}"
            when: { ip: { not_in: "10.0.0.0/8" }, plan: [pro, max] }
            limits: ["1/s", "9/m"]
        "#);
        let changed = backend.ok(&["rules", "set", "new one", "--mode", "shadow", "--no-when", "--limit", "2/s"]);
        assert_eq!(changed, "rule \"new one\": changed, version 2\n");
        let expected = json!({
            "name": "new one", "key": "k:{user}", "limits": ["2/s"], "mode": "shadow", "priority": -3,
            "description": "for a test",
        });
        assert_eq!(without_row(backend.json(&["rules", "show", "new one"])), expected);
        let tried = backend.json(&["rules", "set", "per-ip", "--algorithm", "token_bucket", "--mode", "enforce"]);
        assert_eq!((&tried["strict"], &tried["algorithm"]), (&Value::Null, &Value::Null), "as usual: {tried}");
        let lease = backend.json(&["rules", "set", "global", "--lease", "off", "--description", ""]);
        assert_eq!((&lease["lease"], &lease["on_store_failure"]), (&Value::Null, &json!("open")));
        assert_eq!(backend.ok(&["rules", "remove", "new one"]), "rule \"new one\": removed\n");
        backend.refused(&["rules", "remove", "new one"], &["no rule \"new one\"", "rules list"]);
    });
}

#[test]
fn overrides_and_bans_are_set_and_removed() {
    everywhere(|backend| {
        let one = ["rules", "override", "per-user", "user:7"];
        let set = |what: &[&str]| backend.json(&[&one[..], what].concat());
        assert_eq!(set(&["--limit", "1/s", "--limit", "50/m"])["limits"], json!(["1/s", "50/m"]));
        assert_eq!(set(&["--scale", "0.5"])["scale"], json!(0.5));
        let last = set(&["--unlimited", "--description", "the boss"]);
        assert_eq!((&last["unlimited"], &last["version"]), (&json!(true), &json!(3)));
        let removed = "override of \"user:7\" for rule \"per-user\": removed\n";
        assert_eq!(backend.ok(&[&one[..], &["--remove"]].concat()), removed);
        backend.refused(&[&one[..], &["--remove"]].concat(), &["user:7", "rules overrides"]);
        let commands = ["cannot be removed", "checkdam rules override per-user user:42 --remove"];
        backend.refused(&["rules", "remove", "per-user"], &commands);

        let banned = backend.ok(&["ban", "ip:203.0.113.9/24", "--until", "2999-01-01T02:00:00+02:00"]);
        assert_eq!(banned, "ip:203.0.113.0/24: banned until 2999-01-01T00:00:00Z\n");
        assert!(backend.ok(&["ban", "user:9", "--for", "1h", "--reason", "flood"]).contains("banned until 2"));
        assert_eq!(backend.json(&["bans"])["total"], 4);
        assert_eq!(backend.ok(&["unban", "ip:203.0.113.0/24"]), "ip:203.0.113.0/24: no longer banned\n");
        backend.refused(&["unban", "ip:203.0.113.0/24"], &["203.0.113.0/24", "checkdam bans"]);
    });
}

#[test]
fn what_is_not_valid_is_refused_with_its_name_and_advice() {
    everywhere(|backend| {
        let add = ["rules", "add", "x", "--key", "k:{user}", "--limit"];
        let rule = |rest: &[&'static str]| [&add[..], rest].concat();
        for (arguments, parts) in [
            (rule(&["lots"]), ["lots", "10/s burst 50"]),
            (rule(&["1/s", "--mode", "loud"]), ["loud", "shadow"]),
            (rule(&["1/s", "--algorithm", "dice"]), ["dice", "sliding_log"]),
            (rule(&["1/s", "--on-store-failure", "maybe"]), ["maybe", "closed"]),
            (rule(&["1/s", "--lease", "soon"]), ["soon", "100ms"]),
            (rule(&["1/s", "--strict"]), ["strict", "sliding_window"]),
            (rule(&["1 per calendar day", "--zone", "berlin"]), ["\"berlin\"", "Europe/Berlin"]),
            (rule(&["1 per calendar month", "--anchor", "32"]), ["anchor 32", "1 to 31"]),
            (rule(&["1 per calendar month", "--week-starts", "sunday"]), ["week_starts sunday", "calendar week"]),
            (rule(&["1/s", "--when", "ip=10.0.0.0/99"]), ["10.0.0.0/99", "rule \"x\""]),
            (rule(&["1/s", "--when", "=free"]), ["=free", "plan=free"]),
            (vec!["rules", "add", "x", "--key", "k:{user", "--limit", "1/s"], ["k:{user", "{name}"]),
            (
                vec!["rules", "add", "global", "--key", "k", "--limit", "1/s"],
                ["\"global\" already", "rules set global"],
            ),
            (vec!["rules", "add", "twin", "--key", "global", "--limit", "1/s"], ["twin", "\"global\""]),
            (vec!["rules", "set", "nobody", "--mode", "off"], ["\"nobody\"", "rules list"]),
            (vec!["rules", "set", "global", "--limit", "0/s"], ["limit is 0", "\"global\""]),
            (vec!["rules", "show", "nobody"], ["\"nobody\"", "rules list"]),
            (vec!["rules", "override", "nobody", "user:1", "--unlimited"], ["nobody", "user:1"]),
            (vec!["rules", "override", "global", "global", "--scale", "-1"], ["-1", "0.5"]),
            (vec!["ban", "42"], ["\"42\"", "user:42"]),
            (vec!["ban", "user:1", "--until", "tomorrow"], ["tomorrow", "2026-12-01T00:00:00Z"]),
            (vec!["ban", "user:1", "--until", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00Z", "passed"]),
        ] {
            backend.refused(&arguments, &parts);
        }
        let bad = rule_file("rules:\n  - name: a\n    key: k\n    limits: [lots]\n");
        let bad = bad.to_str().unwrap();
        backend.refused(&["rules", "import", bad], &[&format!("{bad}:4:"), "lots"]);
        let lost = rule_file("rules: []\noverrides: [{ rule: nobody, subject: s, scale: 2 }]");
        backend.refused(&["rules", "import", lost.to_str().unwrap()], &["nobody", "\"s\""]);
        backend.refused(&["rules", "import", lost.to_str().unwrap(), "--dry-run"], &["nobody", "\"s\""]);
        assert_eq!(backend.ok(&["rules", "export"]), RULES, "what is refused changes nothing");
    });
}

#[test]
fn a_rule_and_a_document_may_come_from_a_file_or_a_pipe() {
    let backend = BackendCase::new_file().with("rules: []");
    let one = rule_file("name: one\nkey: k\nlimits: [1/s]\n");
    assert_eq!(backend.ok(&["rules", "add", "--file", one.to_str().unwrap()]), "rule \"one\": added, version 1\n");
    let bad = rule_file("name: two\nkey: k\nlimits: [never]\n");
    backend.refused(&["rules", "add", "--file", bad.to_str().unwrap()], &[&format!("{}:3:", bad.display()), "never"]);
    let whole = rule_file(RULES);
    backend.refused(&["rules", "add", "--file", whole.to_str().unwrap()], &["rules import"]);

    let pipe = |arguments: &[&str], input: &str| {
        let mut child = checkdam();
        child.args(arguments).args(&backend.place).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let added = pipe(&["rules", "add", "--file", "-"], r#"{"name": "two", "key": "b", "limits": ["1/s"]}"#);
    assert_eq!(added.status.code(), Some(0), "{added:?}");
    let imported = pipe(&["rules", "import", "-", "--replace"], RULES);
    assert_eq!(text(&imported.stdout), "added 7, changed 0, removed 2, left 0 as they were\n");
    let refused = pipe(&["rules", "import", "-"], "rules: 5");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("standard input:1:"), "{refused:?}");

    let output = folder().join("out.yaml");
    assert_eq!(backend.ok(&["rules", "export", "--output", output.to_str().unwrap()]), "");
    assert_eq!(std::fs::read_to_string(output).unwrap(), RULES);
}

#[test]
fn wrong_usage_and_nobody_to_ask_are_exit_2() {
    let missing = format!("sqlite://{}", folder().join("misspelt.db").display());
    for (arguments, part) in [
        (vec!["rules", "list", "--database", &missing], "no database"),
        (vec!["violations", "--database", &missing], "no database"),
        (vec!["ban", "user:1", "--database", &missing], "no database"),
        (vec!["rules", "import", "/does/not/exist.yaml", "--database", &missing], "/does/not/exist.yaml"),
        (vec!["rules", "list", "--database", "mysql://host"], "postgres://"),
        (vec!["rules", "list", "--database", "postgres://127.0.0.1:1/x"], "127.0.0.1:1"),
        (vec!["rules", "list", "--database", &missing, "--server", "x"], "--server"),
        (vec!["rules", "list", "--server", "http://127.0.0.1:1"], "checkdam serve"),
        (vec!["rules", "list", "--token", "not printable\n"], "token"),
        (vec!["rules", "list", "--token-file", "/does/not/exist"], "/does/not/exist"),
        (vec!["rules", "add", "x", "--key", "k"], "--limit"),
        (vec!["rules", "add", "x", "--file", "f"], "--file"),
        (vec!["rules", "set", "x"], "nothing to change"),
        (vec!["rules", "set", "x", "--when", "a=b", "--no-when"], "--no-when"),
        (vec!["rules", "override", "x", "s"], "--unlimited"),
        (vec!["rules", "override", "x", "s", "--scale", "2", "--unlimited"], "--unlimited"),
        (vec!["rules", "effect", "x", "--database", &missing], "--database"),
        (vec!["ban", "user:1", "--for", "soon"], "soon"),
        (vec!["violations", "--since", "soon"], "how long ago"),
        (vec!["violations", "--limit", "0"], "0"),
    ] {
        let output = checkdam().args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {output:?}");
    }
    assert!(!std::path::Path::new(missing.strip_prefix("sqlite://").unwrap()).exists());
}

#[test]
fn changes_at_the_same_time_are_not_lost() {
    let backend = BackendCase::new_file().with("rules: [{ name: a, key: k, limits: [1/s] }]");
    let changes = [("--priority", "7"), ("--scope", "wide"), ("--description", "words"), ("--mode", "shadow")];
    let children = changes.map(|(flag, value)| {
        let mut command = checkdam();
        command.args(["rules", "set", "a", flag, value]).args(&backend.place);
        (flag, value, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    });
    let outputs = children.map(|(flag, value, child)| (flag, value, child.wait_with_output().unwrap()));
    let rule = backend.json(&["rules", "show", "a"]);
    for (flag, value, output) in outputs {
        let said = rule[flag.trim_start_matches('-')].to_string();
        match output.status.code() {
            Some(0) => assert_eq!(said.trim_matches('"'), value, "{flag} was lost: {rule}"),
            code => {
                assert_eq!(code, Some(1), "{output:?}");
                assert!(text(&output.stderr).contains("was changed concurrently"), "{output:?}");
            }
        }
    }
}

#[test]
fn edits_count_at_once_on_the_server_and_soon_after_those_of_its_database() {
    let folder = folder();
    let server = Server::with(&["--data-dir", folder.to_str().unwrap()]);
    let (by_server, mut client) = (BackendCase::server(&server), server.client());
    let database = format!("sqlite://{}", folder.join("checkdam.db").display());
    let by_database = BackendCase::database(database);
    assert_eq!(by_server.ok(&["rules", "export"]), by_database.ok(&["rules", "export"]), "the starter rules");

    by_server.ok(&["rules", "add", "tiny", "--key", "tiny:{tiny}", "--limit", "1/h burst 2"]);
    let tiny = r#"{"attributes": {"tiny": "1", "user": "42", "ip": "203.0.113.9", "endpoint": "/x", "method": "GET"}}"#;
    assert_eq!(client.ok("/v1/peek", tiny)["limit"], 2);
    let output = by_database.run(&["rules", "set", "tiny", "--limit", "1/h burst 3"]);
    assert!(text(&output.stderr).contains("within a second"), "{output:?}");
    let start = tokio::time::Instant::now();
    while client.ok("/v1/peek", tiny)["limit"] != 3 {
        assert!(start.elapsed() < PATIENCE, "the server does not follow its database");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    by_server.ok(&["ban", "user:13", "--reason", "flood"]);
    assert_eq!(client.post("/v1/check", r#"{"attributes": {"user": "13"}}"#).status, 403);
    by_server.ok(&["unban", "user:13"]);
    assert_eq!(client.post("/v1/check", r#"{"attributes": {"user": "13"}}"#).status, 200);

    while client.post("/v1/check", tiny).status == 200 {}
    let written =
        |backend: &BackendCase| backend.json(&["violations", "--rule", "tiny", "--user", "42", "--since", "1h"]);
    while written(&by_server)["violations"].as_array().unwrap().is_empty() {
        assert!(start.elapsed() < 2 * PATIENCE, "the violation is not written");
    }
    assert_eq!(written(&by_server), written(&by_database));
    let table = by_server.ok(&["violations", "--ip", "203.0.113.9", "--limit", "1"]);
    let (time, row) = table.lines().nth(1).unwrap().split_once("  ").unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{table}");
    assert!(row.starts_with("tiny  tiny:1     42  203.0.113.9  GET /x      1  1/h burst 3  "), "{table}");
    assert_eq!(by_server.ok(&["violations", "--user", "nobody"]).lines().count(), 1);
    assert_eq!(by_server.ok(&["violations", "--until", "1h"]).lines().count(), 1);
}

#[test]
fn effects_are_shown_of_rules_in_shadow() {
    let server = Server::start();
    let backend = BackendCase::server(&server);
    backend.ok(&["rules", "add", "tried", "--key", "t:{t}", "--limit", "1/h burst 2", "--mode", "shadow"]);
    let mut client = server.client();
    for _ in 0..5 {
        assert_eq!(client.post("/v1/check", r#"{"attributes": {"t": "1"}}"#).status, 200);
    }
    let said = backend.ok(&["rules", "effect", "tried"]);
    assert!(said.starts_with("tried: would have denied 3 of 5 requests (60.0 %) since 20"), "{said}");
    assert!(said.ends_with("SUBJECT  WOULD DENY  ERROR BOUND\nt:1               3            0\n"), "{said}");
    assert_eq!(backend.json(&["rules", "effect", "tried"])["would_deny"], 3);
    backend.refused(&["rules", "effect", "global"], &["global", "shadow"]);
    backend.refused(&["rules", "effect", "nobody"], &["nobody", "rules list"]);
}

#[test]
fn who_is_not_let_in_or_asks_at_the_wrong_door_is_told() {
    let token = "a-token-of-some-length";
    let server = Server::with(&["--admin-token", token]);
    let backend = BackendCase::server(&server);
    let refused = backend.run(&["rules", "list"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("CHECKDAM_ADMIN_TOKEN"), "{refused:?}");
    let file = folder().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    backend.ok(&["rules", "list", "--token-file", file.to_str().unwrap()]);
    backend.ok(&["rules", "list", "--token", token]);
    let (name, url) = ("CHECKDAM_ADMIN_SERVER", &backend.place[1]);
    let listed = |name: &str, value: &str| {
        checkdam().args(["rules", "list"]).env("CHECKDAM_ADMIN_SERVER", url).env(name, value).output().unwrap()
    };
    assert_eq!(listed("CHECKDAM_ADMIN_TOKEN", token).status.code(), Some(0));
    assert_eq!(listed("CHECKDAM_ADMIN_TOKEN_FILE", file.to_str().unwrap()).status.code(), Some(0));
    assert_eq!(listed("CHECKDAM_ADMIN_TOKEN", "something-else-altogether").status.code(), Some(2));

    let wrong = checkdam().args(["rules", "show", "global"]).env(name, server.url()).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("no admin API"), "{wrong:?}");
}

#[test]
fn rules_from_a_file_are_shown_and_not_edited() {
    let server = Server::with_rules(RULES);
    let backend = BackendCase::server(&server);
    assert_eq!(backend.ok(&["rules", "export"]), RULES);
    assert_eq!(backend.ok(&["rules", "list"]).lines().count(), 4);
    for arguments in [
        vec!["rules", "remove", "global"],
        vec!["rules", "set", "global", "--mode", "off"],
        vec!["rules", "add", "x", "--key", "k", "--limit", "1/s"],
        vec!["rules", "override", "global", "global", "--unlimited"],
        vec!["ban", "user:1"],
    ] {
        backend.refused(&arguments, &["file"]);
    }
}

#[test]
fn a_rule_file_is_checked_with_its_overrides_and_bans() {
    let path = rule_file(RULES);
    let path = path.to_str().unwrap();
    let output = checkdam().args(["rules", "check", path]).output().unwrap();
    assert!(text(&output.stdout).starts_with(&format!("{path}: 3 rules, 2 overrides, 2 bans ok\n")), "{output:?}");
    let output = checkdam().args(["rules", "check", path, "--json"]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["overrides"][0]["scale"], &answer["bans"][0]["subject"]), (&json!(10), &json!("user:13")));
    let bad = rule_file("rules: []\nbans:\n  - { subject: nobody }\n");
    let output = checkdam().args(["rules", "check", bad.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(":3:"), "{output:?}");
}
