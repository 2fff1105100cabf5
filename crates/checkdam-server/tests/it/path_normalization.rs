//! Path spellings that applications treat as equal share their limits, at the proxy
//! and at `/v1/auth`.

use crate::http_client::{Client, Reply};
use crate::proxy::{proxy, remaining};
use crate::server_process::{Server, rule_file};
use crate::test_upstream::Upstream;

const RULES: &str = r#"
rules:
  - { name: login, key: login, when: { endpoint: /login, method: [GET, POST] }, limits: ["100/h"] }
  - { name: of-a-key, key: "api_key:{api_key}", limits: ["5/h"] }
  - { name: strangers, key: strangers, when: { api_key: { present: false } }, limits: ["500/h"] }
"#;
const MAPPED: [&str; 2] = ["--header-attributes", "X-API-Key=api_key"];

/// What the proxy and `/v1/auth` each say of a request.
struct BothListeners {
    proxy: (Server, Client),
    auth: (Server, Client),
    upstream: Upstream,
}

impl BothListeners {
    fn start(arguments: &[&str]) -> Self {
        let arguments = [&MAPPED[..], arguments].concat();
        let (upstream, rules) = (Upstream::start(), rule_file(RULES));
        let proxy = proxy(RULES, &[&upstream.url()], &arguments);
        let auth = Server::with(&[&["--rules", rules.to_str().unwrap()], &arguments[..]].concat());
        let (of_proxy, of_auth) = (proxy.client(), auth.client());
        Self { proxy: (proxy, of_proxy), auth: (auth, of_auth), upstream }
    }

    fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> [Reply; 2] {
        let through_proxy = self.proxy.1.send_with(method, path, headers, "").unwrap();
        let described = [&[("x-forwarded-method", method), ("x-forwarded-uri", path)], headers].concat();
        let asked = self.auth.1.send_with("GET", "/v1/auth", &described, "").unwrap();
        [through_proxy, asked]
    }

    fn assert_refused(&mut self, (method, path, headers): (&str, &str, &[(&str, &str)]), detail: &str) {
        let before = self.upstream.requests();
        for reply in self.ask(method, path, headers) {
            assert_eq!(reply.status, 400, "{method} {path} {headers:?}: {reply:?}");
            assert!(reply.json()["detail"].as_str().unwrap().contains(detail), "{method} {path}: {reply:?}");
        }
        assert_eq!(self.upstream.requests(), before, "{method} {path} {headers:?} was forwarded");
    }
}

#[test]
fn headers_that_rules_read_cannot_be_hidden_from_the_upstream() {
    let mut listeners = BothListeners::start(&["--cost-header", "X-Cost", "--trusted-proxies", "127.0.0.1"]);
    for connection in ["X-API-Key", "close, x-api-key", "keep-alive,X-Api-Key ,x", "X-Cost", "x-forwarded-for"] {
        let headers = [("connection", connection), ("x-api-key", "made up")];
        listeners.assert_refused(("GET", "/x", &headers), "Connection");
        // A request that is refused may end its connection.
        let (of_proxy, of_auth) = (listeners.proxy.0.client(), listeners.auth.0.client());
        (listeners.proxy.1, listeners.auth.1) = (of_proxy, of_auth);
    }
    for reply in listeners.ask("GET", "/x", &[("connection", "keep-alive, X-Hop"), ("x-api-key", "k1")]) {
        assert_eq!((reply.status, remaining(&reply)), (200, 4), "nothing was charged before: {reply:?}");
    }
}

#[test]
fn methods_are_written_in_upper_case() {
    let mut listeners = BothListeners::start(&[]);
    for method in ["get", "Post", "gET", "purge"] {
        listeners.assert_refused((method, "/login", &[]), "upper-case");
    }
    for method in ["GET", "POST"] {
        listeners.ask(method, "/login", &[]);
    }
    for reply in listeners.ask("GET", "/login", &[]) {
        assert_eq!(remaining(&reply), 97, "{reply:?}");
    }
}

#[test]
fn encoded_slashes_and_backslashes_are_refused_unless_allowed_or_decoded() {
    let forms = ["/x%2F..%2flogin", "/login%2F", "/api%5Cx", "/api%5cx", "/api\\x", "/%2flogin"];
    let mut refusing = BothListeners::start(&[]);
    for path in forms {
        refusing.assert_refused(("GET", path, &[]), "--path-slashes");
    }
    for reply in refusing.ask("GET", "/login?next=%2Fhome%5C", &[]) {
        assert_eq!((reply.status, remaining(&reply)), (200, 99), "a query may hold them: {reply:?}");
    }
    let mut keeping = BothListeners::start(&["--path-slashes", "keep"]);
    for path in forms {
        for reply in keeping.ask("GET", path, &[]) {
            assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, Some("500")), "{path}: {reply:?}");
        }
    }
    let mut decoding = BothListeners::start(&["--path-slashes", "decode"]);
    for (at, path) in ["/%2flogin", "/\\login", "/%5clogin"].into_iter().enumerate() {
        for reply in decoding.ask("GET", path, &[]) {
            assert_eq!((reply.status, remaining(&reply)), (200, 99 - at as u64), "{path}: {reply:?}");
        }
    }
    // Decoded, it has dot segments: the proxy forwards the path that the rules saw.
    let [through_proxy, asked] = decoding.ask("GET", "/x%2F..%2flogin?a", &[]);
    assert_eq!((remaining(&through_proxy), &through_proxy.json()["target"]), (96, &"/login?a".into()));
    assert_eq!(asked.status, 400, "{asked:?}");
}

#[test]
fn parameters_a_last_slash_and_letter_case_are_settings() {
    let mut default = BothListeners::start(&[]);
    for (at, path) in
        ["/login", "/login;x", "/login;jsessionid=1?a", "/;v=1/login", "/login%3Bx"].into_iter().enumerate()
    {
        for reply in default.ask("GET", path, &[]) {
            assert_eq!((reply.status, remaining(&reply)), (200, 99 - at as u64), "{path}: {reply:?}");
        }
    }
    for path in ["/login/", "/Login"] {
        for reply in default.ask("GET", path, &[]) {
            assert_eq!(reply.header("x-ratelimit-limit"), Some("500"), "{path}: {reply:?}");
        }
    }
    let [through_proxy, asked] = default.ask("GET", "/x/..;a=b/login", &[]);
    assert_eq!((remaining(&through_proxy), &through_proxy.json()["target"]), (94, &"/login".into()));
    assert_eq!(asked.status, 400, "{asked:?}");
    let mut set = BothListeners::start(&["--path-parameters=keep", "--path-trailing-slash=strip", "--path-case=lower"]);
    for (at, path) in ["/login", "/login/", "/LOGIN", "/Login//", "/%4Cogin/."].into_iter().enumerate() {
        let [through_proxy, asked] = set.ask("GET", path, &[]);
        assert_eq!((through_proxy.status, remaining(&through_proxy)), (200, 99 - at as u64), "{path}");
        assert!(asked.status == 400 || remaining(&asked) == 99 - at as u64, "{path}: {asked:?}");
    }
    for reply in set.ask("GET", "/login;x", &[]) {
        assert_eq!(reply.header("x-ratelimit-limit"), Some("500"), "{reply:?}");
    }
}

#[test]
fn a_rule_that_no_path_can_match_is_told() {
    let rules =
        rule_file(r#"rules: [{name: written-otherwise, key: k, when: {endpoint: [/ok, /Login/]}, limits: ["1/h"]}]"#);
    let settings = ["--rules", rules.to_str().unwrap(), "--path-trailing-slash", "strip", "--path-case", "lower"];
    let mut server = Server::with(&settings);
    server.wait_for_log("written-otherwise");
    let log = server.log();
    let told = log.lines().find(|line| line.contains("written-otherwise")).unwrap();
    assert!(told.contains("/Login/") && told.contains("/login") && !told.contains("/ok"), "{told}");
}
