//! The dashboard in a real browser, used as an operator would.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Browser;
use tokio::time::Instant;

use crate::server_process::{Server, rule_file};

/// What a page must keep to be usable by everybody; returns what is wrong with it.
const AUDIT: &str = include_str!("dashboard_audit.js");

const TOKEN: &str = "a-token-that-nobody-guesses";
const RULES: &str = r#"{"rules": [
    {"name": "user-free", "description": "The free plan, per user", "key": "user:{user}", "when": {"plan": "free"},
        "limits": ["10/s burst 20"]},
    {"name": "partner", "key": "partner:{partner}", "limits": ["1/s burst 100"]},
    {"name": "per-ip", "key": "ip:{ip}", "limits": ["30/m"], "algorithm": "sliding_window", "mode": "shadow"},
    {"name": "global", "key": "global", "limits": ["50000/s burst 100000"]}
]}"#;
const VIEWS: [&str; 9] =
    ["", "limited", "rules", "overrides", "bans", "changes", "violations", "inspect?user=42&plan=free", "health"];

/// Keys as the browser's protocol writes them.
const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";

/// Requests that flow until it is dropped, or for two minutes.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Traffic {
    /// User 42 asks too often, five others do not.
    fn flow(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, mut client) = (Arc::clone(&stop), server.client());
        let sender = std::thread::spawn(move || {
            let start = Instant::now();
            for round in 0_u64.. {
                if stopped.load(Ordering::Relaxed) || start.elapsed() > Duration::from_secs(120) {
                    return;
                }
                let users = [42, 42, 42, 100 + round % 5];
                let requests = users.map(|user| {
                    json!({"attributes": {"user": user.to_string(), "plan": "free", "ip": format!("203.0.113.{}", user % 7),
                        "endpoint": "/api/search", "method": "GET"}})
                });
                client.ok("/v1/check/batch", &json!({ "requests": requests }).to_string());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { stop, sender: Some(sender) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.sender.take().map(JoinHandle::join));
    }
}

/// Where screenshots of the page are written.
fn pictures() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let folder = target.join("dashboard");
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}

/// Asks the admin API on a connection of its own: the server closes those that are idle while the browser works.
fn edit(server: &Server, method: &str, path: &str, body: &str) -> Value {
    let secret = format!("Bearer {TOKEN}");
    let reply = server.admin().send_with(method, path, &[("authorization", &secret)], body).expect("an answer");
    assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
    reply.json()
}

/// What the console may not say: all but the refusals that were asked for, which browsers report by themselves.
fn unexpected(browser: &Browser, expected: &[&str]) -> Vec<String> {
    let is_expected = |line: &String| {
        line.starts_with("network") && expected.iter().any(|status| line.contains(&format!("status of {status}")))
    };
    browser.complaints().into_iter().filter(|line| !is_expected(line)).collect()
}

/// The number that stands in an element.
fn number(browser: &Browser, selector: &str) -> f64 {
    browser.find(selector).text().replace(',', "").parse().unwrap_or(f64::NAN)
}

#[test]
fn an_operator_finds_who_is_limited_changes_the_rule_and_mends_a_bucket() {
    let server = Server::with(&["--admin-token", TOKEN]);
    edit(&server, "POST", "/admin/v1/rules/import?replace=true", RULES);
    let _traffic = Traffic::flow(&server);
    let browser = Browser::start();
    browser.resize(1280, 900);

    browser.goto(&format!("http://{}/", server.admin_address()));
    come_in(&browser);
    browser.wait_for(
        "traffic in the numbers",
        "return Number(document.querySelector('[data-figure=requests]').textContent) > 20 \
            && Number(document.querySelector('[data-figure=limited]').textContent) > 5",
    );
    browser.find_with("#busiest button", "user-free").click();
    browser.find_with("h2", "Traffic of user-free");

    browser.find_with("#most-limited a", "user:42").click();
    browser.find_with("#why h2", "Limits of user:42");
    browser.find_with("#why li", "10 a second, up to 20 at once");
    browser.find_with("#why tbody tr", "/api/search");
    browser.find_with("#why a", "Open the rule").click();

    change_the_rule(&browser, &server);
    let mut client = server.client();
    let mut fresh = || client.post("/v1/check", r#"{"attributes": {"user": "fresh", "plan": "free"}}"#).status;
    assert_eq!([fresh(), fresh(), fresh(), fresh()], [200, 200, 200, 429], "what was saved is enforced");
    meet_another_editor(&browser, &server);
    mend_a_bucket(&browser, &server);
    make_exceptions(&browser, &server);
    for (address, heading) in [("#/rules/%zz", "There is no rule %zz"), ("#/constructor", "Overview")] {
        browser.run("location.hash = arguments[0]", &json!([address]));
        browser.find_with("h1", heading);
    }
    assert_eq!(unexpected(&browser, &["401", "404", "412", "422"]), Vec::<String>::new());

    drop(server);
    browser.find_with("#banner", "connection to the server is lost");
}

/// A wrong token is refused, the right one is kept by the tab.
fn come_in(browser: &Browser) {
    browser.find("#token").write("a gue\u{df} \u{2192}");
    browser.find_with("dialog button", "Continue").click();
    browser.find_with("#token-fault", "a character that is not allowed in a header");
    browser.find("#token").replace("a guess");
    browser.find_with("dialog button", "Continue").click();
    browser.find_with("#token-fault", "The server rejected that token.");
    assert!(!browser.page_text().contains("user-free"), "nothing is shown without the token");
    browser.find("#token").write(TOKEN);
    browser.find_with("dialog button", "Continue").click();
    browser.find("#leave");
    browser.find_with("#health", "healthy");
}

/// A bad limit is refused at its field; a good one is previewed, and saved.
fn change_the_rule(browser: &Browser, server: &Server) {
    browser.find_with("#summary dd", "plan is free");
    browser.find("input.limit").replace("10/parsec");
    browser.find_with(".fault", "\"parsec\" is not a unit");
    assert_eq!(browser.find("input.limit").attribute("aria-invalid"), "true");
    browser.find("#save").click();
    browser.find_with(".fault", "\"parsec\" is not a unit");
    let kept = edit(server, "GET", "/admin/v1/rules/user-free", "");
    assert_eq!(kept["limits"], json!(["10/s burst 20"]), "a refused edit changes nothing");

    browser.find("input.limit").replace("3/h");
    browser.find("#preview-edit").click();
    browser.find_with("#preview strong", "more requests denied");
    browser.find_with("#preview td", "user:42");
    let kept = edit(server, "GET", "/admin/v1/rules/user-free", "");
    assert_eq!(kept["limits"], json!(["10/s burst 20"]), "a preview changes nothing");
    browser.screenshot(&pictures().join("preview.png"));
    browser.find("#save").click();
    browser.find_with("#editor .message", "Saved.");
    browser.find_with("#summary dd", "3 an hour");
}

/// Of two operators who edit the same rule, the second gets a conflict.
fn meet_another_editor(browser: &Browser, server: &Server) {
    let mut theirs = edit(server, "GET", "/admin/v1/rules/user-free", "");
    theirs["limits"] = json!(["7/s"]);
    edit(server, "PUT", "/admin/v1/rules/user-free", &theirs.to_string());
    browser.find("input.limit").replace("8/s");
    browser.find_with("nav a", "Inspector").click();
    browser.find_with("dialog h2", "Leave without saving?");
    browser.find_with("dialog button", "Cancel").click();
    assert!(browser.address().ends_with("#/rules/user-free"), "an edit is not lost: {}", browser.address());
    browser.find("#save").click();
    browser.find_with("#editor .message", "Someone else changed this rule meanwhile.");
    browser.find_with("#editor .message pre", "7/s");
    browser.find_with("#editor .message button", "Use the stored rule").click();
    browser.find_with("input.limit", "7/s");
    assert_eq!(edit(server, "GET", "/admin/v1/rules/user-free", "")["limits"], json!(["7/s"]));
}

/// A drained bucket is seen to refill, and is full once it is reset.
fn mend_a_bucket(browser: &Browser, server: &Server) {
    server.client().ok("/v1/check", r#"{"attributes": {"partner": "7"}, "cost": 100}"#);
    browser.find_with("nav a", "Inspector").click();
    browser.find("input.name").replace("partner");
    browser.find("input.value").replace("7");
    let level = "[data-level='partner 1/s burst 100']";
    let before = number(browser, level);
    assert!(before < 50.0, "{before} of 100 are left");
    browser.wait_for(
        "a level that rises",
        &format!("return Number(document.querySelector(\"{level}\").textContent) >= {before} + 2"),
    );
    browser.find_with("button", "Reset…").click();
    browser.find_with("dialog li", "partner:7");
    browser.find_with("dialog button", "Reset").click();
    browser.wait_for(
        "a bucket that is full",
        &format!("return Number(document.querySelector(\"{level}\")?.textContent) === 100"),
    );
    let left = server.client().ok("/v1/peek", r#"{"attributes": {"partner": "7"}}"#)["remaining"].as_u64();
    assert_eq!(left, Some(100), "and not only on the page");
}

/// One user gets other limits, another is banned; both is seen, enforced, changed and undone.
fn make_exceptions(browser: &Browser, server: &Server) {
    let ask = || {
        let answer = server.client().ok("/v1/peek", r#"{"attributes": {"partner": "8"}}"#);
        (answer["allowed"] == true, answer["limit"].as_u64())
    };
    show(browser, "overrides?rule=partner");
    browser.find_with("button", "Add an override").click();
    browser.find("dialog input[name=subject]").write("partner:8");
    browser.find("dialog input[name=limits]").write("7/parsec");
    browser.find("#save-entry").click();
    browser.find_with("dialog .fault", "\"parsec\" is not a unit");
    assert_eq!(ask(), (true, Some(100)), "a refused override changes nothing");
    browser.find("dialog input[name=limits]").replace("7/s");
    browser.find("dialog input[name=description]").write("on trial");
    browser.find("#save-entry").click();
    browser.find_with("#overrides tbody tr", "7 a second");
    assert_eq!(ask(), (true, Some(7)), "it is enforced");
    browser.screenshot(&pictures().join("overrides.png"));
    browser.find_with("#overrides button", "Remove…").click();
    browser.find_with("dialog button", "Remove").click();
    browser.find_with("#overrides .empty", "There are no overrides");
    assert_eq!(ask(), (true, Some(100)), "it is undone");

    browser.find_with(".choice a", "Bans").click();
    browser.find_with("button", "Ban a subject").click();
    browser.find("dialog input[name=subject]").write("partner:8");
    browser.find("dialog input[name=reason]").write("scraping");
    browser.find("#save-entry").click();
    browser.find_with("#bans tbody tr", "scraping");
    assert!(!ask().0, "it is enforced");
    browser.find_with("#bans button", "Change…").click();
    browser.find("dialog input[name=reason]").replace("fraud");
    browser.find("#save-entry").click();
    browser.find_with("#bans tbody tr", "fraud");
    browser.screenshot(&pictures().join("bans.png"));
    browser.find_with("#bans button", "Lift…").click();
    browser.find_with("dialog button", "Lift").click();
    browser.find_with("#bans .empty", "No subject is banned");
    assert!(ask().0, "it is undone");
}

#[test]
fn the_page_can_be_used_by_everybody_also_with_ten_thousand_rules() {
    let many = (0..10_000).map(|n| {
        json!({"name": format!("tenant-{n:05}"), "key": "tenant:{tenant}", "when": {"tenant": format!("t{n}")}, "limits": ["100/s"]})
    });
    let mut rules: Value = serde_json::from_str(RULES).unwrap();
    rules["rules"].as_array_mut().unwrap().extend(many);
    let file = rule_file(&rules.to_string());
    let server = Server::with(&["--rules", file.to_str().unwrap()]);
    let _traffic = Traffic::flow(&server);
    let browser = Browser::start();
    browser.resize(1280, 900);
    browser.prefer("light");
    browser.goto(&format!("http://{}/", server.admin_address()));
    browser.find_with("#most-limited a", "user:42");

    many_rules(&browser);
    walk_by_keyboard(&browser);
    for (name, colours, width, height) in
        [("light", "light", 1280, 900), ("dark", "dark", 1280, 900), ("phone", "light", 360, 740)]
    {
        browser.resize(width, height);
        browser.prefer(colours);
        for view in VIEWS.iter().rev() {
            show(&browser, view);
            let faults = browser.run(AUDIT, &json!([]));
            assert_eq!(faults, json!([]), "#/{view} in {name}");
        }
        browser.find_with("#most-limited a", "user:42");
        browser.screenshot(&pictures().join(format!("{name}.png")));
    }
    assert_eq!(unexpected(&browser, &[]), Vec::<String>::new());
}

/// Shows a view and waits until it shows something.
fn show(browser: &Browser, view: &str) {
    browser.run("location.hash = arguments[0]", &json!([format!("#/{view}")]));
    browser.wait_for(
        "a view with content",
        "return document.querySelector('#view table, #view meter, #view .level, #view dl, #view .empty') !== null \
            && !document.querySelector('#view').textContent.includes('Loading…')",
    );
}

/// Only a page of the rules is ever shown; a search finds one of them; those of a file are not edited here.
fn many_rules(browser: &Browser) {
    show(browser, "rules");
    browser.find_with("caption", "Rules 1 to 50 of 10,004");
    browser.find("#search").write("tenant-07777");
    browser.find_with("caption", "Rules 1 to 1 of 1");
    browser.find_with("#rules a", "tenant-07777").click();
    browser.find_with("#summary dd", "100 a second");
    browser.find_with("#editor .message", "edit that file");
    assert_eq!(browser.find("#save").attribute("disabled"), "true");
    show(browser, "rules");
    browser.find_with("button", "Next").click();
    browser.find_with("caption", "Rules 51 to 100 of 10,004");
    let nodes = browser.run("return document.querySelectorAll('*').length", &json!([])).as_u64().unwrap();
    assert!(nodes < 2_000, "{nodes} elements for a page of rules");
}

/// Without a mouse: past the navigation, and through it.
fn walk_by_keyboard(browser: &Browser) {
    let focused = || browser.run("return document.activeElement.textContent.trim()", &json!([]));
    browser.goto(&format!("{}#/", browser.address().split('#').next().unwrap_or_default()));
    browser.run("location.reload()", &json!([]));
    browser.find_with("h1", "Overview");
    browser.press(TAB);
    assert_eq!(focused(), "Skip to content");
    browser.press(ENTER);
    assert_eq!(browser.run("return document.activeElement.id", &json!([])), "main");
    browser.run("document.querySelector('#skip').focus()", &json!([]));
    for _ in 0..20 {
        browser.press(TAB);
        if focused() == "Rules" {
            break;
        }
    }
    let outline = "return getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.run(outline, &json!([])), "solid", "the focus is seen");
    browser.press(ENTER);
    browser.find_with("h1", "Rules");
    assert_eq!(focused(), "Rules", "the focus goes to the new view");
    assert_eq!(browser.find("nav a[aria-current]").text(), "Rules");
}

/// Over a store that is away: one rule counts by itself, the other refuses.
#[test]
fn what_does_not_pass_has_a_colour_for_each_reason_and_rules_for_nobody_are_told() {
    let rules = rule_file(
        r#"{"rules": [
            {"name": "few", "key": "user:{user}", "limits": ["1/h"], "on_store_failure": "local"},
            {"name": "strict", "key": "order:{order}", "limits": ["1/h"], "on_store_failure": "closed"},
            {"name": "nobody", "key": "tenant:{tenant_id}", "limits": ["1/h"], "on_store_failure": "local"}],
        "bans": [{"subject": "user:evil"}]}"#,
    );
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--store", "redis://127.0.0.1:1"]);
    let mut client = server.client();
    let statuses = ["user=42", "user=42", "user=42", "order=1", "user=evil", "usr=42"].map(|attribute| {
        let (name, value) = attribute.split_once('=').unwrap();
        client.post("/v1/check", &json!({"attributes": {name: value}}).to_string()).status
    });
    assert_eq!(statuses, [200, 429, 429, 503, 403, 200]);
    let browser = Browser::start();
    browser.goto(&format!("http://{}/", server.admin_address()));
    browser.find_with("#idle-rules li", "nobody needs tenant_id");
    browser.wait_for(
        "every kind in the chart",
        "return ['allowed', 'limited', 'banned', 'unavailable'].every((kind) => { \
            const area = document.querySelector(`.chart path.${kind}`); \
            return area && area.getAttribute('visibility') !== 'hidden'; })",
    );
    let colours = "return ['allowed', 'limited', 'banned', 'unavailable'].map((kind) => \
        getComputedStyle(document.querySelector(`.chart path.${kind}`)).fill)";
    let colours = browser.run(colours, &json!([]));
    let mut different: Vec<String> = colours.as_array().unwrap().iter().map(ToString::to_string).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 4, "{colours}");
    let label = browser.find(".chart").attribute("aria-label");
    assert!(label.contains("2 denied, 1 banned, 1 denied because the store was unavailable"), "{label}");
    browser.goto(&format!("http://{}/#/inspect?usr=42", server.admin_address()));
    browser.find_with("#found .warn", "No rule names an attribute of the request (usr)");
    assert!(server.log().contains("no rule names any attribute of a request"), "{}", server.log());
    let traffic = server.admin().get("/admin/v1/traffic").json();
    let sum = |kind: &str| traffic["total"][kind].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(["limited", "banned", "unavailable"].map(sum), [4, 1, 1], "limited are all that did not pass");
}

#[test]
fn the_inspector_shows_debt() {
    let server = Server::with_rules("rules: [{name: tokens, key: \"user:{user}\", limits: [\"10/d\"]}]");
    server.client().ok("/v1/record", r#"{"attributes": {"user": "42"}, "cost": 14}"#);
    let browser = Browser::start();
    browser.goto(&format!("http://{}/#/inspect?user=42", server.admin_address()));
    browser.find_with("#found [data-debt]", "4 in debt");
    assert_eq!(browser.find("#found [data-level]").text(), "0");
}

#[test]
fn its_files_load_nothing_from_elsewhere_and_are_asked_for_once() {
    let server = Server::with(&["--admin-token", TOKEN]);
    let mut client = server.admin();
    let page = client.get("/").body;
    let links = page.split(['"']).filter(|text| text.starts_with("/dashboard/")).map(str::to_owned);
    let mut paths: Vec<String> = ["/".to_owned(), "/dashboard".to_owned()].into_iter().chain(links).collect();
    let mut seen = 0;
    while let Some(path) = paths.get(seen).cloned() {
        seen += 1;
        let reply = client.get(&path);
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        for foreign in ["https://", "<script>", " style=", "onclick", "innerHTML", "eval("] {
            assert!(!reply.body.contains(foreign), "{path} contains {foreign}");
        }
        let tag = reply.header("etag").unwrap();
        let again = client.send_with("GET", &path, &[("if-none-match", tag)], "").unwrap();
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
        let imported = reply.body.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
        for name in imported.map(|name| format!("/dashboard/{name}")) {
            if !paths.contains(&name) {
                paths.push(name);
            }
        }
    }
    assert!(seen > 15, "only {seen} files were found");
    assert_eq!(client.get("/admin/v1/status").status, 401, "what they show is not for everybody");
}
