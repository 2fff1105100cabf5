//! `/v1/auth`, asked as proxies ask.

use serde_json::json;

use crate::http_client::{Client, Reply};
use crate::server_process::{Server, rule_file};

const RULES: &str = r#"
rules:
  - { name: all, key: "{method} {endpoint} {host} {ip}", limits: ["100/h"] }
  - { name: few, when: { endpoint: /few }, key: "few", limits: ["2/h"] }
  - { name: shaped, when: { endpoint: /shaped }, key: "shaped", algorithm: leaky_bucket, limits: ["1/h burst 10"] }
  - { name: of-a-plan, domain: shop, key: "plan:{plan}", limits: ["10/h"] }
"#;

fn server(settings: &[&str]) -> Server {
    let rules = rule_file(RULES);
    Server::with(&[&["--rules", rules.to_str().unwrap()], settings].concat())
}

fn ask(client: &mut Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    client.send_with("GET", path, headers, "").unwrap()
}

#[test]
fn headers_tell_which_request_is_asked_about() {
    let server = server(&["--trusted-proxies", "127.0.0.0/8"]);
    let mut client = server.client();
    let own = ("GET", "/v1/auth", "localhost", "127.0.0.1");
    type Case<'a> = (&'a [(&'a str, &'a str)], (&'a str, &'a str, &'a str, &'a str));
    let cases: &[Case<'_>] = &[
        (&[], own),
        (&[("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/a?b")], ("PUT", "/a", own.2, own.3)),
        (&[("x-original-method", "PUT"), ("x-original-uri", "/b?b")], ("PUT", "/b", own.2, own.3)),
        (&[("x-original-url", "https://Shop.Example:443/c?d")], (own.0, "/c", "shop.example", own.3)),
        (
            &[("x-forwarded-host", "A.example:80"), ("x-forwarded-for", "203.0.113.9")],
            (own.0, own.1, "a.example", "203.0.113.9"),
        ),
        (&[("x-forwarded-for", "2001:db8:1:2:3::4")], (own.0, own.1, own.2, "2001:db8:1:2::")),
        // Several that say the same, each in its way.
        (
            &[("x-forwarded-uri", "/e?1"), ("x-original-uri", "//%65"), ("x-original-url", "http://b.example/e")],
            (own.0, "/e", "b.example", own.3),
        ),
        // What is empty says nothing.
        (&[("x-forwarded-uri", ""), ("x-original-uri", "/f"), ("x-forwarded-method", "")], (own.0, "/f", own.2, own.3)),
    ];
    for (headers, (method, endpoint, host, ip)) in cases {
        let reply = ask(&mut client, "/v1/auth?cost=50", headers);
        assert_eq!((reply.status, reply.body.as_str()), (200, ""), "{headers:?}: {reply:?}");
        assert_eq!(reply.header("x-ratelimit-remaining"), Some("99"), "{headers:?}: {reply:?}");
        assert!(reply.header("ratelimit").is_some() && reply.header("ratelimit-policy").is_some(), "{reply:?}");
        let attributes = json!({"method": method, "endpoint": endpoint, "host": host, "ip": ip});
        let peeked = client.ok("/v1/peek", &json!({ "attributes": attributes }).to_string());
        assert_eq!(peeked["remaining"], 99, "{headers:?} is not {attributes}");
    }
    // Whatever the method of the question itself.
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PURGE"] {
        assert_eq!(client.send_with(method, "/v1/auth", &[], "ignored").unwrap().status, 200, "{method}");
    }
}

#[test]
fn strangers_name_no_client() {
    let mut server = server(&["--cost-header", "X-Cost"]);
    let mut client = server.client();
    for address in ["203.0.113.1", "203.0.113.2"] {
        ask(&mut client, "/v1/auth", &[("x-forwarded-for", address), ("x-cost", "40")]);
    }
    let asked =
        json!({"attributes": {"method": "GET", "endpoint": "/v1/auth", "host": "localhost", "ip": "127.0.0.1"}});
    assert_eq!(client.ok("/v1/peek", &asked.to_string())["remaining"], 98);
    server.wait_for_log("--trusted-proxies");
    assert_eq!(server.log().matches("--trusted-proxies").count(), 1, "it is said once");
}

#[test]
fn trusted_proxies_and_options_name_a_cost() {
    let server = server(&["--trusted-proxies", "127.0.0.1", "--cost-header", "X-Cost"]);
    let mut client = server.client();
    let reply = ask(&mut client, "/v1/auth", &[("x-cost", "40")]);
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("60"));
    let reply = ask(&mut client, "/v1/auth/cost=50", &[("x-cost", "1")]);
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("10"));
    let reply = ask(&mut client, "/v1/auth/domain=shop&attr.plan=free", &[]);
    assert_eq!(reply.header("ratelimit-policy"), Some("\"of-a-plan\";q=10;w=3600"));
    let peeked = client.ok("/v1/peek", r#"{"domain": "shop", "attributes": {"plan": "free"}}"#);
    assert_eq!(peeked["remaining"], 9);
}

#[test]
fn refusals_tell_the_client_when_to_come_back_and_no_more() {
    let server = server(&[]);
    let mut client = server.client();
    let few = [("x-forwarded-uri", "/few")];
    for _ in 0..2 {
        assert_eq!(ask(&mut client, "/v1/auth", &few).status, 200);
    }
    let reply = ask(&mut client, "/v1/auth", &few);
    assert_eq!((reply.status, reply.header("content-type")), (429, Some("application/problem+json")));
    assert!(reply.header("retry-after").is_some() && reply.header("ratelimit").is_some(), "{reply:?}");
    assert_eq!(reply.header("x-checkdam-status"), None);
    let problem = reply.json();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["few"])), "{problem}");
    assert!(problem.get("tiers").is_none() && !reply.body.contains("127.0.0.1"), "{problem}");
    // For proxies that understand only 403.
    let reply = ask(&mut client, "/v1/auth/denied=403", &few);
    assert_eq!((reply.status, reply.header("x-checkdam-status")), (403, Some("429")), "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    let reply = ask(&mut client, "/v1/auth/denied=403&cost=101", &[]);
    assert_eq!((reply.status, reply.header("x-checkdam-status")), (403, Some("422")), "{reply:?}");
    assert_eq!(ask(&mut client, "/v1/auth/cost=101", &[]).status, 422);
}

#[test]
fn a_delay_is_told_because_this_door_cannot_wait() {
    let server = server(&[]);
    let mut client = server.client();
    let shaped = [("x-forwarded-uri", "/shaped")];
    let first = ask(&mut client, "/v1/auth", &shaped);
    assert_eq!((first.status, first.header("x-checkdam-delay-ms")), (200, None));
    let second = ask(&mut client, "/v1/auth", &shaped);
    let delay_ms: u64 = second.header("x-checkdam-delay-ms").unwrap().parse().unwrap();
    assert!((3_000_000..=3_600_000).contains(&delay_ms), "{delay_ms}");
}

#[test]
fn what_cannot_be_read_is_refused_by_name_and_charges_nothing() {
    let server =
        server(&["--header-attributes", "X-User=user", "--trusted-proxies", "127.0.0.1", "--cost-header", "x-cost"]);
    let mut client = server.client();
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], u16, &'a str, &'a str);
    let cases: &[Case<'_>] = &[
        ("", &[("x-forwarded-uri", "/a"), ("x-original-uri", "/b")], 400, "x-original-uri", "/b"),
        ("", &[("x-forwarded-uri", "/a"), ("x-original-url", "http://h/b")], 400, "x-original-url", "/b"),
        ("", &[("x-forwarded-host", "a"), ("x-original-url", "http://b/")], 400, "x-original-url", "\"b\""),
        ("", &[("x-forwarded-method", "GET"), ("x-original-method", "PUT")], 400, "x-original-method", "PUT"),
        ("", &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/a")], 400, "x-forwarded-uri", "2 times"),
        ("", &[("x-forwarded-method", "GET /")], 400, "x-forwarded-method", "GET /"),
        ("", &[("x-user", "1"), ("x-user", "2")], 400, "x-user", "2 times"),
        ("", &[("x-cost", "0")], 400, "x-cost", "\"0\""),
        ("/domain=x&nonsense=1", &[], 422, "nonsense", "no such option"),
        ("/denied=404", &[], 422, "denied", "404"),
        ("/cost=0", &[], 422, "cost", "\"0\""),
        ("/cost=x", &[], 422, "cost", "\"x\""),
        ("/cost=3&cost=1", &[], 400, "cost", "more than once"),
        ("/domain=a&domain=a", &[], 400, "domain", "more than once"),
        ("/attr.plan=a&attr.plan=b", &[], 400, "attr.plan", "more than once"),
        ("/attr.plan=", &[], 422, "attr.plan", "empty"),
        ("/attr.ip=203.0.113.9", &[], 422, "attr.ip", "twice"),
        ("/attr.=x", &[], 422, "attr.", "empty name"),
    ];
    for (options, headers, status, field, detail) in cases {
        let reply = ask(&mut client, &format!("/v1/auth{options}"), headers);
        assert_eq!(reply.status, *status, "{options} {headers:?}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        let problem = reply.json();
        assert_eq!(problem["field"], *field, "{options} {headers:?}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{options} {headers:?}: {problem}");
        let joined = if options.is_empty() { "/denied=403".to_owned() } else { format!("{options}&denied=403") };
        let reply = ask(&mut client, &format!("/v1/auth{joined}"), headers);
        let (true_status, status) = (reply.header("x-checkdam-status").unwrap_or_default(), status.to_string());
        assert_eq!((reply.status, true_status), (403, status.as_str()), "{joined} {headers:?}: {reply:?}");
    }
    let long = format!("/v1/auth/domain={}", "d".repeat(513));
    assert_eq!(ask(&mut client, &long, &[]).json()["field"], "domain");
    client.write(b"GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nx-user: \xff\r\n\r\n").unwrap();
    assert_eq!(client.read().unwrap().json()["field"], "x-user");
    let asked =
        json!({"attributes": {"method": "GET", "endpoint": "/v1/auth", "host": "localhost", "ip": "127.0.0.1"}});
    assert_eq!(client.ok("/v1/peek", &asked.to_string())["remaining"], 100);
}

#[test]
fn the_description_has_the_door() {
    let server = server(&[]);
    let operation = server.client().get("/openapi.json").json()["paths"]["/v1/auth"]["get"].clone();
    for status in ["200", "400", "403", "422", "429", "503"] {
        assert!(operation["responses"][status].is_object(), "{status} is not described");
    }
    assert!(operation["responses"]["429"]["headers"]["Retry-After"].is_object());
    assert!(operation["responses"]["200"]["headers"]["RateLimit"].is_object());
}

/// The application behind the proxy may follow them or not.
#[test]
fn a_path_with_dot_segments_is_refused() {
    let server = server(&[]);
    let mut client = server.client();
    for (name, path) in
        [("x-forwarded-uri", "/few/../x"), ("x-original-uri", "/a/%2e%2E/few"), ("x-original-url", "/./few")]
    {
        let reply = ask(&mut client, "/v1/auth", &[(name, path)]);
        assert_eq!(reply.status, 400, "{name}: {path}: {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains("dot segments"), "{reply:?}");
    }
    assert_eq!(ask(&mut client, "/v1/auth", &[("x-forwarded-uri", "/.well-known/..x?a=../b")]).status, 200);
}
