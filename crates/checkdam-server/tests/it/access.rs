//! Access control of the listeners: API tokens, privileged requests, operators with
//! roles, and the change log.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Output;

use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;
use tonic::metadata::MetadataValue;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use crate::envoy_client::{RateLimitClient, RateLimitDescriptor, RateLimitRequest, Verdict, connect, limited, of};
use crate::http_client::{Client, Reply};
use crate::server_process::{PATIENCE, Server, checkdam, folder, rule_file, run, text};

const API: &str = "an-api-token-of-tests";
const NEXT_API: &str = "the-next-api-token-of-tests";
const ADMIN: &str = "an-admin-token-of-tests";
const EDITOR: &str = "the-token-of-alice-in-tests";
const VIEWER: &str = "the-token-of-victor-in-tests";

const RULES: &str = "rules:\n  - { name: all, key: \"user:{user}\", limits: [\"3/h\"] }\n  \
                     - { name: edge, domain: edge, key: \"user:{user}\", limits: [\"3/h\"] }\n";
const USER: &str = r#"{"attributes": {"user": "42"}}"#;

/// The paths that anybody may ask, whatever the tokens.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

fn send(client: &mut Client, method: &str, path: &str, token: Option<&str>, body: &str) -> Reply {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    client.send_with(method, path, &headers, body).unwrap()
}

fn with_rules(arguments: &[&str]) -> Server {
    let rules = rule_file(RULES);
    Server::with(&[&["--rules", rules.to_str().unwrap()], arguments].concat())
}

/// A settings file with two operators.
fn operators() -> String {
    let path = folder().join("checkdam.toml");
    let entry = |name: &str, role: &str, token: &str| {
        format!("[[admin_tokens]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken = \"{token}\"\n")
    };
    let viewer = folder().join("viewer");
    std::fs::write(&viewer, format!("{VIEWER}\n")).unwrap();
    let by_file = entry("victor", "read", VIEWER)
        .replace(&format!("token = \"{VIEWER}\""), &format!("token_file = {:?}", viewer.to_str().unwrap()));
    std::fs::write(&path, format!("{}{by_file}", entry("alice", "edit", EDITOR))).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_deciding_path_needs_the_api_token() {
    let server = with_rules(&["--api-token", API]);
    let mut client = server.client();
    for (method, path) in [
        ("POST", "/v1/check"),
        ("POST", "/v1/check/batch"),
        ("POST", "/v1/peek"),
        ("POST", "/v1/refund"),
        ("POST", "/v1/reset"),
        ("POST", "/v1/explain"),
        ("POST", "/json"),
        ("GET", "/v1/auth"),
        ("GET", "/v1/auth/cost=1"),
        ("GET", "/metrics"),
    ] {
        for headers in [
            &[][..],
            &[("authorization", "Bearer an-api-token-of-testX")],
            &[("authorization", "Bearer ")],
            &[("authorization", API)],
            &[("authorization", "Basic YW4tYXBpLXRva2VuLW9mLXRlc3Rz")],
            &[("authorization", "Token an-api-token-of-tests")],
        ] {
            let reply = client.send_with(method, path, headers, USER).unwrap();
            assert_eq!(reply.status, 401, "{method} {path} {headers:?}: {reply:?}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{path}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{path}");
            assert!(reply.json()["detail"].as_str().unwrap().contains("Authorization: Bearer"), "{reply:?}");
        }
        let reply = send(&mut client, method, path, Some(API), USER);
        assert!(![401, 403, 404].contains(&reply.status), "{method} {path}: {reply:?}");
    }
    for path in OPEN.into_iter().chain(["/healthz", "/healthcheck", "/openapi.json", "/docs", "/"]) {
        assert_eq!(client.get(path).status, 200, "{path} needs no token");
    }
    let peeked = send(&mut client, "POST", "/v1/peek", Some(API), r#"{"attributes": {"user": "7"}}"#);
    assert_eq!(peeked.json()["remaining"], 3, "what was rejected charged nothing");
    // The token of one listener is none of another.
    assert_eq!(send(&mut server.admin(), "GET", "/metrics", Some(API), "").status, 200);
    assert_eq!(server.admin().get("/metrics").status, 401);
    assert!(server.log().contains("a request has no valid API token"), "{}", server.log());
    assert!(!server.log().contains(API), "{}", server.log());
}

#[test]
fn forward_auth_takes_the_token_in_a_header_of_its_own() {
    let rules = "rules:\n  - { name: all, key: \"{authorization}\", limits: [\"2/h\"] }\n";
    let rules = rule_file(rules);
    let attributes = ["--header-attributes", "Authorization=authorization"];
    let server = Server::with(&[&["--rules", rules.to_str().unwrap(), "--api-token", API], &attributes[..]].concat());
    let mut client = server.client();
    let mut asked = |headers: &[(&str, &str)]| client.send_with("GET", "/v1/auth", headers, "").unwrap();
    let of_client = ("authorization", "Bearer of-the-client");
    assert_eq!(asked(&[of_client]).status, 401, "that of the proxy's client is no API token");
    assert_eq!(asked(&[of_client, ("x-checkdam-token", "wrong")]).status, 401);
    for status in [200, 200, 429] {
        assert_eq!(asked(&[of_client, ("x-checkdam-token", API)]).status, status);
    }
    let bearer = format!("Bearer {API}");
    for _ in 0..3 {
        let reply = asked(&[("authorization", &bearer), ("x-checkdam-token", "the client's")]);
        assert_eq!(reply.status, 200, "no attribute is made of the API token: {reply:?}");
    }
    let refused = server.client().send_with("GET", "/v1/auth/denied=403", &[], "").unwrap();
    assert_eq!((refused.status, refused.header("x-checkdam-status")), (403, Some("401")), "as nginx takes it");
}

fn rate_limit(token: Option<&str>, descriptors: &[RateLimitDescriptor]) -> tonic::Request<RateLimitRequest> {
    let message = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors.to_vec(),
        ..RateLimitRequest::default()
    };
    let mut request = tonic::Request::new(message);
    if let Some(token) = token {
        let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

#[test]
fn grpc_needs_the_api_token_and_health_does_not() {
    let server = with_rules(&["--api-token", API]);
    let mut client = RateLimitClient::of(&server);
    let user = of(&[("user", "42")]);
    for token in [None, Some("an-api-token-of-testX"), Some("")] {
        let refused = client.send(rate_limit(token, std::slice::from_ref(&user))).unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
        assert!(refused.message().contains("authorization: Bearer"), "{refused:?}");
    }
    let passed: Vec<_> = (0..4)
        .map(|_| client.send(rate_limit(Some(API), std::slice::from_ref(&user))).unwrap().overall_code())
        .collect();
    assert_eq!(passed, [Verdict::Ok, Verdict::Ok, Verdict::Ok, Verdict::OverLimit], "rejected calls charged nothing");
    assert!(server.log().contains("failure_mode_deny"), "Envoy would let requests pass: {}", server.log());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = connect(&server).await;
        HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
        let listed = v1::ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..v1::ServerReflectionRequest::default()
        };
        let mut reflection = ServerReflectionClient::new(channel);
        let asked = |token: Option<&str>| {
            let mut request = tonic::Request::new(tokio_stream::once(listed.clone()));
            if let Some(token) = token {
                request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
            }
            request
        };
        let refused = reflection.server_reflection_info(asked(None)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
        let mut answers = reflection.server_reflection_info(asked(Some(API))).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some());
    });
}

#[test]
fn tokens_are_rotated_by_their_file() {
    let path = folder().join("token");
    std::fs::write(&path, API).unwrap();
    let mut server = with_rules(&["--api-token-file", path.to_str().unwrap()]);
    let mut client = server.client();
    let mut statuses = || [API, NEXT_API].map(|token| send(&mut client, "POST", "/v1/peek", Some(token), USER).status);
    assert_eq!(statuses(), [200, 401]);
    for (content, expected) in [
        (format!("{API}\n{NEXT_API}\n"), [200, 200]),
        (format!("{NEXT_API}\n"), [401, 200]),
        (API.to_owned(), [200, 401]),
    ] {
        // As Kubernetes and editors replace a file: by a rename.
        let new = path.with_extension("new");
        std::fs::write(&new, &content).unwrap();
        std::fs::rename(&new, &path).unwrap();
        let start = Instant::now();
        while statuses() != expected {
            assert!(start.elapsed() < PATIENCE, "{content:?}: {}", server.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    std::fs::write(&path, "short").unwrap();
    server.wait_for_log("stays as it was");
    assert_eq!(statuses(), [200, 401], "a file that cannot be used changes nothing");
}

#[test]
fn several_tokens_weak_tokens_and_redaction() {
    let both = format!("{API},{NEXT_API}");
    let server = with_rules(&["--api-token", &both]);
    let mut client = server.client();
    for (token, status) in [(API, 200), (NEXT_API, 200), (&*both, 401)] {
        assert_eq!(send(&mut client, "POST", "/v1/peek", Some(token), USER).status, status, "{token}");
    }
    for (arguments, reason) in [
        (&["--api-token", "short"][..], "the API token has 5 characters"),
        (&["--api-token-file", "/nowhere/token"], "/nowhere/token"),
        (&["--api-token-file", "/dev/null"], "not a regular file"),
        (&["--privileged-requests", "sometimes"], "sometimes"),
    ] {
        let refused = run(&[&["serve", "--http-listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(&refused.stderr).contains(reason), "{}", text(&refused.stderr));
    }
    let shown =
        checkdam().env("CHECKDAM_API_TOKEN", API).args(["config", "check", "--config", &operators()]).output().unwrap();
    let shown = text(&shown.stdout) + &text(&shown.stderr);
    assert!(shown.contains("alice (edit), victor (read)"), "{shown}");
    for secret in [API, EDITOR, VIEWER] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// Asks for each of the privileged requests over HTTP.
fn privileged(server: &Server, token: Option<&str>) -> Vec<Reply> {
    let mut client = server.client();
    let descriptor = |more: &str| {
        format!(r#"{{"domain": "edge", "descriptors": [{{"entries": [{{"key": "user", "value": "1"}}], {more}}}]}}"#)
    };
    [
        ("/v1/reset", USER.to_owned()),
        ("/v1/refund", USER.to_owned()),
        ("/json", descriptor(r#""limit": {"requests_per_unit": 9, "unit": "HOUR"}"#)),
        ("/json", descriptor(r#""is_negative_hits": true"#)),
    ]
    .map(|(path, body)| send(&mut client, "POST", path, token, &body))
    .into()
}

fn everywhere(arguments: &[&str]) -> Server {
    let listen = ["--http-listen", "0.0.0.0:0", "--grpc-listen", "0.0.0.0:0"];
    let rules = rule_file(RULES);
    let mut command = checkdam();
    command.arg("serve").args(listen).args(["--rules", rules.to_str().unwrap()]).args(arguments);
    Server::of(command)
}

#[test]
fn privileged_requests_need_loopback_or_a_token() {
    let allowed = |server: &Server, token: Option<&str>| {
        for reply in privileged(server, token) {
            assert_eq!(reply.status, 200, "{reply:?}");
        }
    };
    let denied = |server: &Server, token: Option<&str>| {
        let fields = ["/v1/reset", "/v1/refund", "descriptors[0].limit", "descriptors[0].is_negative_hits"];
        for (reply, field) in privileged(server, token).into_iter().zip(fields) {
            assert_eq!(reply.status, 403, "{reply:?}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
            let problem = reply.json();
            assert_eq!(
                (&problem["field"], &problem["type"]),
                (&json!(field), &json!("urn:checkdam:problem:privileged"))
            );
            assert!(problem["detail"].as_str().unwrap().contains("--privileged-requests"), "{problem}");
        }
        // All else is decided.
        let plain = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "1"}]}]}"#;
        for (path, body) in [("/json", plain), ("/v1/check", USER), ("/v1/peek", USER)] {
            assert_eq!(send(&mut server.client(), "POST", path, token, body).status, 200, "{path}");
        }
    };
    allowed(&with_rules(&[]), None);
    allowed(&everywhere(&["--api-token", API]), Some(API));
    allowed(&everywhere(&["--privileged-requests", "allow"]), None);
    let open = everywhere(&[]);
    denied(&open, None);
    let log = open.log();
    assert_eq!(log.matches("resets, refunds and request limits are off").count(), 2, "each listener says so: {log}");
    let denying = with_rules(&["--privileged-requests", "deny", "--api-token", API]);
    denied(&denying, Some(API));
    assert!(denying.log().contains("(--privileged-requests deny)"), "{}", denying.log());
    for path in ["/admin/v1/reset", "/admin/v1/refund"] {
        assert_eq!(denying.admin().post(path, USER).status, 200, "{path}: operators still may");
    }
}

/// An error would let requests pass, so that what is not permitted is ignored.
#[test]
fn privileged_grpc_requests_are_ignored_where_they_are_not_permitted() {
    let generous = limited(1_000, 3, &[("user", "1")]);
    let refund = |descriptor: RateLimitDescriptor| RateLimitDescriptor {
        is_negative_hits: true,
        hits_addend: Some(3),
        ..descriptor
    };
    let open = everywhere(&[]);
    let mut client = RateLimitClient::of(&open);
    assert_eq!(client.passing(&of(&[("user", "1")]), 5), 3);
    let answer = client.ask(&[refund(of(&[("user", "1")])), of(&[("user", "2")])]);
    assert_eq!(answer.statuses[1].limit_remaining, 2, "the others are decided: {answer:?}");
    assert_eq!(client.passing(&of(&[("user", "1")]), 1), 0, "nothing was refunded");
    let status = client.one(&generous);
    assert_eq!(status.code(), Verdict::OverLimit, "the rule's own limit counts: {status:?}");
    assert!(open.log().contains("the gRPC listener ignores"), "{}", open.log());
    let warnings = open.admin().get("/admin/v1/status").json()["warnings"].clone();
    assert_eq!(warnings[0]["topic"], "privileged_requests", "{warnings}");

    let loopback = with_rules(&[]);
    let mut client = RateLimitClient::of(&loopback);
    assert_eq!(client.passing(&of(&[("user", "1")]), 5), 3);
    client.ask(&[refund(of(&[("user", "1")]))]);
    assert_eq!(client.passing(&of(&[("user", "1")]), 5), 3, "it was refunded");
    assert_eq!(loopback.admin().get("/admin/v1/status").json()["warnings"], json!([]));
}

/// Every operation of the OpenAPI document, with values for its parameters.
fn operations(server: &Server) -> Vec<(String, String)> {
    let document = server.client().get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let mut all = Vec::new();
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys().filter(|key| ["get", "post", "put", "delete"].contains(&&***key))
        {
            all.push((method.to_uppercase(), path.replace("{name}", "all")));
        }
    }
    assert!(all.len() > 25, "{all:?}");
    all
}

#[test]
fn without_credentials_nothing_decides_reveals_or_edits() {
    let server = Server::with(&["--api-token", API, "--admin-token", ADMIN]);
    let before = send(&mut server.admin(), "GET", "/admin/v1/rules/export", Some(ADMIN), "").body;
    let mut seen = 0;
    for (method, path) in operations(&server) {
        for (address, other) in [(server.address(), ADMIN), (server.admin_address(), API)] {
            let is_api = address == server.address();
            if OPEN.contains(&&*path) {
                continue;
            }
            for token in [None, Some("a-token-that-is-not-one"), Some(other)] {
                let reply = send(&mut Client::connect(address), &method, &path, token, USER);
                let is_scrape = path == "/metrics" && !is_api && token == Some(API);
                if is_scrape {
                    assert_eq!(reply.status, 200, "{reply:?}");
                    continue;
                }
                assert!([401, 404].contains(&reply.status), "{method} {path} at {address} by {token:?}: {reply:?}");
                seen += usize::from(reply.status == 401);
            }
        }
    }
    assert!(seen > 75, "{seen} were rejected for their tokens");
    assert_eq!(send(&mut server.admin(), "GET", "/admin/v1/rules/export", Some(ADMIN), "").body, before);
    let mut envoy = RateLimitClient::of(&server);
    assert_eq!(envoy.send(rate_limit(None, &[of(&[("user", "1")])])).unwrap_err().code(), Code::Unauthenticated);
}

#[test]
fn the_role_read_sees_everything_and_edits_nothing() {
    let settings = operators();
    let server = Server::with(&["--config", &settings, "--admin-token", ADMIN]);
    let rule = r#"{"name": "all", "key": "all:{user}", "limits": ["1/h"]}"#;
    let mut admin = server.admin();
    assert_eq!(send(&mut admin, "POST", "/admin/v1/rules", Some(EDITOR), rule).status, 201);
    let before = send(&mut admin, "GET", "/admin/v1/rules/export", Some(VIEWER), "").body;
    let reading = ["/admin/v1/inspect", "/admin/v1/rules/preview", "/admin/v1/rules/validate"];
    for (method, path) in operations(&server).into_iter().filter(|(_, path)| path.starts_with("/admin/")) {
        if path == "/admin/v1/live" {
            continue;
        }
        let body = match (&*method, &*path) {
            ("GET", _) => String::new(),
            (_, "/admin/v1/rules/preview") => json!({"name": "all", "rule": null}).to_string(),
            (_, "/admin/v1/rules/validate") => rule.to_owned(),
            _ => USER.to_owned(),
        };
        let reply = send(&mut admin, &method, &path, Some(VIEWER), &body);
        if method == "GET" || reading.contains(&&*path) {
            assert!(![401, 403].contains(&reply.status), "{method} {path}: {reply:?}");
            continue;
        }
        assert_eq!(reply.status, 403, "{method} {path}: {reply:?}");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("victor") && detail.contains("role edit"), "{detail}");
        for token in [EDITOR, ADMIN] {
            let reply = send(&mut admin, &method, &path, Some(token), "not for this path");
            assert!(![401, 403].contains(&reply.status), "{method} {path}: {reply:?}");
        }
    }
    // What the editors sent was either invalid, or removed what was there.
    assert!(before.contains("name: all"), "{before}");
    let refused = checkdam()
        .env("CHECKDAM_ADMIN_TOKEN", VIEWER)
        .args(["ban", "user:42", "--server", &format!("http://{}", server.admin_address())])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("role edit"), "{}", text(&refused.stderr));
}

#[test]
fn a_withdrawn_admin_token_ends_its_live_stream() {
    let path = folder().join("admin");
    std::fs::write(&path, format!("{ADMIN}\n{EDITOR}\n")).unwrap();
    let mut server = Server::with(&["--admin-token-file", path.to_str().unwrap()]);
    let listen = |token: &str| {
        let mut stream = TcpStream::connect(server.admin_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET /admin/v1/live HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        wait_for_line(&mut stream, "event: tick").unwrap();
        stream
    };
    let (mut kept, mut withdrawn) = (listen(ADMIN), listen(EDITOR));
    std::fs::write(&path, format!("{ADMIN}\n")).unwrap();
    server.wait_for_log("was read again from its file");
    wait_for_line(&mut withdrawn, "0").expect("the last chunk");
    for _ in 0..2 {
        wait_for_line(&mut kept, "event: tick").expect("it goes on");
    }
}

/// Reads to the end of a line that is this; none if the stream ends, or after 100 lines.
fn wait_for_line(stream: &mut impl BufRead, expected: &str) -> Option<()> {
    let mut lines = stream.lines().take(100).map_while(Result::ok);
    lines.find(|line| line.trim_end() == expected).map(drop)
}

#[test]
fn an_api_token_that_is_an_admin_token_is_rejected() {
    let refused = run(&["serve", "--http-listen", "127.0.0.1:0", "--api-token", API, "--admin-token", API]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("api_token") && said.contains("admin_token"), "{said}");
    assert!(!said.contains(API), "{said}");
    let path = folder().join("api");
    std::fs::write(&path, API).unwrap();
    let mut server = Server::with(&["--api-token-file", path.to_str().unwrap(), "--admin-token", ADMIN]);
    std::fs::write(&path, format!("{API}\n{ADMIN}\n")).unwrap();
    server.wait_for_log("the API token is the same as the admin token");
    assert!(!server.log().contains(ADMIN), "{}", server.log());
    assert_eq!(send(&mut server.client(), "POST", "/v1/peek", Some(ADMIN), USER).status, 401);
    assert_eq!(send(&mut server.client(), "POST", "/v1/peek", Some(API), USER).status, 200);
}

fn changes(server: &Server, token: Option<&str>, query: &str) -> Vec<Value> {
    let reply = send(&mut server.admin(), "GET", &format!("/admin/v1/changes?{query}"), token, "");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["changes"].as_array().unwrap().clone()
}

/// Who did what, oldest first.
fn told(changes: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line =
        |change: &Value| ["actor", "action", "kind", "name", "subject"].map(|field| text(&change[field])).join(" ");
    changes.iter().rev().map(line).collect()
}

#[test]
fn edits_are_recorded_with_who_made_them() {
    let (data, settings) = (folder(), operators());
    let server = Server::with(&["--config", &settings, "--admin-token", ADMIN, "--data-dir", data.to_str().unwrap()]);
    let database = format!("sqlite://{}/checkdam.db", data.display());
    let cli = |arguments: &[&str], token: Option<&str>| -> Output {
        let mut command = checkdam();
        command.env("USER", "tester").args(arguments);
        match token {
            Some(token) => {
                command.env("CHECKDAM_ADMIN_TOKEN", token);
                command.args(["--server", &format!("http://{}", server.admin_address())])
            }
            None => command.args(["--database", &database]),
        };
        let done = command.output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        done
    };
    let mut admin = server.admin();
    let rule = |burst: u32| format!(r#"{{"name": "tiny", "key": "tiny:{{user}}", "limits": ["1/h burst {burst}"]}}"#);
    assert_eq!(send(&mut admin, "POST", "/admin/v1/rules", Some(EDITOR), &rule(2)).status, 201);
    assert_eq!(send(&mut admin, "PUT", "/admin/v1/rules/tiny", Some(ADMIN), &rule(5)).status, 200);
    cli(&["ban", "user:1"], Some(EDITOR));
    cli(&["ban", "user:2"], None);
    cli(&["unban", "user:2"], None);
    let file = rule_file(&format!("rules: [{}]\nbans: [{{subject: 'user:3'}}]\n", rule(7)));
    cli(&["rules", "import", file.to_str().unwrap()], Some(EDITOR));
    assert_eq!(send(&mut admin, "DELETE", "/admin/v1/rules/tiny", Some(EDITOR), "").status, 204);
    assert_eq!(send(&mut admin, "DELETE", "/admin/v1/rules/tiny", Some(EDITOR), "").status, 404, "nothing to record");

    let all = changes(&server, Some(VIEWER), "");
    let expected = [
        "checkdam seed rulebook - -",
        "alice add rule tiny -",
        "admin change rule tiny -",
        "alice add ban - user:1",
        "cli:tester add ban - user:2",
        "cli:tester remove ban - user:2",
        "alice import rulebook - -",
        "alice remove rule tiny -",
    ];
    assert_eq!(told(&all), expected);
    assert_eq!(all[5]["before"]["limits"], json!(["1/h burst 2"]));
    assert_eq!(all[5]["after"]["limits"], json!(["1/h burst 5"]));
    assert_eq!((&all[1]["after"]["added"], &all[1]["after"]["changed"]), (&json!(1), &json!(1)), "{}", all[1]);
    assert_eq!(changes(&server, Some(VIEWER), "actor=alice&kind=rule").len(), 2);
    let page = send(&mut admin, "GET", "/admin/v1/changes?limit=3", Some(VIEWER), "").json();
    let behind = changes(&server, Some(VIEWER), &format!("before={}", page["next"]));
    assert_eq!(behind, all[3..]);
    for query in ["actor=", "serach=x", "before=x", "limit=0", "since=yesterday"] {
        let reply = send(&mut admin, "GET", &format!("/admin/v1/changes?{query}"), Some(VIEWER), "");
        assert_eq!(reply.status, 422, "{query}: {reply:?}");
    }

    // The command line shows the same from either place.
    let (of_server, of_database) = (cli(&["changes"], Some(VIEWER)), cli(&["changes"], None));
    assert_eq!(text(&of_server.stdout), text(&of_database.stdout));
    let table = text(&of_server.stdout);
    assert!(
        table.contains("cli:tester") && table.contains("limits") && table.contains("1 added, 1 changed"),
        "{table}"
    );
    let json: Value = serde_json::from_slice(&cli(&["changes", "--rule", "tiny", "--json"], None).stdout).unwrap();
    assert_eq!(json["changes"].as_array().unwrap().len(), 3, "{json}");
}

#[test]
fn the_change_log_is_bounded_and_anonymous_without_tokens() {
    let server = Server::with(&["--change-rows", "5"]);
    let mut admin = server.admin();
    for number in 0..12 {
        let ban = format!(r#"{{"subject": "user:{number}"}}"#);
        assert_eq!(admin.send("PUT", "/admin/v1/bans", &ban).unwrap().status, 200);
    }
    let all = changes(&server, None, "limit=1000");
    let expected: Vec<String> = (7..12).map(|number| format!("anonymous add ban - user:{number}")).collect();
    assert_eq!(told(&all), expected);
}

#[test]
fn commands_send_the_api_token() {
    let server = with_rules(&["--api-token", API]);
    let path = folder().join("token");
    std::fs::write(&path, format!("{API}\n{NEXT_API}\n")).unwrap();
    let (url, file) = (server.url(), path.to_str().unwrap());
    let grpc = format!("http://{}", server.grpc_address());
    let short = ["--duration", "100ms", "--warmup", "0s", "--connections", "1", "--requests", "3", "--quiet"];
    let bench = [&["bench", &url][..], &short].concat();
    let bench_grpc = [&["bench", &grpc, "--grpc", "--domain", "edge"][..], &short].concat();
    let (check, explain) =
        (["check", "user=1", "--server", &url].to_vec(), ["explain", "user=2", "--server", &url].to_vec());
    for command in [check, explain, bench, bench_grpc] {
        let refused = run(&command);
        assert_eq!(refused.status.code(), Some(2), "{command:?}: {}", text(&refused.stderr));
        for token in [["--api-token", API], ["--api-token-file", file]] {
            let done = run(&[&command[..], &token].concat());
            assert!(done.status.success(), "{command:?} {token:?}: {}", text(&done.stderr));
        }
        let done = checkdam().env("CHECKDAM_API_TOKEN", API).args(&command).output().unwrap();
        assert!(done.status.success(), "{command:?}: {}", text(&done.stderr));
    }
    assert!(run(&["health", &url]).status.success(), "health needs no token");
}
