//! Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use testkit::{Prometheus, Redis, run_promtool, wait_until};

use crate::http_client::Client;
use crate::server_process::{Server, rule_file};

const CONFIGURATION: &str = include_str!("../../../../deploy/prometheus/prometheus.yml");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/checkdam.rules.yml");

const RULES: &str = r#"
rules:
  - { name: 'od"d\ name', key: "user:{user}", limits: ["2/h"] }
  - { name: watched, key: "ip:{ip}", limits: ["1/h"], mode: shadow }
bans:
  - { subject: "user:mallory" }
"#;

/// Every sample of the text, by its name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| line.split(" # ").next().unwrap().rsplit_once(' ').unwrap());
    parsed.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let reply = server.client().get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    run_promtool(&["check", "metrics"], &[], &reply.body);
    samples(&reply.body)
}

fn check(client: &mut Client, attributes: &str) -> u16 {
    client.post("/v1/check", &format!(r#"{{"attributes": {attributes}}}"#)).status
}

#[test]
fn every_request_is_counted_once_and_promtool_is_content() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let born = scrape(&server);
    for name in ["allowed_total", "rejected_total", "rule_decisions_total"] {
        let at_zero =
            born.iter().filter(|(key, value)| key.starts_with(&format!("rate_limiter_{name}")) && **value == 0.0);
        assert!(at_zero.count() >= 3, "else rate() misses a first burst: {name} in {born:#?}");
    }
    let asked = [r#"{"user": "1", "ip": "192.0.2.1"}"#; 5].iter().map(|attributes| check(&mut client, attributes));
    assert_eq!(asked.collect::<Vec<_>>(), [200, 200, 429, 429, 429]);
    assert_eq!([check(&mut client, "{}"), check(&mut client, r#"{"user": "mallory"}"#)], [200, 403]);
    client.ok("/v1/peek", r#"{"attributes": {"user": "1"}}"#);
    let seen = scrape(&server);
    let odd = r#"rule="od\"d\\ name""#;
    for (name, count) in [
        (format!(r#"rate_limiter_requests_total{{{odd},decision="allowed",store="memory"}}"#), 2.0),
        (format!(r#"rate_limiter_requests_total{{{odd},decision="denied",store="memory"}}"#), 3.0),
        (r#"rate_limiter_requests_total{rule="",decision="banned",store="policy"}"#.to_owned(), 1.0),
        (format!(r#"rate_limiter_allowed_total{{{odd},store="memory"}}"#), 2.0),
        (format!(r#"rate_limiter_rejected_total{{{odd},store="memory"}}"#), 3.0),
        (format!(r#"rate_limiter_rule_decisions_total{{{odd},decision="denied"}}"#), 3.0),
        (r#"rate_limiter_rule_decisions_total{rule="watched",decision="shadow_denied"}"#.to_owned(), 4.0),
        (r#"rate_limiter_latency_seconds_count{decision="denied",store="memory"}"#.to_owned(), 3.0),
        (r#"rate_limiter_connections{listener="http"}"#.to_owned(), 2.0),
        ("rate_limiter_memory_buckets_max".to_owned(), 1e6),
        ("rate_limiter_rules".to_owned(), 2.0),
        ("rate_limiter_bans".to_owned(), 1.0),
        ("rate_limiter_ready".to_owned(), 1.0),
        ("rate_limiter_audit_denied_total".to_owned(), 4.0),
    ] {
        assert_eq!(seen.get(&name), Some(&count), "{name} in {seen:#?}");
    }
    let total = |name: &str| seen.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, value)| value).sum::<f64>();
    assert_eq!(total("rate_limiter_requests_total"), 7.0);
    assert_eq!(total("rate_limiter_allowed_total") + total("rate_limiter_rejected_total"), 7.0);
    assert_eq!(total("rate_limiter_latency_seconds_count"), 7.0);
    assert!(seen["process_resident_memory_bytes"] > 1e6 && seen["process_open_fds"] > 3.0);
    assert_eq!(server.admin().get("/metrics").status, 200, "on the admin listener too");
}

#[test]
fn openmetrics_and_gzip_are_for_those_who_ask() {
    let server = Server::with_rules(RULES);
    check(&mut server.client(), r#"{"user": "1"}"#);
    let ask = |headers: &[(&str, &str)]| server.client().send_with("GET", "/metrics", headers, "");
    let reply = ask(&[("accept", "application/openmetrics-text; version=1.0.0")]).unwrap();
    assert_eq!(reply.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(reply.body.contains("# TYPE rate_limiter_requests counter\nrate_limiter_requests_total{"));
    assert!(reply.body.ends_with("\n# EOF\n"));
    assert_eq!(
        ask(&[("accept-encoding", "gzip")]).unwrap().header("content-encoding"),
        None,
        "too small to be worth it"
    );
}

#[test]
fn ten_thousand_rules_make_so_many_series_as_they_may() {
    let mut rules = "rules:\n".to_owned();
    for number in 0..10_000 {
        rules += &format!("- {{ name: r{number}, when: {{ n: '{number}' }}, key: '{{n}}', limits: [1/h] }}\n");
    }
    let path = rule_file(&rules);
    let server = Server::with(&["--rules", path.to_str().unwrap(), "--metrics-rules", "50", "--audit-rate", "0"]);
    let mut client = server.client();
    for number in (0..10_000).step_by(100) {
        assert_eq!(check(&mut client, &format!(r#"{{"n": "{number}"}}"#)), 200);
    }
    let seen = scrape(&server);
    let of = |rule: &str| format!(r#"rate_limiter_allowed_total{{rule="{rule}",store="memory"}}"#);
    assert_eq!(seen["rate_limiter_rules"], 10_000.0);
    assert_eq!((seen[&of("r0")], seen[&of("other")]), (1.0, 99.0));
    assert_eq!(seen.keys().filter(|key| key.starts_with("rate_limiter_allowed_total")).count(), 52);
}

#[test]
fn limits_of_trees_are_named_with_values_where_they_ask_for_it() {
    // Both limits, the one that requests may bring with them, and two values.
    let server = Server::with(&[
        "--rules",
        rule_file(
            "domain: edge\ndescriptors:\n\
             - { key: told, value_to_metric: true, rate_limit: { unit: hour, requests_per_unit: 1 } }\n\
             - { key: kept, rate_limit: { unit: hour, requests_per_unit: 1 } }\n",
        )
        .to_str()
        .unwrap(),
        "--metrics-rules",
        "5",
    ]);
    let mut client = server.client();
    for (key, value) in [("told", "a"), ("told", "a"), ("told", "b"), ("told", "c"), ("kept", "a"), ("kept", "b")] {
        let entry = format!(r#"{{"key": "{key}", "value": "{value}"}}"#);
        client.post("/json", &format!(r#"{{"domain": "edge", "descriptors": [{{"entries": [{entry}]}}]}}"#));
    }
    let seen = scrape(&server);
    let count = |rule: &str, decision: &str| {
        let labels = format!(r#"{{rule="{rule}",decision="{decision}",store="memory"}}"#);
        seen.get(&format!("rate_limiter_requests_total{labels}")).copied().unwrap_or_default()
    };
    assert_eq!((count("edge.told_a", "allowed"), count("edge.told_a", "denied")), (1.0, 1.0), "{seen:#?}");
    assert_eq!((count("edge.told_b", "allowed"), count("other", "allowed")), (1.0, 1.0), "the third value has no room");
    assert_eq!(count("edge.kept", "allowed"), 2.0);
}

#[test]
fn rules_that_do_not_load_are_told() {
    let path = rule_file(RULES);
    let server = Server::with(&["--rules", path.to_str().unwrap()]);
    let failed = || scrape(&server)["rate_limiter_rules_load_failed"];
    assert_eq!(failed(), 0.0);
    std::fs::write(&path, "rules: nonsense").unwrap();
    wait_until("a refusal", Duration::from_secs(10), || failed() == 1.0);
    let status = server.admin().get("/admin/v1/status").json();
    assert!(status["rules"]["error"].as_str().unwrap().contains("rules.yaml"), "{status}");
    std::fs::write(&path, RULES).unwrap();
    wait_until("rules that load", Duration::from_secs(10), || failed() == 0.0);
}

#[test]
fn the_store_is_told_from_memory() {
    let redis = Redis::start();
    let path = rule_file(RULES);
    let (rules, store) = (path.to_str().unwrap(), redis.url());
    let server = Server::with(&["--rules", rules, "--store", &store, "--store-deadline", "2s"]);
    assert_eq!(check(&mut server.client(), r#"{"user": "1"}"#), 200);
    let seen = scrape(&server);
    assert_eq!(seen[r#"rate_limiter_allowed_total{rule="od\"d\\ name",store="redis"}"#], 1.0);
    assert_eq!(seen[r#"rate_limiter_store_requests_total{result="answered"}"#], 1.0);
    assert_eq!(seen["rate_limiter_breaker_open"], 0.0);
    assert_eq!(seen["rate_limiter_store_deadline_seconds"], 2.0);
    let round_trip = seen["rate_limiter_store_round_trip_seconds"];
    assert!(round_trip > 0.0 && round_trip < 2.0, "{round_trip}");
}

/// A Prometheus as we tell people to set it up, only quicker.
fn prometheus(server: &Server) -> Prometheus {
    let configuration = CONFIGURATION.replace("127.0.0.1:8080", server.address()).replace("15s", "1s");
    Prometheus::start(&configuration, &[("checkdam.rules.yml", ALERTS)])
}

#[test]
fn exemplars_lead_from_a_latency_to_its_trace() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let server = Server::with(&["--metrics-exemplars"]);
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let body = r#"{"attributes": {"user": "1"}}"#;
    server.client().send_with("POST", "/v1/check", &[("traceparent", &parent)], body).unwrap();
    let prometheus = prometheus(&server);
    wait_until("an exemplar to reach Prometheus", Duration::from_secs(15), || {
        prometheus.exemplars("rate_limiter_latency_seconds_bucket").contains(TRACE)
    });
    assert!(!server.client().get("/metrics").body.contains(TRACE), "the classic form has none");
}

const REQUESTS: u64 = 1_000_000;
const CLIENTS: u64 = 4;
const BATCH: u64 = 250;

/// What a client was told.
#[derive(Default, Clone, Copy)]
struct ClientCounts {
    passed: u64,
    denied: u64,
}

/// Asks in batches, each for one rule in turn; what it was told of each.
fn ask(address: &str) -> [ClientCounts; 3] {
    let mut client = Client::connect(address);
    let bodies = ["free", "pro", "none"].map(|plan| {
        let request = format!(r#"{{"attributes":{{"plan":"{plan}"}}}}"#);
        format!(r#"{{"requests":[{}]}}"#, vec![request; BATCH as usize].join(","))
    });
    let [passed, denied] = [200, 429].map(|status| format!("\"status\":{status}"));
    let mut told = [ClientCounts::default(); 3];
    for round in 0..(REQUESTS / CLIENTS / BATCH) as usize {
        let reply = client.post("/v1/check/batch", &bodies[round % 3]);
        assert_eq!(reply.status, 200, "{reply:?}");
        let count = |text: &str| memchr::memmem::find_iter(reply.body.as_bytes(), text).count() as u64;
        told[round % 3].passed += count(&passed);
        told[round % 3].denied += count(&denied);
    }
    told
}

/// A million checks over four connections: in batches, which are counted one by
/// one, because this server is built for debugging.
#[test]
fn a_real_prometheus_counts_a_million_checks_as_their_clients_do() {
    let path = rule_file(
        "rules:\n- { name: free, when: { plan: free }, key: all, limits: [100000/d] }\n\
         - { name: pro, when: { plan: pro }, key: all, limits: [10000000/d] }\n",
    );
    let server = Server::with(&["--rules", path.to_str().unwrap(), "--audit-rate", "0"]);
    let prometheus = prometheus(&server);
    let told = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| ask(server.address()))).collect();
        clients.into_iter().fold([ClientCounts::default(); 3], |sum, client| {
            let told = client.join().unwrap();
            std::array::from_fn(|rule| ClientCounts {
                passed: sum[rule].passed + told[rule].passed,
                denied: sum[rule].denied + told[rule].denied,
            })
        })
    });
    let number = |query: &str| {
        let answer: Value = serde_json::from_str(&prometheus.query(query)).unwrap();
        let value = answer["data"]["result"][0]["value"][1].as_str().unwrap_or("0");
        value.parse::<f64>().unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    wait_until("Prometheus to have seen all", Duration::from_secs(20), || {
        number("sum(rate_limiter_requests_total)") == REQUESTS as f64
    });
    for (rule, told) in ["free", "pro", ""].into_iter().zip(told) {
        let of = |name: &str| number(&format!("sum(rate_limiter_{name}_total{{rule={rule:?}}})"));
        assert_eq!((of("allowed"), of("rejected")), (told.passed as f64, told.denied as f64), "{rule:?}");
        assert_eq!(of("requests"), (told.passed + told.denied) as f64, "{rule:?}");
    }
    assert!(told[0].denied > 0 && told[1].denied == 0, "one rule denies, another does not");
    assert_eq!(number("sum(rate_limiter_latency_seconds_count)"), REQUESTS as f64);
    assert_eq!(number("up"), 1.0);
}
