//! A real Envoy that calls the rate limit service before it forwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testkit::{Envoy, Redis, Upstream};
use tokio::time::Instant;

use crate::envoy_client::{RateLimitClient, Verdict, of};
use crate::http_client::{Client, Reply};
use crate::server_process::{Server, rule_file};

/// What users copy.
const SHIPPED: &str = include_str!("../../../../deploy/envoy/envoy.yaml");
const SHIPPED_RULES: &str = include_str!("../../../../deploy/envoy/rules.yaml");
/// Routes that make every kind of descriptor.
const ROUTES: &str = include_str!("envoy.yaml");

/// An Envoy between an upstream and a server, all ports replaced.
pub(crate) fn envoy_before(configuration: &str, server: &Server, upstream_port: u16) -> Envoy {
    let service = server.grpc_address().rsplit_once(':').unwrap().1.to_owned();
    Envoy::start(|ports| {
        [
            ("10000", ports.listener.to_string()),
            ("9901", ports.admin.to_string()),
            ("3000", upstream_port.to_string()),
            ("8081", service.clone()),
        ]
        .iter()
        .fold(configuration.to_owned(), |text, (written, port)| {
            text.replace(&format!("port_value: {written} "), &format!("port_value: {port} "))
        })
    })
}

fn envoy(configuration: &str, server: &Server, upstream: &Upstream) -> Envoy {
    envoy_before(configuration, server, upstream.addr().port())
}

fn get(client: &mut Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    client.send_with("GET", path, headers, "").expect("an answer")
}

#[test]
fn the_shipped_configuration_limits_by_address_key_and_path() {
    let (server, upstream) = (Server::with_rules(SHIPPED_RULES), Upstream::start());
    let envoy = envoy(SHIPPED, &server, &upstream);
    let mut client = Client::connect(&envoy.addr().to_string());
    // Five logins, whatever the query; then none, and the upstream sees none.
    let statuses: Vec<_> = (0..7).map(|n| get(&mut client, &format!("/login?try={n}"), &[]).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(upstream.requests(), 5);
    let reply = get(&mut client, "/", &[("x-api-key", "k1")]);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-ratelimit-limit"), Some("100, 100;w=60, 5000;w=3600"), "{reply:?}");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("94"), "what was denied charged nobody: {reply:?}");
    assert!(reply.header("x-ratelimit-reset").is_some(), "{reply:?}");
    // An IPv6 client counts by its /64. Envoy has no such listener here, so it is asked as Envoy would.
    let masked = server.client().ok("/json", r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "masked_remote_address", "value": "2001:db8:1:2::/64"}]}]}"#);
    assert_eq!(masked["statuses"][0]["limitRemaining"], 99, "{masked}");
    assert_eq!(SHIPPED.matches("masked_remote_address: { v6_prefix_mask_len: 64 }").count(), 2);
    // What is no text is limited too: were it an error, Envoy would let it pass.
    client.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-api-key: \xff\xfe\r\n\r\n").unwrap();
    let reply = client.read().unwrap();
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("93")), "{reply:?}");
    // The monitor has no limit of its own; its address still has.
    let statuses: Vec<_> = (0..95).map(|_| get(&mut client, "/", &[("x-api-key", "monitor")]).status).collect();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    assert!((1..=2).contains(&denied) && statuses[..93].iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(envoy.counter("ratelimit.error"), 0);
    assert_eq!(envoy.counter("ratelimit.over_limit"), 2 + denied as u64);
}

const RULES: &str = r#"
domain: edge
descriptors:
  - key: plan
    value: free
    descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 2 } }]
  - key: plan
    value: pro
    descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 3 } }]
  - { key: agent, value: "bot-*", rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: agent, value: vip, rate_limit: { unlimited: true } }
  - { key: kind, value: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: kind, value: base, rate_limit: { name: base, unit: day, requests_per_unit: 1 } }
  - { key: premium, rate_limit: { unit: day, requests_per_unit: 3, replaces: [{ name: base }] } }
  - { key: kind, value: own, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: kind, value: cost, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: kind, value: calls, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: kind, value: load, rate_limit: { unit: day, requests_per_unit: 1000000 } }
"#;

#[test]
fn every_kind_of_descriptor_is_understood() {
    let (server, upstream) = (Server::with_rules(RULES), Upstream::start());
    let envoy = envoy(ROUTES, &server, &upstream);
    let mut client = Client::connect(&envoy.addr().to_string());
    let mut passing = |path: &str, headers: &[(&str, &str)], count: usize| {
        let before = upstream.requests();
        let statuses: Vec<_> = (0..count).map(|_| get(&mut client, path, headers).status).collect();
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{path}: {statuses:?}");
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(upstream.requests() - before, passed as u64, "{path}: what is denied is not forwarded");
        passed
    };
    assert_eq!(passing("/nested", &[("x-plan", "free"), ("x-user", "1")], 4), 2);
    assert_eq!(passing("/nested", &[("x-plan", "free"), ("x-user", "2")], 4), 2);
    assert_eq!(passing("/nested", &[("x-plan", "pro"), ("x-user", "1")], 4), 3);
    assert_eq!(passing("/nested", &[("x-plan", "other"), ("x-user", "1")], 4), 4);
    assert_eq!(passing("/wild", &[("x-user", "bot-1")], 3), 1);
    assert_eq!(passing("/wild", &[("x-user", "bot-2")], 3), 1);
    assert_eq!(passing("/wild", &[("x-user", "vip")], 3), 3);
    assert_eq!(passing("/wild", &[("x-user", "person")], 3), 3);
    assert_eq!(passing("/shadow", &[], 3), 3);
    assert_eq!(passing("/replaces", &[("x-user", "1")], 5), 3, "the base limit of 1 does not count");
    assert_eq!(passing("/own", &[], 5), 2, "Envoy brings a limit of 2");
    assert_eq!(passing("/cost", &[("x-cost", "4")], 4), 2, "4 and 4 of 10");
    assert_eq!(passing("/cost", &[("x-cost", "2")], 4), 0, "what was denied was charged: its hits_addend is its own");
    let reply = get(&mut client, "/cost", &[("x-cost", "0")]);
    assert_eq!(reply.status, 429, "0 only asks, and is denied while there is debt: {reply:?}");
    let reply = get(&mut client, "/cost", &[("x-cost", "1")]);
    assert_eq!(
        (reply.status, reply.header("x-ratelimit-limit")),
        (429, Some("10, 10;w=86400, 100;w=86400")),
        "{reply:?}"
    );
    assert_eq!(envoy.counter("ratelimit.error"), 0, "{}", envoy.log());
}

/// Sets a flag when its scope ends.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Redis hangs and dies under load, with one rule for each policy: requests go
/// on by it.
#[test]
fn without_redis_requests_go_on_by_policy_and_in_time() {
    const CLOSED: &str =
        "  - { key: closed, rate_limit: { unit: day, requests_per_unit: 1000000, on_store_failure: closed } }\n";
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let rules = rule_file(&format!("{RULES}{CLOSED}"));
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--store", &redis.url()]);
    let envoy = envoy(ROUTES, &server, &upstream);
    let (is_over, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        // Also if an assertion fails: the load must not go on for ever.
        let _over = SetOnDrop(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(&envoy.addr().to_string());
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(get(&mut client, "/load", &[]).status, 200);
                    passed.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(4));
                }
            });
        }
        let mut client = RateLimitClient::of(&server);
        let (load, closed) = ([of(&[("kind", "load")])], [of(&[("closed", "")])]);
        for (state, expected) in [("up", Verdict::Ok), ("hanging", Verdict::OverLimit), ("dead", Verdict::OverLimit)] {
            match state {
                "hanging" => redis.pause(),
                "dead" => redis.kill(),
                _ => {}
            }
            let (start, errors) = (Instant::now(), envoy.counter("ratelimit.error"));
            let (mut asked_closed, mut unexpected) = (0, 0);
            while start.elapsed() < Duration::from_millis(1_500) {
                let asked = Instant::now();
                assert_eq!(client.ask(&load).overall_code(), Verdict::Ok, "{state}");
                times.push(asked.elapsed());
                asked_closed += 1;
                unexpected += u32::from(client.ask(&closed).overall_code() != expected);
                std::thread::sleep(Duration::from_millis(2));
            }
            println!("{state}: {} errors at Envoy", envoy.counter("ratelimit.error") - errors);
            // On a busy machine a Redis that is up may reply too late, and the rule closes.
            let most = if state == "up" { asked_closed / 4 } else { 0 };
            assert!(unexpected <= most, "{state}: {unexpected} of {asked_closed} answers are not {expected:?}");
        }
    });
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    let (errors, total) = (envoy.counter("ratelimit.error"), envoy.counter("ratelimit.ok"));
    let (passed, asked) = (passed.into_inner(), times.len());
    println!(
        "{asked} calls, p99 {p99:?}, longest {:?}; Envoy: {errors} errors beside {total}, {passed} passed",
        times[asked - 1]
    );
    // Envoy waits 20 ms, and counts what takes longer as an error.
    assert!(errors * 100 <= total, "{errors} errors beside {total} answers");
}
