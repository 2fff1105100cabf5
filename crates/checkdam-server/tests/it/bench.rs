//! `checkdam bench`: what it sends, what it counts, and what it rejects.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::{FaultProxy, Mode, Upstream};

use crate::server_process::{PATIENCE, Server, checkdam, rule_file, run, text};

/// Ten for each of the keys, whatever time it takes.
const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["10/d"] }
  - { name: of-envoy, domain: edge, key: "ip:{ip}", limits: ["10/d"] }
"#;

fn bench(target: &str, arguments: &[&str]) -> Command {
    let mut command = checkdam();
    command.args(["bench", target, "--quiet", "--json", "--warmup", "0s"]).args(arguments);
    command
}

/// Measures with patience: tests run many at a time on few cores.
fn measure(target: &str, arguments: &[&str]) -> Value {
    let output = bench(target, arguments).args(["--timeout", "30s"]).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// How many checks of this rule were decided so, by the server's own count.
fn counted(server: &Server, rule: &str, decision: &str) -> u64 {
    let metrics = server.client().get("/metrics").body;
    let name = format!("rate_limiter_requests_total{{rule=\"{rule}\",decision=\"{decision}\",");
    let lines = metrics.lines().filter(|line| line.starts_with(&name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn http_counts_are_those_of_the_server() {
    let server = Server::with_rules(RULES);
    let url = server.url();
    let arguments =
        ["--requests", "1000", "--keys", "20", "--connections", "8", "--attributes", "user=u{key},a=\"b\\\""];
    let closed = measure(&url, &arguments);
    assert_eq!(
        (&closed["requests"], &closed["allowed"], &closed["limited"]),
        (&1_000.into(), &200.into(), &800.into())
    );
    assert_eq!(closed["statuses"], serde_json::json!({"200": 200, "429": 800}));
    assert_eq!(closed["decided_by"], serde_json::json!({"memory": 1_000}));
    assert_eq!([counted(&server, "per-user", "allowed"), counted(&server, "per-user", "denied")], [200, 800]);
    let open = measure(
        &url,
        &["--rate", "2000", "--requests", "500", "--spread", "one", "--attributes", "user=v{key},plan=x"],
    );
    assert_eq!((&open["requests"], &open["allowed"], &open["limited"]), (&500.into(), &10.into(), &490.into()));
    assert_eq!((&open["loop"], &open["rate_per_s"], &open["unsent"]), (&"open".into(), &2_000.into(), &0.into()));
    assert_eq!([counted(&server, "per-user", "allowed"), counted(&server, "per-user", "denied")], [210, 1_290]);
    let dear = measure(&url, &["--requests", "10", "--cost", "6", "--keys", "1", "--attributes", "user=w"]);
    assert_eq!((&dear["allowed"], &dear["limited"]), (&1.into(), &9.into()), "{dear}");
}

#[test]
fn grpc_counts_are_those_of_the_server() {
    let server = Server::with_rules(RULES);
    let target = format!("http://{}", server.grpc_address());
    let common = ["--grpc", "--domain", "edge", "--attributes", "ip={key}", "--keys", "20", "--connections", "40"];
    let before = counted(&server, "of-envoy", "allowed");
    let closed = measure(&target, &[&common[..], &["--requests", "1000", "--threads", "2"]].concat());
    assert_eq!(
        (&closed["requests"], &closed["allowed"], &closed["limited"]),
        (&1_000.into(), &200.into(), &800.into())
    );
    let open = measure(&target, &[&common[..], &["--requests", "300", "--rate", "1000", "--cost", "2"]].concat());
    assert_eq!((&open["requests"], &open["limited"], &open["listener"]), (&300.into(), &300.into(), &"grpc".into()));
    assert_eq!(counted(&server, "of-envoy", "denied"), 1_100);
    // Before each run one request asks without charging.
    assert_eq!(counted(&server, "of-envoy", "allowed") - before, 202);
}

#[test]
fn pages_behind_a_proxy_are_got_with_their_headers() {
    let upstream = Upstream::start();
    let rules = "rules: [{name: per-key, key: \"k:{api_key}\", limits: [\"10/d\"]}]";
    let rules = crate::server_process::rule_file(rules);
    let proxy = Server::proxy(&[
        "--upstream",
        &format!("http://{}", upstream.addr()),
        "--rules",
        rules.to_str().unwrap(),
        "--header-attributes",
        "X-API-Key=api_key",
    ]);
    let arguments = ["--get", "/page?n={key}", "--header", "X-API-Key: key-{key}", "--keys", "3", "--requests", "100"];
    let report = measure(&proxy.url(), &arguments);
    // The request that looks whether there is anybody is a request of the first key too.
    assert_eq!((&report["requests"], &report["allowed"], &report["limited"]), (&100.into(), &29.into(), &71.into()));
    assert_eq!(upstream.requests(), 30);
}

#[test]
fn errors_are_told_by_kind_and_set_the_exit_code() {
    let upstream = Upstream::start();
    let faults = FaultProxy::start(upstream.addr());
    let target = format!("http://{}", faults.addr());
    let arguments = ["--get", "/", "--rate", "200", "--duration", "2s", "--timeout", "100ms", "--connections", "4"];
    let loading = bench(&target, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    testkit::wait_until("the load begins", PATIENCE, || upstream.requests() > 20);
    faults.set_replies(Mode::CutAfter(0));
    std::thread::sleep(Duration::from_millis(100));
    faults.set_replies(Mode::Drop);
    let output = loading.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [reset, timeout, requests, unsent] =
        ["/errors/reset", "/errors/timeout", "/requests", "/unsent"].map(|path| report.pointer(path).unwrap().as_u64());
    assert!(reset > Some(0) && timeout > Some(0), "{report}");
    assert_eq!(requests.unwrap() + unsent.unwrap(), 400, "nothing that was due is left out: {report}");
    assert!(report["latency_us"]["max"].as_f64().unwrap() >= 100_000.0, "{report}");
}

#[test]
fn what_decides_nothing_is_told_by_its_status() {
    let upstream = Upstream::start();
    let rules = crate::server_process::rule_file("rules: []\nbans: [{subject: \"api_key:x\"}]");
    let proxy = Server::proxy(&[
        "--upstream",
        &format!("http://{}", upstream.addr()),
        "--rules",
        rules.to_str().unwrap(),
        "--header-attributes",
        "X-API-Key=api_key",
    ]);
    // A ban is a decision of a check; to who gets pages its 403 tells nothing.
    let arguments = ["--get", "/", "--header", "X-API-Key: x", "--requests", "20", "--warmup", "0s", "--quiet"];
    let output = run(&[&["bench", &proxy.url()], &arguments[..]].concat());
    assert!(text(&output.stdout).contains("errors                20  status 403 20\n"), "{output:?}");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(1), 0), "{output:?}");
}

#[test]
fn the_address_that_answered_is_the_one_that_is_loaded() {
    let rules = rule_file(RULES);
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--allowed-hosts", "limits.example"]);
    let port = server.url().rsplit_once(':').unwrap().1.to_owned();
    // A name that may stand for two addresses, of which the server has one.
    let report =
        measure(&format!("http://localhost:{port}"), &["--requests", "10", "--header", "Host: limits.example"]);
    assert_eq!((&report["address"], &report["allowed"]), (&format!("127.0.0.1:{port}").into(), &10.into()));
}

#[test]
fn an_interrupt_ends_it_with_what_was_measured() {
    let server = Server::with_rules(RULES);
    let loading = bench(&server.url(), &["--duration", "60s"]).stdout(Stdio::piped()).spawn().unwrap();
    testkit::wait_until("the load begins", PATIENCE, || counted(&server, "per-user", "allowed") > 10);
    assert!(Command::new("kill").args(["-INT", &loading.id().to_string()]).status().unwrap().success());
    let output = loading.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert_eq!(
        report["requests"].as_u64().unwrap(),
        counted(&server, "per-user", "allowed") + counted(&server, "per-user", "denied")
    );
}

#[test]
fn a_termination_or_a_hangup_ends_it() {
    let server = Server::with_rules(RULES);
    let decided = || counted(&server, "per-user", "allowed") + counted(&server, "per-user", "denied");
    for (signal, number) in [("-TERM", 15), ("-HUP", 1)] {
        let before = decided();
        let mut loading = bench(&server.url(), &["--duration", "60s"]).stdout(Stdio::piped()).spawn().unwrap();
        testkit::wait_until("the load begins", PATIENCE, || decided() > before);
        assert!(Command::new("kill").args([signal, &loading.id().to_string()]).status().unwrap().success());
        assert_eq!(loading.wait().unwrap().signal(), Some(number), "{signal}");
    }
}

#[test]
fn people_see_a_table_and_are_warned_of_closed_loops() {
    let server = Server::with_rules(RULES);
    let output = run(&["bench", &server.url(), "--requests", "200", "--warmup", "100ms", "--timeout", "30s"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (said, warned) = (text(&output.stdout), text(&output.stderr));
    for part in
        ["closed loop of 64 connections", "requests             200", "LATENCY", "P99.99", "the generator: threads"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(warned.contains("these latencies hide waiting"), "{warned}");
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is() {
    let server = Server::with_rules(RULES);
    let (http, grpc) = (server.url(), format!("http://{}", server.grpc_address()));
    let long = format!("user={}", "k".repeat(600));
    let refused = |output: Output, part: &str| {
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{part}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{part} in {output:?}");
    };
    for (arguments, part) in [
        (&["--connections", "0"][..], "'0'"),
        (&["--connections", "10001"], "10001"),
        (&["--rate", "1000001"], "1000001"),
        (&["--rate", "fast"], "fast"),
        (&["--duration", "10"], "\"10\" is not a time"),
        (&["--duration", "2h"], "\"2h\" is not from 100ms to 3600s"),
        (&["--timeout", "0s"], "\"0s\" is not from"),
        (&["--requests", "0"], "'0'"),
        (&["--keys", "0"], "'0'"),
        (&["--spread", "wide"], "wide"),
        (&["--attributes", "user"], "user=42"),
        (&["--attributes", "user={name}"], "{name}"),
        (&["--attributes", &long], "600"),
        (&["--attributes", "user=1,user=2"], "twice"),
        (&["--get", "search"], "\"search\" is not a path"),
        (&["--get", "/a b"], "\"/a b\" is not a path"),
        (&["--get", "/", "--cost", "2"], "--cost"),
        (&["--header", "nothing"], "colon"),
        (&["--header", "a b: c"], "\"a b\""),
        (&["--header", "content-length: 1"], "content-length"),
        (&["--grpc"], "--domain"),
        (&["--grpc", "--domain", "edge"], "is no gRPC server"),
    ] {
        refused(bench(&http, arguments).output().unwrap(), part);
    }
    refused(bench(&grpc, &[]).output().unwrap(), "does not answer");
    refused(bench("http://192.0.2.1:8080", &[]).output().unwrap(), "--target-is-mine");
    refused(bench("https://192.0.2.1:8080", &[]).output().unwrap(), "--target-is-mine");
    refused(bench("http://127.0.0.1:99999", &[]).output().unwrap(), "port \"99999\"");
    let with_path = bench(&format!("{grpc}/limits"), &["--grpc", "--domain", "edge"]).output();
    refused(with_path.unwrap(), "the path \"/limits\"");
    refused(run(&["check", "--server", "http://127.0.0.1:99999", "user=1"]), "port \"99999\"");
    for arguments in [&[][..], &["--grpc", "--domain", "edge"], &["--get", "/"]] {
        refused(bench("http://127.0.0.1:1", arguments).output().unwrap(), "start one with `checkdam serve`");
    }
    refused(bench(&format!("http://{}", Upstream::start().addr()), &[]).output().unwrap(), "--get PATH");
    assert_eq!(counted(&server, "per-user", "allowed") + counted(&server, "of-envoy", "allowed"), 0);
}
