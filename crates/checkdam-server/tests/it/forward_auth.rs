//! Real proxies in front of a real application, each with the shipped configuration:
//! only its addresses are replaced.

use testkit::Daemon;

use crate::echo_application::Application;
use crate::http_client::{Client, Reply};
use crate::server_process::{Server, rule_file};

/// The key holds all that a proxy tells: whatever it kept back would show.
const RULES: &str = r#"
rules:
  - { name: all, key: "{method} {endpoint} {host} {ip} {api_key}", limits: ["3/h"] }
bans:
  - { subject: "ip:127.0.0.66", reason: somebody's secret }
"#;

/// The same path, as a client may write it.
const SPELLINGS: [&str; 4] = ["/api/search?cost=9", "/api/se%61rch?domain=x", "//api/search", "/api//search?denied=1"];

const STANDING: [&str; 5] =
    ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

/// Where the headers are on answers that pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderPlace {
    AtTheClient,
    AtTheApplication,
}

/// What stands behind a proxy.
struct ProxiedSite {
    checkdam: Server,
    application: Application,
}

impl ProxiedSite {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(more: &[&str]) -> Self {
        let rules = rule_file(RULES);
        let settings = ["--trusted-proxies", "127.0.0.1", "--header-attributes", "X-API-Key=api_key"];
        let checkdam = Server::with(&[&["--rules", rules.to_str().unwrap()], &settings[..], more].concat());
        Self { checkdam, application: Application::start() }
    }

    /// A shipped file with the test's addresses.
    fn configure(&self, shipped: &str, port: u16) -> String {
        let mut text = shipped.to_owned();
        for (address, real) in [
            ("127.0.0.1:8080", self.checkdam.address()),
            ("127.0.0.1:3000", &self.application.address()),
            (":8000", &format!(":{port}")),
        ] {
            assert!(text.contains(address), "the shipped file does not name {address}");
            text = text.replace(address, real);
        }
        text
    }
}

/// A request whose client lies about all that it can.
fn ask(proxy: &Daemon, source: &str, path: &str) -> Reply {
    let headers = [
        ("host", "Shop.Example"),
        ("x-api-key", "k1"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-method", "DELETE"),
        ("x-forwarded-uri", "/elsewhere"),
        ("x-forwarded-host", "elsewhere.example"),
        // A browser that another site leads here.
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"),
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://elsewhere.example"),
    ];
    Client::connect_from(source, proxy.address()).send_with("POST", path, &headers, "a body").unwrap()
}

fn limits(site: &ProxiedSite, proxy: &Daemon, standing: HeaderPlace) {
    for (index, path) in SPELLINGS[..3].iter().enumerate() {
        let reply = ask(proxy, "127.0.0.2", path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert!(reply.body.starts_with("post /") && reply.body.ends_with("\r\n\r\na body"), "{reply:?}");
        let remaining = (2 - index).to_string();
        match standing {
            HeaderPlace::AtTheClient => {
                assert_eq!(reply.header("x-ratelimit-remaining"), Some(&*remaining), "{reply:?}")
            }
            HeaderPlace::AtTheApplication => {
                assert!(reply.body.contains(&format!("x-ratelimit-remaining: {remaining}\r\n")), "{reply:?}");
            }
        }
        for name in STANDING {
            let is_there = reply.header(name).is_some() || reply.body.contains(&format!("\r\n{name}: "));
            assert!(is_there, "{name} is missing: {reply:?}");
        }
        assert_eq!(reply.header("retry-after"), None, "{reply:?}");
    }
    let before = site.application.answered();
    let denied = ask(proxy, "127.0.0.2", SPELLINGS[3]);
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"), "{denied:?}");
    assert_eq!(denied.json()["status"], 429, "{denied:?}");
    let retry_after: u64 = denied.header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap();
    assert!((1_000..=1_200).contains(&retry_after), "{denied:?}");
    for name in STANDING {
        assert!(denied.header(name).is_some(), "{name} is missing: {denied:?}");
    }
    // However much a client sends: what cannot be asked about does not pass.
    let names: Vec<String> = (0..120).map(|number| format!("x-{number}")).collect();
    for count in [50, 80, 94, 98, 120] {
        let more = names[..count].iter().map(|name| (name.as_str(), "a"));
        let headers: Vec<_> = [("host", "shop.example"), ("x-api-key", "k1")].into_iter().chain(more).collect();
        let mut client = Client::connect_from("127.0.0.2", proxy.address());
        let refused = client.send_with("POST", SPELLINGS[0], &headers, "a body").unwrap();
        assert!((400..=500).contains(&refused.status), "{count} headers: {refused:?}");
    }
    let banned = ask(proxy, "127.0.0.66", "/");
    assert_eq!(banned.status, 403, "{banned:?}");
    assert!(!banned.body.contains("secret"), "{banned:?}");
    assert_eq!(site.application.answered(), before, "the application got what was refused");
    // Others, and other paths, have limits of their own.
    assert_eq!(ask(proxy, "127.0.0.3", "/api/search").status, 200);
    assert_eq!(ask(proxy, "127.0.0.2", "/api/other").status, 200);
    // What checkdam counted is what the client really asked.
    let asked = r#"{"attributes": {"method": "POST", "endpoint": "/api/search", "host": "shop.example", "ip": "127.0.0.3", "api_key": "k1"}}"#;
    assert_eq!(site.checkdam.client().ok("/v1/peek", asked)["remaining"], 2);
}

/// Ends checkdam without a word: what does a client get now?
fn without_checkdam(mut site: ProxiedSite, proxy: &Daemon) -> u16 {
    site.checkdam.signal("KILL");
    site.checkdam.wait();
    ask(proxy, "127.0.0.2", "/api/search").status
}

#[test]
fn nginx_limits_and_without_checkdam_lets_pass() {
    let site = ProxiedSite::start();
    let proxy = Daemon::nginx(|port| site.configure(include_str!("../../../../deploy/nginx/checkdam.conf"), port));
    limits(&site, &proxy, HeaderPlace::AtTheClient);
    assert_eq!(without_checkdam(site, &proxy), 200);
}

/// The shipped file shows how the token is sent, in a comment.
#[test]
fn nginx_sends_the_api_token() {
    let site = ProxiedSite::with(&["--api-token", "an-api-token-of-tests"]);
    let shipped = include_str!("../../../../deploy/nginx/checkdam.conf");
    let line = "#proxy_set_header X-Checkdam-Token \"the-api-token\";";
    assert!(shipped.contains(line));
    let sending = shipped.replace(line, "proxy_set_header X-Checkdam-Token \"an-api-token-of-tests\";");
    let proxy = Daemon::nginx(|port| site.configure(&sending, port));
    for status in [200, 200, 200, 429] {
        let reply = ask(&proxy, "127.0.0.2", "/api/search");
        assert_eq!(reply.status, status, "{reply:?}");
    }
    let passed = ask(&proxy, "127.0.0.3", "/api/search");
    assert!(!passed.body.contains("an-api-token-of-tests"), "the application learns nothing of it: {passed:?}");
    let before = site.application.answered();
    let silent = Daemon::nginx(|port| site.configure(shipped, port));
    let refused = ask(&silent, "127.0.0.4", "/api/search");
    assert_eq!(refused.status, 500, "without the token nothing passes: {refused:?}");
    assert_eq!(site.application.answered(), before);
}

#[test]
fn caddy_limits_and_without_checkdam_refuses() {
    let site = ProxiedSite::start();
    let proxy = Daemon::caddy(|port| site.configure(include_str!("../../../../deploy/caddy/Caddyfile"), port));
    limits(&site, &proxy, HeaderPlace::AtTheClient);
    assert_eq!(without_checkdam(site, &proxy), 502);
}

#[test]
fn traefik_limits_and_without_checkdam_refuses() {
    let site = ProxiedSite::start();
    let proxy = Daemon::traefik(|port| site.configure(include_str!("../../../../deploy/traefik/checkdam.yml"), port));
    limits(&site, &proxy, HeaderPlace::AtTheApplication);
    assert_eq!(without_checkdam(site, &proxy), 500);
}

#[test]
fn haproxy_limits_and_without_checkdam_lets_pass() {
    let site = ProxiedSite::start();
    // Abstract sockets are the machine's: each test has one of its own.
    let own = |text: &str, port: &str| text.replace("abns@checkdam", &format!("abns@checkdam-{port}"));
    let socket = testkit::free_port().to_string();
    let script = own(include_str!("../../../../deploy/haproxy/checkdam.lua"), &socket);
    let proxy = Daemon::haproxy(
        |port| {
            let shipped = include_str!("../../../../deploy/haproxy/haproxy.cfg").replace("/etc/haproxy/", "");
            own(&site.configure(&shipped, port), &socket)
        },
        &[("checkdam.lua", &script)],
    );
    limits(&site, &proxy, HeaderPlace::AtTheClient);
    assert_eq!(without_checkdam(site, &proxy), 200);
}
