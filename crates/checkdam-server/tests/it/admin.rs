//! Admin API: rules, overrides and bans edited under load.

use serde_json::json;

use crate::http_client::{Client, Reply};
use crate::server_process::{Server, folder, run, text};

const FREE: &str = r#"{"name": "free", "key": "user:{user}", "when": {"plan": "free"}, "limits": ["1/h burst 3"]}"#;
const USER: &str = r#"{"attributes": {"user": "42", "plan": "free"}}"#;

fn call(client: &mut Client, method: &str, path: &str, body: &str) -> Reply {
    client.send(method, path, body).expect("an answer")
}

/// A server whose only rule is the one above.
fn server() -> Server {
    let server = Server::start();
    let rules = format!("{{\"rules\": [{FREE}]}}");
    let reply = call(&mut server.admin(), "POST", "/admin/v1/rules/import?replace=true", &rules);
    assert_eq!(reply.status, 200, "{reply:?}");
    server
}

#[test]
fn a_rule_is_added_changed_and_removed_and_each_edit_is_in_force_when_it_is_answered() {
    let server = Server::start();
    let (mut admin, mut client) = (server.admin(), server.client());
    let seeded = call(&mut admin, "GET", "/admin/v1/rules", "").json();
    assert!(seeded["total"].as_u64().unwrap() >= 3, "the starter rules: {seeded}");

    let rule = r#"{"name": "tiny", "key": "tiny:{tiny}", "limits": ["1/h burst 2"]}"#;
    let added = call(&mut admin, "POST", "/admin/v1/rules", rule);
    assert_eq!((added.status, added.header("etag")), (201, Some("\"1\"")), "{added:?}");
    assert_eq!(added.header("location"), Some("/admin/v1/rules/tiny"));
    let limit = |client: &mut Client| client.ok("/v1/peek", r#"{"attributes": {"tiny": "1"}}"#)["limit"].clone();
    assert_eq!(limit(&mut client), 2);

    let exists = call(&mut admin, "POST", "/admin/v1/rules", rule);
    assert_eq!(exists.status, 409, "{exists:?}");
    let changed = rule.replace("burst 2", "burst 5");
    let put = admin.send_with("PUT", "/admin/v1/rules/tiny", &[("if-match", "\"1\"")], &changed).unwrap();
    assert_eq!((put.status, put.header("etag")), (200, Some("\"2\"")), "{put:?}");
    assert_eq!(limit(&mut client), 5);
    let stale = admin.send_with("PUT", "/admin/v1/rules/tiny", &[("if-match", "\"1\"")], rule).unwrap();
    assert_eq!(stale.status, 412, "{stale:?}");
    let gone = admin.send_with("PUT", "/admin/v1/rules/none", &[("if-match", "*")], rule).unwrap();
    assert_eq!(gone.status, 412, "{gone:?}");
    let only_new = admin.send_with("PUT", "/admin/v1/rules/tiny", &[("if-none-match", "*")], rule).unwrap();
    assert_eq!(only_new.status, 412, "{only_new:?}");
    assert_eq!(limit(&mut client), 5, "a refused edit changes nothing");

    let shown = call(&mut admin, "GET", "/admin/v1/rules/tiny", "");
    let back = admin.send_with("PUT", "/admin/v1/rules/tiny", &[("if-match", "\"2\"")], &shown.body).unwrap();
    assert_eq!(back.status, 200, "what was read can be written: {back:?}");
    let shown = call(&mut admin, "GET", "/admin/v1/rules/tiny", "");
    assert_eq!((shown.status, shown.header("etag")), (200, Some("\"3\"")));
    assert_eq!(shown.json()["limits"], json!(["1/h burst 5"]));
    let removed = call(&mut admin, "DELETE", "/admin/v1/rules/tiny", "");
    assert_eq!(removed.status, 204, "{removed:?}");
    assert_ne!(limit(&mut client), 5, "another rule governs");
    assert_eq!(call(&mut admin, "GET", "/admin/v1/rules/tiny", "").status, 404);
    assert_eq!(call(&mut admin, "DELETE", "/admin/v1/rules/tiny", "").status, 404);
}

#[test]
fn bad_edits_are_refused_with_the_reason_and_change_nothing() {
    let server = server();
    let mut admin = server.admin();
    let before = call(&mut admin, "GET", "/admin/v1/rules/export", "").body;
    let table = [
        ("POST", "/admin/v1/rules", "", 422, "no name"),
        ("POST", "/admin/v1/rules", "{", 422, "line 1"),
        ("POST", "/admin/v1/rules", r#"{"name": "x", "key": "k", "limits": ["10/parsec"]}"#, 422, "10/parsec"),
        ("POST", "/admin/v1/rules", r#"{"name": "x", "key": "k", "limits": []}"#, 422, "limits"),
        ("POST", "/admin/v1/rules", r#"{"name": "x", "key": "k", "limits": ["1/s"], "colour": 1}"#, 422, "colour"),
        ("POST", "/admin/v1/rules", r#"{"name": "import", "key": "k", "limits": ["1/s"]}"#, 422, "import"),
        ("POST", "/admin/v1/rules", &FREE.replace("\"free\", \"key", "\"other\", \"key"), 422, "free"),
        ("PUT", "/admin/v1/rules/nobody", &FREE.replace("\"free\", \"key", "\"other\", \"key"), 422, "nobody"),
        ("PUT", "/admin/v1/overrides", r#"{"rule": "nobody", "subject": "user:1", "scale": 2}"#, 422, "nobody"),
        ("PUT", "/admin/v1/overrides", r#"{"rule": "free", "subject": "user:1"}"#, 422, "limits"),
        ("PUT", "/admin/v1/bans", r#"{"subject": "nobody"}"#, 422, "nobody"),
        ("PUT", "/admin/v1/bans", r#"{"subject": "user:1", "until": "tomorrow"}"#, 422, "tomorrow"),
        ("DELETE", "/admin/v1/bans", "", 422, "subject"),
        ("DELETE", "/admin/v1/bans?subject=user:1", "", 404, "user:1"),
        ("DELETE", "/admin/v1/rules/nobody", "", 404, "nobody"),
        ("GET", "/admin/v1/rules?limit=0", "", 422, "limit"),
        ("GET", "/admin/v1/rules?serach=x", "", 422, "serach"),
        ("GET", "/admin/v1/violations?user=", "", 422, "user is empty"),
        ("GET", "/admin/v1/violations?since=9000000000000000", "", 422, "9000000000000000"),
        ("GET", "/admin/v1/rules/%ff", "", 422, "UTF-8"),
        ("GET", "/admin/v1/violations?since=yesterday", "", 422, "yesterday"),
        ("GET", "/admin/v1/nothing", "", 404, "/admin/v1/nothing"),
        ("PATCH", "/admin/v1/rules", "", 405, "PATCH"),
    ];
    for (method, path, body, status, word) in table {
        let reply = call(&mut admin, method, path, body);
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{method} {path}");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(word), "{method} {path} {body}: {detail}");
    }
    assert_eq!(call(&mut admin, "GET", "/admin/v1/rules/export", "").body, before);
}

#[test]
fn documents_are_judged_imported_and_exported() {
    let server = server();
    let (mut admin, mut client) = (server.admin(), server.client());
    let document = "rules:\n  - { name: one, key: \"user:{user}\", limits: [\"1/h burst 7\"], priority: 3 }\n\
                    overrides:\n  - { rule: one, subject: \"user:42\", scale: 10 }\n\
                    bans:\n  - { subject: \"ip:198.51.100.0/24\", reason: scraping }\n";
    let valid = call(&mut admin, "POST", "/admin/v1/rules/validate", document);
    assert_eq!(valid.json(), json!({"ok": true, "rules": 1, "overrides": 1, "bans": 1}));
    let one = call(&mut admin, "POST", "/admin/v1/rules/validate", FREE);
    assert_eq!(one.status, 200, "{one:?}");
    let bad = call(&mut admin, "POST", "/admin/v1/rules/validate", &document.replace("burst 7", "burst x"));
    assert!(bad.status == 422 && bad.body.contains("line 2"), "{bad:?}");

    let would = call(&mut admin, "POST", "/admin/v1/rules/import?replace=true&dry_run=true", document).json();
    assert_eq!((&would["added"], &would["removed"], &would["dry_run"]), (&json!(3), &json!(1), &json!(true)));
    assert_eq!(client.ok("/v1/peek", USER)["limit"], 3, "nothing was done");
    let done = call(&mut admin, "POST", "/admin/v1/rules/import?replace=true", document).json();
    assert_eq!((&done["added"], &done["removed"]), (&json!(3), &json!(1)), "{done}");
    assert_eq!(client.ok("/v1/peek", USER)["limit"], 70, "the override");
    assert_eq!(client.ok("/v1/peek", r#"{"attributes": {"user": "43"}}"#)["limit"], 7);

    let exported = call(&mut admin, "GET", "/admin/v1/rules/export", "");
    assert_eq!(exported.header("content-type"), Some("application/yaml"));
    let again = call(&mut admin, "POST", "/admin/v1/rules/import?replace=true", &exported.body).json();
    assert_eq!((&again["unchanged"], &again["changed"]), (&json!(3), &json!(0)), "it round-trips: {again}");
}

#[test]
fn bans_and_overrides_are_in_force_at_once() {
    let server = server();
    let (mut admin, mut client) = (server.admin(), server.client());
    let ban = r#"{"subject": "user:42", "reason": "scraping", "until": "2099-01-01T00:00:00Z"}"#;
    assert_eq!(call(&mut admin, "PUT", "/admin/v1/bans", ban).status, 200);
    let banned = client.post("/v1/check", USER);
    assert_eq!(banned.status, 403, "{banned:?}");
    assert!(banned.header("retry-after").is_some() && banned.body.contains("scraping"), "{banned:?}");
    assert_eq!(call(&mut admin, "GET", "/admin/v1/bans", "").json()["bans"][0]["subject"], "user:42");
    assert_eq!(call(&mut admin, "DELETE", "/admin/v1/bans?subject=user:42", "").status, 204);
    assert_eq!(client.post("/v1/check", USER).status, 200);

    let more = r#"{"rule": "free", "subject": "user:4*", "limits": ["1/h burst 30"]}"#;
    assert_eq!(call(&mut admin, "PUT", "/admin/v1/overrides", more).status, 200);
    assert_eq!(client.ok("/v1/peek", USER)["limit"], 30);
    let listed = call(&mut admin, "GET", "/admin/v1/overrides?rule=free", "").json();
    assert_eq!(listed["overrides"][0]["subject"], "user:4*", "{listed}");
    assert_eq!(call(&mut admin, "DELETE", "/admin/v1/overrides?rule=free&subject=user:4*", "").status, 204);
    assert_eq!(client.ok("/v1/peek", USER)["limit"], 3);
}

#[test]
fn a_candidate_in_shadow_shows_its_effect() {
    let server = server();
    let (mut admin, mut client) = (server.admin(), server.client());
    let candidate = FREE.replace("\"free\", \"key", "\"stricter\", \"key").replace("burst 3", "burst 1");
    let candidate = candidate.replace("\"limits\"", "\"mode\": \"shadow\", \"limits\"");
    assert_eq!(call(&mut admin, "POST", "/admin/v1/rules", &candidate).status, 201);
    for (user, times) in [("a", 3), ("b", 2), ("c", 1)] {
        for _ in 0..times {
            let body = format!("{{\"attributes\": {{\"user\": \"{user}\", \"plan\": \"free\"}}}}");
            assert_eq!(client.post("/v1/check", &body).status, 200);
        }
    }
    let effect = call(&mut admin, "GET", "/admin/v1/rules/stricter/effect", "").json();
    let told = (&effect["seen"], &effect["would_allow"], &effect["would_deny"]);
    assert_eq!(told, (&json!(6), &json!(3), &json!(3)), "{effect}");
    let top = json!([
        {"subject": "user:a", "would_deny": 2, "too_high_by": 0},
        {"subject": "user:b", "would_deny": 1, "too_high_by": 0},
    ]);
    assert_eq!(effect["top_subjects"], top);
    assert_eq!(call(&mut admin, "GET", "/admin/v1/rules/free/effect", "").status, 409);
    assert_eq!(call(&mut admin, "GET", "/admin/v1/rules/nobody/effect", "").status, 404);
}

#[test]
fn pages_of_a_long_list_hold_every_rule_once() {
    let server = Server::start();
    let mut admin = server.admin();
    let rules: String = (0..250).map(|n| format!("  - {{ name: r{n}, key: \"k{n}\", limits: [\"1/s\"] }}\n")).collect();
    let imported = call(&mut admin, "POST", "/admin/v1/rules/import?replace=true", &format!("rules:\n{rules}"));
    assert_eq!(imported.status, 200, "{imported:?}");
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = call(&mut admin, "GET", &format!("/admin/v1/rules?limit=100{after}"), "").json();
        names.extend(page["rules"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 250);
    let found = call(&mut admin, "GET", "/admin/v1/rules?search=R24", "").json();
    assert_eq!(found["total"], 11, "r24 and r240 to r249: {found}");
}

#[test]
fn the_admin_door_is_closed_to_strangers() {
    let token = "0123456789abcdef";
    let server = Server::with(&["--admin-token", token]);
    let mut admin = server.admin();
    let mut asked = |headers: &[(&str, &str)]| admin.send_with("GET", "/admin/v1/status", headers, "").unwrap();
    let stranger = asked(&[]);
    assert_eq!((stranger.status, stranger.header("www-authenticate")), (401, Some("Bearer")), "{stranger:?}");
    assert_eq!(asked(&[("authorization", "Bearer 0123456789abcdeX")]).status, 401);
    assert_eq!(asked(&[("authorization", token)]).status, 401);
    let bearer = format!("Bearer {token}");
    assert_eq!(asked(&[("authorization", &bearer)]).status, 200);
    assert_eq!(asked(&[("authorization", &bearer), ("origin", "https://example.com")]).status, 403);
    assert_eq!(asked(&[("authorization", &bearer), ("host", "checkdam.example")]).status, 200);

    let open = Server::start();
    let mut admin = open.admin();
    let mut asked = |headers: &[(&str, &str)]| admin.send_with("GET", "/admin/v1/status", headers, "").unwrap().status;
    assert_eq!(asked(&[]), 200);
    assert_eq!(asked(&[("host", "checkdam.example")]), 403, "a name that another machine may have given to this one");
    assert_eq!(asked(&[("origin", "http://localhost:3000")]), 403);
    let mut scraped = |host: &str| admin.send_with("GET", "/metrics", &[("host", host)], "").unwrap().status;
    assert_eq!((scraped("localhost:8082"), scraped("checkdam.example")), (200, 403), "metrics are no exception");
    assert_eq!(open.client().get("/admin/v1/status").status, 404, "not on the HTTP listener");

    let refused = run(&["serve", "--http-listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--admin-token"), "{}", text(&refused.stderr));
}

#[test]
fn rules_of_a_file_are_shown_and_not_edited() {
    let server = Server::with_rules(&format!("rules: [{FREE}]"));
    let mut admin = server.admin();
    assert_eq!(call(&mut admin, "GET", "/admin/v1/rules", "").json()["rules"][0]["name"], "free");
    for (method, path) in [
        ("POST", "/admin/v1/rules"),
        ("PUT", "/admin/v1/rules/free"),
        ("DELETE", "/admin/v1/rules/free"),
        ("POST", "/admin/v1/rules/import"),
        ("PUT", "/admin/v1/bans"),
    ] {
        let reply = call(&mut admin, method, path, FREE);
        assert_eq!(reply.status, 409, "{method} {path}: {reply:?}");
        assert!(reply.body.contains("rules_from_file"), "{reply:?}");
    }
    let status = call(&mut admin, "GET", "/admin/v1/status", "").json();
    assert_eq!((&status["rules"]["source"], &status["rules"]["count"]), (&json!("file"), &json!(1)), "{status}");
}

/// Edits in the database are followed also by a server without an admin listener.
#[test]
fn rules_are_followed_without_an_admin_listener() {
    let data = folder();
    let server = Server::with(&["--data-dir", data.to_str().unwrap(), "--admin-listen", "off"]);
    let database = format!("sqlite://{}/checkdam.db", data.display());
    let banned = run(&["ban", "user:42", "--database", &database]);
    assert!(banned.status.success(), "{}", text(&banned.stderr));
    let (mut client, start) = (server.client(), tokio::time::Instant::now());
    while client.post("/v1/check", USER).status != 403 {
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn edits_outlive_the_process() {
    let data = folder();
    let arguments = ["--data-dir", data.to_str().unwrap()];
    let mut server = Server::with(&arguments);
    let rule = r#"{"name": "kept", "key": "kept:{kept}", "limits": ["1/h burst 9"]}"#;
    assert_eq!(call(&mut server.admin(), "POST", "/admin/v1/rules", rule).status, 201);
    server.signal("TERM");
    assert!(server.wait().success());
    // One file holds everything after a clean end, and nobody else may read it.
    use std::os::unix::fs::PermissionsExt;
    assert!(!data.join("checkdam.db-wal").exists());
    assert_eq!(std::fs::metadata(data.join("checkdam.db")).unwrap().permissions().mode() & 0o777, 0o600);
    let server = Server::with(&arguments);
    assert_eq!(server.client().ok("/v1/peek", r#"{"attributes": {"kept": "1"}}"#)["limit"], 9);
}

/// Killed in the midst of edits, again and again: the database opens, whatever
/// was acknowledged is there, and no edit is there by half.
#[test]
fn no_acknowledged_edit_is_lost_by_kill_9() {
    const ROUNDS: usize = 5;
    const EDITS: usize = 1_000;
    let data = folder();
    let arguments = ["--data-dir", data.to_str().unwrap()];
    let mut acknowledged: Option<usize> = None;
    for round in 0..ROUNDS {
        let server = Server::with(&arguments);
        let mut admin = server.admin();
        if let Some(number) = acknowledged {
            let shown = call(&mut admin, "GET", "/admin/v1/rules/counter", "").json();
            let kept: usize = shown["description"].as_str().unwrap().parse().unwrap();
            assert!(kept == number || kept == number + 1, "edit {number} was acknowledged, {kept} is there");
            let burst = format!("1/h burst {}", kept + 1);
            assert_eq!(shown["limits"], json!([burst]), "half an edit: {shown}");
        }
        let first = acknowledged.map_or(0, |number| number + 2);
        let last = (round + 1) * EDITS / ROUNDS;
        let address = server.admin_address().to_owned();
        let killed_after = (last - first) / 2 + round * 7;
        let editing = std::thread::spawn(move || {
            let mut done = None;
            let Ok(mut admin) = Client::try_connect(&address) else { return done };
            for number in first..last {
                let rule = json!({
                    "name": "counter", "key": "counter", "limits": [format!("1/h burst {}", number + 1)],
                    "description": number.to_string(),
                });
                match admin.send("PUT", "/admin/v1/rules/counter", &rule.to_string()) {
                    Ok(reply) if reply.status == 200 || reply.status == 201 => done = Some(number),
                    Ok(reply) => panic!("{reply:?}"),
                    Err(_) => break,
                }
            }
            done
        });
        while !editing.is_finished() {
            let shown = admin.send("GET", "/admin/v1/rules/counter", "");
            let Ok(shown) = shown else { break };
            let number = shown.status == 200
                && shown.json()["description"].as_str().unwrap().parse::<usize>().unwrap() >= first + killed_after;
            if number {
                server.signal("KILL");
                break;
            }
        }
        acknowledged = editing.join().unwrap().or(acknowledged);
        drop(server);
    }
    assert!(acknowledged.unwrap() > EDITS / 3, "{acknowledged:?}");
}
