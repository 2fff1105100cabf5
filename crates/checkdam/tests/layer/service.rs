//! One request through the layer, in virtual time.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use checkdam::layer::{Address, LayerError, RateLimitLayer};
use checkdam::normalize::{PathNormalization, Slashes};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Limiter, Request, Verdict};
use http::{Response, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use crate::setup::{before, header, limiter, request, send};

type Clocked = MemoryStore<Arc<ManualClock>>;

/// A limiter whose clock stands at 1,000 s.
fn clocked(rules: &str) -> (Arc<Limiter<Clocked>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let store = MemoryStore::with_clock(MemoryOptions::default(), Arc::clone(&clock));
    (limiter(rules, store), clock)
}

const PER_USER: &str = r#"rules: [{name: "per \"user\"", key: "user:{user}", limits: ["1/s burst 2"]}]"#;

#[tokio::test]
async fn whoever_passes_is_served_and_told_and_whoever_does_not_never_reaches_the_service() {
    let (limiter, clock) = clocked(PER_USER);
    let (mut service, inner) = before(RateLimitLayer::builder(limiter).header("user", "x-user"));
    let asked = || request("/", &[("x-user", "42")]);

    let first = send(&mut service, asked()).await;
    assert_eq!((first.status(), first.body().as_ref()), (StatusCode::OK, b"served".as_slice()));
    assert_eq!((header(&first, "x-ratelimit-limit"), header(&first, "x-ratelimit-remaining")), (Some("2"), Some("1")));
    assert_eq!(header(&first, "ratelimit-policy"), Some(r#""per \"user\"";q=2;w=2"#));
    assert_eq!(header(&first, "retry-after"), None);
    send(&mut service, asked()).await;

    let denied = send(&mut service, asked()).await;
    assert_eq!((denied.status(), inner.calls()), (StatusCode::TOO_MANY_REQUESTS, 2));
    assert_eq!(header(&denied, "content-type"), Some("application/problem+json"));
    assert_eq!((header(&denied, "retry-after"), header(&denied, "x-ratelimit-remaining")), (Some("1"), Some("0")));
    let problem: Value = serde_json::from_slice(denied.body()).unwrap();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": r#"rule "per \"user\"" (1/s burst 2) is exceeded: try again in 1000 ms"#,
        "violated-policies": ["per \"user\""],
        "allowed": false, "limit": 2, "remaining": 0, "retry_after_ms": 1000, "reset_after_ms": 2000,
        "violated": "per \"user\"", "decided_by": "memory",
    });
    assert_eq!(problem, expected);

    assert_eq!(send(&mut service, request("/", &[("x-user", "43")])).await.status(), StatusCode::OK, "another user");
    let nobody = send(&mut service, request("/", &[])).await;
    assert_eq!((nobody.status(), header(&nobody, "x-ratelimit-limit")), (StatusCode::OK, None), "no rule concerns it");
    clock.advance(1_000_000);
    assert_eq!(send(&mut service, asked()).await.status(), StatusCode::OK, "after Retry-After");
    assert_eq!(inner.calls(), 5);
}

/// A service may follow dot segments or not, and a proxy takes out what Connection
/// names: what rules read must be what is served.
#[tokio::test]
async fn what_can_be_read_in_two_ways_is_answered_with_400_and_charges_nothing() {
    let rules =
        r#"rules: [{name: login, key: "{endpoint} {method}", when: {endpoint: /login, method: GET}, limits: ["3/h"]}]"#;
    let (limiter, _) = clocked(rules);
    let builder = |limiter| RateLimitLayer::builder(limiter).path("endpoint").method("method").header("key", "x-key");
    let (mut service, inner) = before(builder(Arc::clone(&limiter)));
    for (path, connection) in [
        ("/x%2Flogin", "close"),
        ("/x%5clogin", "close"),
        ("/x\\login", "close"),
        ("/x/../login", "close"),
        ("/x/%2e%2E/login", "close"),
        ("/x/..;a/login", "close"),
        ("/login", "close, X-Key"),
    ] {
        let refused = send(&mut service, request(path, &[("connection", connection), ("x-key", "k")])).await;
        assert_eq!((refused.status(), inner.calls()), (StatusCode::BAD_REQUEST, 0), "{path}");
        assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
    }
    for (left, path) in ["/login;x", "//login"].into_iter().enumerate() {
        let passed = send(&mut service, request(path, &[])).await;
        assert_eq!(header(&passed, "x-ratelimit-remaining"), Some(["2", "1"][left]), "{path}");
    }
    let mut written_small = request("/login", &[]);
    *written_small.method_mut() = "get".parse().unwrap();
    assert_eq!(header(&send(&mut service, written_small).await, "x-ratelimit-remaining"), Some("0"));
    let forms = PathNormalization { slashes: Slashes::Decode, is_lower_case: true, ..PathNormalization::default() };
    let (mut decoding, _) = before(RateLimitLayer::builder(limiter).path_in("endpoint", forms).method("method"));
    assert_eq!(send(&mut decoding, request("/%2fLogin", &[])).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_request_without_a_host_is_refused_where_rules_go_by_it() {
    for (key, status) in [("host:{host}", StatusCode::BAD_REQUEST), ("all", StatusCode::OK)] {
        let (limiter, _) = clocked(&format!("rules: [{{name: all, key: \"{key}\", limits: [\"10/s\"]}}]"));
        let (mut service, _) = before(RateLimitLayer::builder(limiter).host("host"));
        assert_eq!(send(&mut service, request("/", &[])).await.status(), status, "{key}");
        assert_eq!(send(&mut service, request("/", &[("host", "shop.example")])).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn extractors_say_who_asks_for_what() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&seen);
    let observe = move |request: &Request<'_>, _: &checkdam::Outcome| {
        let attributes = request.attributes().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        written.lock().unwrap().push(format!("{} {} {}", request.domain(), attributes.join(" "), request.cost()));
    };
    let (limiter, _) = clocked("rules: [{name: all, key: all, domain: edge, limits: [\"10/s\"]}]");
    let builder = RateLimitLayer::builder(limiter)
        .domain("edge")
        .address("ip", Address::peer().behind(["10.0.0.0/8".parse().unwrap()]))
        .header("key", "X-API-Key")
        .path("endpoint")
        .method("method")
        .host("host")
        .attribute("query", |parts| parts.uri.query().map(Cow::Borrowed))
        .cost_header("x-cost")
        .on_outcome(observe);
    let (mut service, _) = before(builder);
    let mut whole = request("http://Example.COM:80/a//%63;v=1?x=1", &[("x-api-key", "k"), ("x-cost", "3")]);
    whole.headers_mut().insert("x-forwarded-for", "1.1.1.1, 203.0.113.9".parse().unwrap());
    whole.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 4711)));
    let long = "k".repeat(4_000);
    let headers: &[(&str, &str)] = &[("host", "[2001:db8::1]:8080"), ("x-cost", "0"), ("x-api-key", "")];
    send(&mut service, whole).await;
    send(&mut service, request("/", headers)).await;
    send(&mut service, request("/", &[("x-api-key", &long), ("x-cost", "many")])).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], "edge ip=203.0.113.9 key=k endpoint=/a/c method=GET host=example.com query=x=1 3");
    assert_eq!(seen[1], "edge endpoint=/ method=GET host=2001:db8::1 1", "empty is as good as none");
    assert_eq!(seen[2], format!("edge key={long} endpoint=/ method=GET 1"), "long values count");
}

#[tokio::test]
async fn costs_are_charged_and_what_can_never_pass_is_told_so() {
    let (limiter, _) = clocked("rules: [{name: all, key: all, limits: [\"1/m burst 10\"]}]");
    let by_length = |parts: &http::request::Parts| parts.uri.path().len() as u64;
    let (mut service, inner) = before(RateLimitLayer::builder(limiter).cost_by(by_length));
    let answer = send(&mut service, request("/1234", &[])).await;
    assert_eq!(header(&answer, "x-ratelimit-remaining"), Some("5"));
    let never = send(&mut service, request("/12345678901", &[])).await;
    assert_eq!((never.status(), inner.calls()), (StatusCode::UNPROCESSABLE_ENTITY, 1));
    let detail: Value = serde_json::from_slice(never.body()).unwrap();
    assert!(detail["detail"].as_str().unwrap().starts_with("a cost of 12 can never pass"), "{detail}");
}

#[tokio::test]
async fn the_banned_are_refused_and_not_told_why() {
    let rules = "rules: []\nbans: [{subject: \"user:42\", reason: \"scraping\"}]";
    let (limiter, _) = clocked(rules);
    let (mut service, inner) = before(RateLimitLayer::builder(limiter).header("user", "x-user"));
    let banned = send(&mut service, request("/", &[("x-user", "42")])).await;
    assert_eq!((banned.status(), inner.calls()), (StatusCode::FORBIDDEN, 0));
    let body = String::from_utf8_lossy(banned.body());
    assert!(body.contains("the request is banned") && !body.contains("scraping"), "{banned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_holds_requests_back_and_refuses_those_that_would_wait_too_long() {
    let rules = "rules: [{name: queue, key: all, limits: [\"2/s burst 10\"], algorithm: leaky_bucket}]";
    let (limiter, clock) = clocked(rules);
    let builder = RateLimitLayer::builder(Arc::clone(&limiter)).delay_max(Duration::from_millis(1_200));
    let (mut service, inner) = before(builder);
    for (delay_ms, calls) in [(0, 1), (500, 2), (1_000, 3)] {
        let began = Instant::now();
        assert_eq!(send(&mut service, request("/", &[])).await.status(), StatusCode::OK);
        // Tokio's timers count in milliseconds and round up.
        let held_ms = began.elapsed().as_millis() as i64;
        assert!((delay_ms..=delay_ms + 2).contains(&held_ms), "held back for {held_ms} ms, not {delay_ms}");
        assert_eq!(inner.calls(), calls);
    }
    let state = |outcome: checkdam::Outcome| outcome.governing().unwrap().decision.remaining;
    let before_denied = state(limiter.peek(&Request::new()).await);
    let denied = send(&mut service, request("/", &[])).await;
    assert_eq!((denied.status(), inner.calls()), (StatusCode::TOO_MANY_REQUESTS, 3), "1.5 s are too long");
    assert_eq!((header(&denied, "retry-after"), header(&denied, "ratelimit")), (Some("1"), Some("\"queue\";r=0;t=1")));
    assert_eq!(state(limiter.peek(&Request::new()).await), before_denied, "its charge was given back");
    clock.advance(300_000);
    assert_eq!(send(&mut service, request("/", &[])).await.status(), StatusCode::OK, "after retry_after_ms");
}

#[tokio::test]
async fn hooks_see_every_outcome_and_write_the_refusals() {
    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&verdicts);
    let (limiter, _) = clocked(PER_USER);
    let builder = RateLimitLayer::builder(limiter)
        .header("user", "x-user")
        .on_outcome(move |_, outcome| written.lock().unwrap().push(outcome.verdict()))
        .on_denied(|denial| {
            let mut response = Response::new(Bytes::from(format!("no: {}", denial.detail())));
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response.headers_mut().insert("x-path", denial.parts().uri.path().parse().unwrap());
            response.headers_mut().insert("retry-after", "77".parse().unwrap());
            response
        });
    let (mut service, inner) = before(builder);
    for _ in 0..2 {
        send(&mut service, request("/", &[("x-user", "42")])).await;
    }
    let denied = send(&mut service, request("/here", &[("x-user", "42")])).await;
    assert_eq!((denied.status(), inner.calls()), (StatusCode::IM_A_TEAPOT, 2));
    assert_eq!((header(&denied, "x-path"), header(&denied, "retry-after")), (Some("/here"), Some("77")));
    assert_eq!(header(&denied, "x-ratelimit-limit"), Some("2"), "headers are added");
    assert_eq!(*verdicts.lock().unwrap(), [Verdict::Allowed, Verdict::Allowed, Verdict::Denied]);
}

#[test]
fn what_no_rule_could_name_is_refused_when_the_layer_is_built() {
    let builder = || RateLimitLayer::builder(clocked(PER_USER).0);
    let bad = |name: &str| LayerError::BadAttribute { name: name.to_owned() };
    assert_eq!(builder().path("").build().unwrap_err(), bad(""));
    assert_eq!(builder().path("a b").build().unwrap_err(), bad("a b"));
    let twice = builder().path("user").header("user", "x").build();
    assert_eq!(twice.unwrap_err(), LayerError::Duplicate { name: "user".to_owned() });
    let header = builder().header("user", "no header").build();
    assert_eq!(header.unwrap_err(), LayerError::BadHeader { name: "no header".to_owned() });
    let many = (0..65).fold(builder(), |builder, number| builder.path(format!("a{number}")));
    assert_eq!(many.build().unwrap_err(), LayerError::TooMany);
}
