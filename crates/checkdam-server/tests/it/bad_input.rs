//! What is refused: each with the right status, as problem+json that names the
//! field and the value, and with nothing charged.

use serde_json::Value;

use crate::http_client::{Client, Reply};
use crate::server_process::Server;

const RULES: &str = "rules: [{name: per-user, key: \"user:{user}\", limits: [\"1/h burst 100\"]}]";

/// A body, the status it gets, the field it names, and a part of the detail.
type Case = (&'static str, u16, &'static str, &'static str);

const CASES: &[Case] = &[
    ("", 400, "body", "empty"),
    ("   ", 400, "body", "EOF"),
    ("{", 400, "body", "EOF"),
    ("nonsense", 400, "body", "send JSON, such as {\"attributes\": {\"user\": \"42\"}}"),
    ("user=42&plan=free", 400, "body", "send JSON"),
    (r#"{"attributes": {"user": "42"}"#, 400, "body", "EOF"),
    (r#"{"attributes": {"user": "42"}} more"#, 400, "body", "trailing"),
    (r#"{"attributes": {'user': "42"}}"#, 400, "body", "key must be a string"),
    ("[]", 400, "body", "/v1/check/batch"),
    (r#"["", {"user": "42"}, 1]"#, 400, "body", "expected a JSON object"),
    ("42", 400, "body", "`42`"),
    ("null", 400, "body", "null"),
    ("{}", 400, "attributes", "missing"),
    (r#"{"cost": 1}"#, 400, "attributes", "missing"),
    (r#"{"attributes": null}"#, 400, "attributes", "null"),
    (r#"{"attributes": []}"#, 400, "attributes", "sequence"),
    (r#"{"attributes": [["user", "42"]]}"#, 400, "attributes", "sequence"),
    (r#"{"attributes": "user=42"}"#, 400, "attributes", "user=42"),
    (r#"{"attributes": {"user": 4.2}}"#, 400, "attributes.user", "a string, a whole number, true or false"),
    (r#"{"attributes": {"user": 18446744073709551616}}"#, 400, "attributes.user", "whole number"),
    (r#"{"attributes": {"user": null}}"#, 400, "attributes.user", "null"),
    (r#"{"attributes": {"user": ["42"]}}"#, 400, "attributes.user", "sequence"),
    (r#"{"attributes": {"user": {"id": "42"}}}"#, 400, "attributes.user", "map"),
    (r#"{"attributes": {"user": "42"}, "hits": 1}"#, 400, "hits", "`hits`"),
    (r#"{"attributes": {"user": "42"}, "domain": 5}"#, 400, "domain", "`5`"),
    (r#"{"attributes": {"user": "42"}, "domain": null}"#, 400, "domain", "null"),
    (r#"{"attributes": {"user": "42"}, "cost": "1"}"#, 400, "cost", "\"1\""),
    (r#"{"attributes": {"user": "42"}, "cost": null}"#, 400, "cost", "null"),
    (r#"{"attributes": {"user": "42"}, "cost": [1]}"#, 400, "cost", "sequence"),
    (r#"{"attributes": {"user": "42"}, "cost": true}"#, 400, "cost", "`true`"),
    (r#"{"attributes": {"user": "42"}, "cost": 1, "cost": 1}"#, 400, "cost", "duplicate"),
    (r#"{"attributes": {"user": "42"}, "cost": 0}"#, 422, "cost", "/v1/peek"),
    (r#"{"attributes": {"user": "42"}, "cost": -1}"#, 422, "cost", "-1"),
    (r#"{"attributes": {"user": "42"}, "cost": -0.0}"#, 422, "cost", "-0.0"),
    (r#"{"attributes": {"user": "42"}, "cost": 1.5}"#, 422, "cost", "1.5"),
    (r#"{"attributes": {"user": "42"}, "cost": 9223372036854775808}"#, 422, "cost", "9223372036854775808"),
    (r#"{"attributes": {"user": "42"}, "cost": 18446744073709551616}"#, 422, "cost", "whole number"),
    (r#"{"attributes": {"user": "42"}, "cost": 1e30}"#, 422, "cost", "1e30"),
    (r#"{"attributes": {"user": "42", "user": "43"}}"#, 422, "attributes.user", "twice"),
    (r#"{"attributes": {"user": "42", "us\u0065r": "43"}}"#, 422, "attributes.user", "twice"),
    (r#"{"attributes": {"user": ""}}"#, 422, "attributes.user", "empty"),
    (r#"{"attributes": {"user": "42", "": "x"}}"#, 422, "attributes", "empty name"),
];

fn assert_refused(reply: &Reply, (body, status, field, detail): (&str, u16, &str, &str)) {
    let shown: String = body.chars().take(120).collect();
    assert_eq!(reply.status, status, "{shown}: {reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{shown}");
    let problem = reply.json();
    assert_eq!(problem["status"], status, "{shown}: {problem}");
    assert_eq!(problem["field"], field, "{shown}: {problem}");
    assert!(problem["detail"].as_str().unwrap().contains(detail), "{shown}: {problem}");
    assert!(problem["type"].is_string() && problem["title"].is_string(), "{problem}");
    assert!(reply.body.len() < 1_000, "{shown}: a refusal is short");
}

fn assert_nothing_charged(client: &mut Client) {
    let peek = client.ok("/v1/peek", r#"{"attributes": {"user": "42"}}"#);
    assert_eq!(peek["remaining"], 100, "{peek}");
}

#[test]
fn every_endpoint_refuses_every_bad_body_and_charges_nothing() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for case in CASES {
        for path in ["/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain"] {
            assert_refused(&client.post(path, case.0), *case);
        }
    }
    assert_nothing_charged(&mut client);
}

#[test]
fn long_and_many_and_deep_things_are_refused() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let long = "k".repeat(10_000);
    let many: Vec<String> = (0..100).map(|number| format!("\"a{number}\": \"x\"")).collect();
    let name = format!("attributes.{}…", "k".repeat(32));
    let deep = format!("{{\"attributes\": {{\"user\": {}", "[".repeat(20_000));
    let deep_unknown = format!("{{\"x\": {}", "{\"x\":".repeat(10_000));
    let cases = [
        (format!("{{\"attributes\": {{\"user\": \"{long}\"}}}}"), 422, "attributes.user", "10000 bytes"),
        (format!("{{\"attributes\": {{\"user\": \"{}\"}}}}", "é".repeat(257)), 422, "attributes.user", "514 bytes"),
        (format!("{{\"attributes\": {{\"{long}\": \"42\"}}}}"), 422, &*name, "10000 bytes"),
        (format!("{{\"attributes\": {{{}}}}}", many.join(",")), 422, "attributes", "more than 64"),
        (format!("{{\"attributes\": {{}}, \"domain\": \"{long}\"}}"), 422, "domain", "10000 bytes"),
        (format!("{{\"attributes\": \"{long}\"}}"), 400, "attributes", "expected an object"),
        (deep, 400, "attributes.user", "sequence"),
        (deep_unknown, 400, "x", "unknown"),
    ];
    for (body, status, field, detail) in &cases {
        assert_refused(&client.post("/v1/check", body), (body, *status, field, detail));
    }
    let whole = format!("{{\"attributes\": {{\"user\": \"{}\"}}}}", "k".repeat(512));
    assert_eq!(client.post("/v1/check", &whole).status, 200, "512 bytes fit");
    assert_nothing_charged(&mut client);
}

#[test]
fn one_bad_request_spoils_the_batch_whole() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let good = r#"{"attributes": {"user": "42"}}"#;
    let batch = |bad: &str| format!("{{\"requests\": [{good}, {good}, {good}, {bad}]}}");
    let cases: &[(String, u16, &str, &str)] = &[
        (batch(r#"{"attributes": {"user": "42"}, "cost": 0}"#), 422, "requests[3].cost", "/v1/peek"),
        (batch(r#"{"attributes": {"user": ""}}"#), 422, "requests[3].attributes.user", "empty"),
        (batch(r#"{"attributes": {"user": 4.2}}"#), 400, "requests[3].attributes.user", "`4.2`"),
        (format!("[{good}]"), 400, "body", "{\"requests\": ["),
        ("user=42".to_owned(), 400, "body", "{\"requests\": ["),
        (batch(r#"{"attributes": {"user": "42"}, "hits": 1}"#), 400, "requests[3].hits", "`hits`"),
        (batch("{}"), 400, "requests[3].attributes", "missing"),
        (batch("[]"), 400, "requests[3]", "sequence"),
        ("{}".to_owned(), 400, "requests", "missing"),
        (r#"{"requests": {}}"#.to_owned(), 400, "requests", "map"),
        (good.to_owned(), 400, "attributes", "unknown"),
        (format!("{{\"requests\": [{}]}}", vec![good; 257].join(",")), 422, "requests", "257"),
    ];
    for (body, status, field, detail) in cases {
        assert_refused(&client.post("/v1/check/batch", body), (body, *status, field, detail));
    }
    assert_nothing_charged(&mut client);
}

#[test]
fn a_body_beyond_64_kib_is_a_413_announced_or_not() {
    let server = Server::with_rules(RULES);
    let body = format!("{{\"attributes\": {{\"user\": \"42\"}}}}{}", " ".repeat(65 << 10));
    assert_refused(&server.client().post("/v1/check", &body), (&body, 413, "body", "65536"));
    let mut client = server.client();
    client.write("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    for _ in 0..9 {
        client.write(format!("2000\r\n{}\r\n", " ".repeat(0x2000))).unwrap();
    }
    client.write("0\r\n\r\n").unwrap();
    assert_refused(&client.read().unwrap(), ("chunks", 413, "body", "65536"));
    let mut client = server.client();
    client.write("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n{").unwrap();
    assert_refused(&client.read().unwrap(), ("announced", 413, "body", "65536"));
    let fits = format!("{{\"attributes\": {{}}}}{}", " ".repeat((64 << 10) - 18));
    assert_eq!(fits.len(), 64 << 10);
    assert_eq!(server.client().post("/v1/check", &fits).status, 200);
    assert_nothing_charged(&mut server.client());
}

#[test]
fn a_wrong_method_is_a_405_and_a_wrong_path_a_404() {
    let server = Server::start();
    let mut client = server.client();
    for (method, path, status) in [
        ("GET", "/v1/check", 405),
        ("DELETE", "/v1/reset", 405),
        ("POST", "/livez", 405),
        ("GET", "/v2/check", 404),
        ("GET", "/%00%0d%0a", 404),
    ] {
        let reply = client.send(method, path, "").unwrap();
        assert_eq!(reply.status, status, "{method} {path}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{method} {path}");
        let problem: Value = reply.json();
        assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &status.into()));
        assert!(problem["detail"].as_str().unwrap().contains(path), "{problem}");
        assert_eq!(reply.header("allow").is_some(), status == 405, "{method} {path}");
    }
}

#[test]
fn a_path_of_another_listener_or_with_a_slash_too_many_says_what_to_do() {
    let server = Server::start();
    for (is_admin, method, path, advice) in [
        (false, "POST", "/v1/check/", "leave out the slash at the end, \"/v1/check\""),
        (false, "GET", "/admin/v1/rules", "--admin-listen"),
        (false, "GET", "/admin", "http://127.0.0.1:8082"),
        (true, "POST", "/v1/check", "--http-listen"),
        (true, "GET", "/admin/v1/rules/", "leave out the slash"),
    ] {
        let mut client = if is_admin { server.admin() } else { server.client() };
        let reply = client.send(method, path, "{}").unwrap();
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
        let problem = reply.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(path) && detail.contains(advice), "{path}: {problem}");
    }
}

#[test]
fn a_target_that_is_no_path_is_a_400() {
    let server = Server::start();
    for mut client in [server.client(), server.admin()] {
        for target in ["livez", "localhost:80"] {
            let reply = client.send("GET", target, "").unwrap();
            assert_eq!(reply.status, 400, "{target}: {reply:?}");
            assert!(reply.json()["detail"].as_str().unwrap().contains(target), "{reply:?}");
        }
    }
}

/// Identifiers are numbers in many programs.
#[test]
fn whole_numbers_and_booleans_are_taken_as_their_text() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for (written, text) in [
        ("42", "42"),
        ("-7", "-7"),
        ("true", "true"),
        ("false", "false"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        let as_value = format!("{{\"attributes\": {{\"user\": {written}}}}}");
        assert_eq!(client.ok("/v1/check", &as_value)["remaining"], 99, "{written}");
        let batch = client.ok("/v1/check/batch", &format!("{{\"requests\": [{as_value}]}}"));
        assert_eq!(batch["results"][0]["remaining"], 98, "{written}: {batch}");
        let as_text = format!("{{\"attributes\": {{\"user\": \"{text}\"}}}}");
        assert_eq!(client.ok("/v1/check", &as_text)["remaining"], 97, "{written}");
    }
}

#[test]
fn a_whole_cost_may_be_written_with_a_point() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for cost in ["5", "5.0", "0.5e1"] {
        let body = format!("{{\"attributes\": {{\"user\": \"{cost}\"}}, \"cost\": {cost}}}");
        assert_eq!(client.ok("/v1/check", &body)["remaining"], 95, "{cost}");
    }
}

#[test]
fn any_content_type_is_read_as_json() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let body = r#"{"attributes": {"user": "42"}}"#;
    for kind in ["application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8"] {
        let length = body.len();
        let head =
            format!("POST /v1/peek HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}");
        client.write(format!("{head}\r\n\r\n{body}")).unwrap();
        assert_eq!(client.read().unwrap().status, 200, "{kind}");
    }
}

#[test]
fn what_is_not_utf8_or_not_http_does_no_harm() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let body = b"{\"attributes\": {\"user\": \"\xff\xfe\"}}";
    client
        .write(format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len()))
        .unwrap();
    client.write(body).unwrap();
    assert_refused(&client.read().unwrap(), ("not UTF-8", 400, "body", "unicode"));
    for nonsense in ["\r\n\r\n\0\0", "GET\r\n\r\n", "POST /v1/check HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}"] {
        let mut client = server.client();
        client.write(nonsense).unwrap();
        client.write("\r\n\r\n").ok();
        if let Ok(reply) = client.read() {
            assert_eq!(reply.status, 400, "{nonsense:?}");
        }
    }
    let mut client = server.client();
    client.write(format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(64 << 10))).ok();
    if let Ok(reply) = client.read() {
        assert_eq!(reply.status, 431, "the head is too large");
    }
    assert_nothing_charged(&mut server.client());
}
