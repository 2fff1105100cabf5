//! The proxy: what it forwards, its own responses, and what a request costs.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::http_client::Reply;
use crate::server_process::{PATIENCE, Server, folder, rule_file, run, text};
use crate::test_upstream::Upstream;

/// A hundred an hour for each address on `/l…`, nothing said of other paths.
const RULES: &str = r#"rules: [{name: per-ip, key: "ip:{ip}", when: {endpoint: "/l*"}, limits: ["100/h"]}]"#;

pub(crate) fn proxy(rules: &str, upstreams: &[&str], arguments: &[&str]) -> Server {
    let file = rule_file(rules);
    let mut all = vec!["--rules", file.to_str().unwrap(), "--audit-rate", "0"];
    all.extend(upstreams.iter().flat_map(|url| ["--upstream", url]));
    Server::proxy(&[&all, arguments].concat())
}

/// A proxy with these settings in its file.
fn configured(rules: &str, settings: &str) -> Server {
    let (rules, file) = (rule_file(rules), folder().join("checkdam.toml"));
    std::fs::write(&file, format!("rules = {rules:?}\naudit_rate = 0\n{settings}")).unwrap();
    Server::proxy(&["--config", file.to_str().unwrap()])
}

pub(crate) fn remaining(reply: &Reply) -> u64 {
    reply.header("x-ratelimit-remaining").unwrap_or_else(|| panic!("{reply:?}")).parse().unwrap()
}

#[test]
fn requests_are_limited_before_they_are_forwarded() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: per-ip, key: "ip:{ip}", limits: ["3/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &[]);
    let mut client = server.client();
    for left in [2, 1, 0] {
        let reply = client.get("/hello?a=b");
        assert_eq!((reply.status, &reply.json()["target"]), (200, &"/hello?a=b".into()), "{reply:?}");
        assert_eq!((remaining(&reply), reply.header("retry-after")), (left, None));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"per-ip\";q=3;w=3600"));
    }
    let reply = client.post("/hello", &"x".repeat(100_000));
    assert_eq!((reply.status, reply.header("content-type")), (429, Some("application/problem+json")), "{reply:?}");
    assert_eq!((reply.header("retry-after"), &reply.json()["violated-policies"][0]), (Some("1200"), &"per-ip".into()));
    assert_eq!(client.get("/hello").status, 429, "the connection stays usable");
    assert_eq!(upstream.requests(), 3);
}

#[test]
fn every_answer_says_where_its_client_stands() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    let mut client = server.client();
    let limited = client.get("/limits");
    assert_eq!((limited.header("x-ratelimit-limit"), remaining(&limited)), (Some("100"), 99), "ours win: {limited:?}");
    assert!(limited.header("ratelimit").unwrap().starts_with("\"per-ip\""));
    assert_eq!(
        (limited.header("x-own"), limited.header("x-hop"), limited.header("keep-alive")),
        (Some("stays"), None, None)
    );
    let unlimited = client.get("/x/../%6cimits/..//limits");
    assert_eq!(unlimited.header("x-ratelimit-limit"), Some("100"), "whatever the path is written like");
}

/// What rules saw is what the upstream sees.
#[test]
fn nothing_reaches_the_upstream_in_another_guise() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: few, key: k, when: {endpoint: "/few/*"}, limits: ["1/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--header-attributes", "X-API-Key=api_key"]);
    let mut client = server.client();
    assert_eq!(client.get("/few/x").status, 200);
    let followed = client.get("/few/../hello/%2e/x?a=../b");
    assert_eq!((followed.status, &followed.json()["target"]), (200, &"/hello/x?a=../b".into()), "{followed:?}");
    let disguised = [("x_api_key", "k1"), ("x_forwarded_for", "6.6.6.6"), ("x-plain", "stays")];
    let seen = client.send_with("GET", "/hello", &disguised, "").unwrap().json();
    let headers = &seen["headers"];
    assert_eq!((headers["x_api_key"].clone(), headers["x_forwarded_for"].clone()), Default::default(), "{seen}");
    assert_eq!((&headers["x-plain"], &headers["x-forwarded-for"]), (&"stays".into(), &"127.0.0.1".into()), "{seen}");
}

#[test]
fn an_upstreams_own_headers_stay_where_no_rule_speaks() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: elsewhere, key: k, when: {endpoint: /other}, limits: ["100/h"]}]"#;
    let reply = proxy(rules, &[&upstream.url()], &[]).client().get("/limits");
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("ratelimit")), (Some("7"), Some("\"own\";r=1;t=1")));
}

#[test]
fn upstreams_see_the_request_and_who_sent_it() {
    let upstream = Upstream::start();
    let sent = [
        ("host", "Example.com:8000"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=1.2.3.4"),
        ("x-real-ip", "1.2.3.4"),
        ("x-forwarded-user", "root"),
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
        ("true-client-ip", "1.2.3.4"),
        ("connection", "keep-alive, X-Hop"),
        ("x-hop", "goes"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("te", "gzip, trailers"),
        ("x-kept", "stays"),
    ];
    let seen = |arguments: &[&str]| {
        let server = proxy(RULES, &[&upstream.url()], arguments);
        let reply = server.client().send_with("PUT", "/a%20b?c=d", &sent, "body").unwrap();
        let seen = reply.json();
        assert_eq!((&seen["method"], &seen["target"]), (&"PUT".into(), &"/a%20b?c=d".into()));
        let headers = seen["headers"].clone();
        for (name, value) in [
            ("host", Some("Example.com:8000")),
            ("x-kept", Some("stays")),
            ("via", Some("1.1 checkdam")),
            ("te", Some("trailers")),
            ("content-length", Some("4")),
        ] {
            assert_eq!(headers[name].as_str(), value, "{name}: {headers}");
        }
        for name in ["connection", "x-hop", "keep-alive", "proxy-connection", "upgrade"] {
            assert_eq!(headers[name], Value::Null, "{name}: {headers}");
        }
        headers
    };
    let headers = seen(&[]);
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1", "a stranger's word is not passed on");
    assert_eq!(
        (&headers["x-forwarded-proto"], &headers["x-forwarded-host"]),
        (&"http".into(), &"Example.com:8000".into())
    );
    let of_proxies =
        ["forwarded", "x-real-ip", "x-forwarded-user", "x-original-url", "x-rewrite-url", "true-client-ip"];
    assert_eq!(of_proxies.map(|name| headers[name].clone()), [const { Value::Null }; 6], "{headers}");
    let headers = seen(&["--trusted-proxies", "127.0.0.0/8"]);
    assert!(of_proxies.iter().all(|name| headers[name].is_string()), "{headers}");
    assert_eq!(headers["x-forwarded-for"], "1.2.3.4, 203.0.113.9, 127.0.0.1");
    assert_eq!((&headers["x-forwarded-proto"], &headers["forwarded"]), (&"https".into(), &"for=1.2.3.4".into()));
}

/// A header that is not forwarded from a stranger is not read from it either.
#[test]
fn rules_read_no_header_that_the_upstream_does_not_see() {
    let upstream = Upstream::start();
    let rules =
        r#"rules: [{name: per-user, key: "user:{user}", limits: ["5/h"]}, {name: rest, key: all, limits: ["50/h"]}]"#;
    let mapped = ["--header-attributes", "X-Forwarded-User=user"];
    let sent = [("x-forwarded-user", "42")];
    let limit = |arguments: &[&str]| {
        let server = proxy(rules, &[&upstream.url()], &[&mapped[..], arguments].concat());
        let reply = server.client().send_with("GET", "/", &sent, "").unwrap();
        (reply.header("x-ratelimit-limit").unwrap().to_owned(), reply.json()["headers"]["x-forwarded-user"].is_string())
    };
    assert_eq!(limit(&[]), ("50".to_owned(), false));
    assert_eq!(limit(&["--trusted-proxies", "127.0.0.1"]), ("5".to_owned(), true));
}

/// HTTP/1.0 and HTTP/2 may leave the host out: then no rule and no route on it would be met.
#[test]
fn a_request_without_a_host_is_refused_where_rules_go_by_it() {
    use std::io::{Read, Write};
    let by_host = r#"rules: [{name: shop, key: k, when: {host: shop.example}, limits: ["1/h"]}]"#;
    let upstream = Upstream::start();
    // :method GET, :scheme http, :path /, and no :authority.
    let http2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    let status_http2 = |server: &Server| {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.write_all(http2).unwrap();
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            stream.read_exact(&mut payload).unwrap();
            if head[3] == 1 {
                // :status 200 and 400 have numbers of their own (RFC 7541, appendix A).
                return payload.iter().find_map(|byte| [(0x88, 200), (0x8c, 400)].into_iter().find(|it| it.0 == *byte));
            }
        }
    };
    for (rules, status) in [(by_host, 400), (RULES, 200)] {
        let server = proxy(rules, &[&upstream.url()], &[]);
        for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nhost:\r\n\r\n"] {
            let mut client = server.client();
            client.write(request).unwrap();
            assert_eq!(client.read().unwrap().status, status, "{request:?} with {rules}");
        }
        assert_eq!(status_http2(&server).map(|found| found.1), Some(status), "HTTP/2 with {rules}");
        let auth = Server::with_rules(rules);
        let mut client = auth.client();
        client.write("GET /v1/auth HTTP/1.0\r\nx-forwarded-uri: /\r\n\r\n").unwrap();
        assert_eq!(client.read().unwrap().status, status, "/v1/auth with {rules}");
    }
}

#[test]
fn requests_go_to_our_upstreams_whatever_they_name() {
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    let server = proxy(RULES, &[&upstream.url()], &[]);
    let host = elsewhere.url().replace("http://", "");
    let mut client = server.client();
    client.write(format!("GET http://{host}/path HTTP/1.1\r\nhost: other\r\n\r\n")).unwrap();
    let seen = client.read().unwrap().json();
    assert_eq!((&seen["target"], &seen["headers"]["host"]), (&"/path".into(), &host.as_str().into()));
    client.write(format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n")).unwrap();
    assert_eq!(client.read().unwrap().status, 405);
    assert_eq!(elsewhere.requests(), 0);
}

#[test]
fn routes_choose_by_path_and_host_and_name_a_domain() {
    let (api, shop, rest) = (Upstream::start(), Upstream::start(), Upstream::start());
    let rules = r#"rules: [{name: api, domain: api, key: all, limits: ["50/h"]}]"#;
    let server = configured(
        rules,
        &format!(
            "[proxy]\nupstream = [{:?}]\n[[route]]\npath = \"/api/*\"\nupstream = [{:?}]\ndomain = \"api\"\ncost = {{ POST = 5 }}\n\
         [[route]]\nhost = \"Shop.example\"\nupstream = [{:?}]\n",
            rest.url(),
            api.url(),
            shop.url(),
        ),
    );
    let mut client = server.client();
    let mut ask = |method: &str, path: &str, host: &str| client.send_with(method, path, &[("host", host)], "").unwrap();
    assert_eq!(remaining(&ask("GET", "/api/x", "shop.example")), 49);
    assert_eq!(remaining(&ask("POST", "/x/..//api/x", "any")), 44);
    assert_eq!(ask("GET", "/apix", "SHOP.example:80").header("x-ratelimit-limit"), None);
    assert_eq!(ask("GET", "/apix", "any").status, 200);
    assert_eq!((api.requests(), shop.requests(), rest.requests()), (2, 1, 1));
    let alone = configured(rules, &format!("[[route]]\npath = \"/api/*\"\nupstream = [{:?}]\n", api.url()));
    let reply = alone.client().get("/elsewhere");
    assert_eq!((reply.status, &reply.json()["type"]), (404, &"urn:checkdam:problem:no_route".into()));
}

#[test]
fn a_request_costs_what_its_method_or_a_trusted_header_says() {
    let upstream = Upstream::start();
    let ask = |arguments: &[&str]| {
        let server = proxy(RULES, &[&upstream.url()], arguments);
        let mut client = server.client();
        let mut left = |method: &str, headers: &[_]| remaining(&client.send_with(method, "/l", headers, "").unwrap());
        (left("GET", &[]), left("POST", &[]), left("POST", &[("x-cost", "20")]))
    };
    let priced = ["--cost", "POST=5", "--cost-header", "X-Cost"];
    assert_eq!(ask(&priced), (99, 94, 89), "a stranger names no cost");
    assert_eq!(ask(&[&priced[..], &["--trusted-proxies", "127.0.0.1"]].concat()), (99, 94, 74));
}

#[test]
fn answers_are_charged_by_their_bytes_when_they_end() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: bytes, key: "ip:{ip}", limits: ["100/h"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--response-bytes", "1000"]);
    let mut client = server.client();
    // Asking costs one itself, and its own answer is shorter than a unit.
    let mut ask_until = |left: u64| {
        let start = Instant::now();
        loop {
            let reply = client.get("/x");
            if reply.status == 429 || remaining(&reply) <= left {
                return reply;
            }
            assert!(start.elapsed() < PATIENCE, "{left} expected: {reply:?}");
        }
    };
    drain(&server, "/zeros/30000");
    let reply = ask_until(70);
    assert!(remaining(&reply) >= 60, "30 for 30,000 bytes: {reply:?}");
    drain(&server, "/zeros/500000");
    let denied = ask_until(0);
    assert_eq!(denied.status, 429, "{denied:?}");
    // 500 for 500,000 bytes, of which at most 70 were left. A request passes when the rest is paid
    // back, of 100 an hour.
    let retry_after_s: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((36 * 430..=36 * 500).contains(&retry_after_s), "{denied:?}");
    assert_eq!(server.client().get("/x").status, 429, "until then nothing does");
}

#[test]
fn a_debt_of_bytes_is_paid_back_and_then_requests_pass() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: bytes, key: "ip:{ip}", limits: ["10/s"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--response-bytes", "1000"]);
    // Two seconds' worth beyond the limit.
    drain(&server, "/zeros/30000");
    let mut client = server.client();
    testkit::wait_until("the debt", PATIENCE, || client.get("/x").status == 429);
    testkit::wait_until("the debt to be paid back", PATIENCE, || client.get("/x").status == 200);
}

#[test]
fn a_client_that_leaves_is_charged_for_what_was_sent() {
    use std::io::{Read, Write};
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: bytes, key: "ip:{ip}", limits: ["1000/h max_debt 1000000000"]}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--response-bytes", "1000"]);
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /zeros/1000000000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut vec![0; 3_000_000]).unwrap();
    drop(stream);
    let mut client = server.client();
    let mut denied = None;
    testkit::wait_until("the charge", PATIENCE, || {
        denied = Some(client.get("/x")).filter(|reply| reply.status == 429);
        denied.is_some()
    });
    // At least what was read, and not the whole gigabyte: a million tokens.
    let retry_after_s: u64 = denied.unwrap().header("retry-after").unwrap().parse().unwrap();
    let tokens = retry_after_s * 10 / 36 + 1_000;
    assert!((2_900..500_000).contains(&tokens), "{tokens} for 3,000,000 bytes that were read");
}

/// Reads an answer to its end.
fn drain(server: &Server, path: &str) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let read = stream.read_to_end(&mut Vec::new()).unwrap();
    assert!(read > 5_000, "{read}");
}

#[test]
fn a_leaky_bucket_delays_requests_within_a_bound() {
    let upstream = Upstream::start();
    let rules = r#"rules: [{name: paced, key: all, limits: ["5/s burst 20"], algorithm: leaky_bucket}]"#;
    let server = proxy(rules, &[&upstream.url()], &["--delay-max", "500ms"]);
    let start = Instant::now();
    let mut statuses: Vec<_> = std::thread::scope(|scope| {
        let ask = || server.client().get("/x");
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).map(|reply| (reply.status, reply)).collect()
    });
    let elapsed = start.elapsed();
    statuses.sort_by_key(|(status, _)| *status);
    // At once, and after 200 and 400 ms.
    let (passed, refused) = statuses.split_at(3);
    assert!(passed.iter().all(|(status, _)| *status == 200), "{statuses:?}");
    assert!(elapsed >= Duration::from_millis(390), "{elapsed:?}");
    assert!(refused.iter().all(|(status, reply)| *status == 429 && reply.header("retry-after") == Some("1")));
    assert_eq!(refused[0].1.json()["violated-policies"][0], "paced", "{refused:?}");
    assert_eq!(upstream.requests(), 3);
    assert_eq!(server.client().get("/x").status, 200, "what was refused was given back");
}

#[test]
fn it_drains_and_its_health_is_on_the_admin_door() {
    let upstream = Upstream::start();
    let mut server = proxy(RULES, &[&upstream.url()], &[]);
    assert_eq!(
        (server.admin().get("/readyz").status, server.client().get("/readyz").json()["target"].clone()),
        (200, "/readyz".into())
    );
    let mut slow = server.client();
    slow.write("GET /slow/1500 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    while upstream.requests() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("TERM");
    server.wait_for_log("shutdown: not ready");
    assert_eq!(server.admin().get("/readyz").status, 503);
    let reply = slow.read().unwrap();
    assert_eq!((reply.status, reply.header("connection"), reply.body.as_str()), (200, Some("close"), "slow"));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_shipped_settings_work() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (file, upstream) = (format!("{root}/deploy/proxy/checkdam.toml"), Upstream::start());
    let rules = rule_file(RULES);
    let given = ["--config", &file, "--rules", rules.to_str().unwrap(), "--audit-rate", "0"];
    let server = Server::proxy(&[&given[..], &["--upstream", &upstream.url()]].concat());
    let sent = [("x-ratelimit-cost", "7"), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(remaining(&server.client().send_with("GET", "/l", &sent, "").unwrap()), 93);
    assert_eq!(remaining(&server.client().post("/l", "")), 95, "another address, and the cost of a POST");
    for route in ["/api/* to http://127.0.0.1:4000", "downloads.example.com/* to http://127.0.0.1:5000"] {
        assert!(server.log().contains(route), "{}", server.log());
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (arguments, part) in [
        (&[][..], "--upstream"),
        (&["--upstream", "127.0.0.1:3000"], "http://127.0.0.1:3000"),
        (&["--upstream", "http://x/path"], "has a path"),
        (&["--upstream", "http://x", "--cost", "POST"], "POST=5"),
        (&["--upstream", "http://x", "--response-bytes", "0"], "response_bytes"),
        (&["--upstream", "http://x", "--health-path", "health"], "/healthz"),
        (&["--upstream", "http://x", "--upstream-ca", "/none.pem"], "/none.pem"),
    ] {
        let output = run(&[&["proxy"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {}", text(&output.stderr));
    }
}
