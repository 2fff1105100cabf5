//! Rules with a lease: where they are decided, what is reported, and what remains.

use testkit::Redis;
use tokio::time::Instant;

use crate::server_process::{Server, rule_file};

const RULES: &str = r#"
rules:
  - { name: global, key: global, limits: ["100/m burst 1000"], lease: 30s }
  - { name: windowed, key: "w:{w}", limits: ["100/m"], algorithm: fixed_window, lease: 1s }
  - { name: short, key: "s:{s}", limits: ["1000/s burst 10"], lease: 100ms }
  - { name: tiny, key: "t:{t}", limits: ["100000/s burst 100"], lease: 100ms }
"#;
const CHECKS: u64 = 40;

/// The sample of that name.
fn sample(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn a_leased_limit_is_spent_here_and_what_is_left_is_given_back() {
    let redis = Redis::start();
    let (path, store) = (rule_file(RULES), redis.url());
    let arguments = ["--rules", path.to_str().unwrap(), "--store", &store, "--store-deadline", "2s"];
    let mut server = Server::with(&arguments);
    let mut client = server.client();
    let began = Instant::now();
    let decided_by: Vec<String> = (0..CHECKS)
        .map(|_| {
            let answer = client.ok("/v1/check", r#"{"attributes": {}}"#);
            assert_eq!((&answer["allowed"], &answer["limit"]), (&true.into(), &1000.into()), "{answer}");
            answer["decided_by"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!((decided_by[0].as_str(), decided_by[39].as_str()), ("redis", "lease"));
    let spent = decided_by.iter().filter(|by| *by == "lease").count() as u64;

    let text = client.get("/metrics").body;
    let told = |name: &str| sample(&text, &format!("rate_limiter_lease_{name}"));
    assert_eq!((told("spent_total"), told("subjects"), told("lost_total")), (spent, 1, 0));
    assert_eq!(told("granted_total"), spent + told("held_tokens") + told("returned_total"));
    assert!(told("asks_total") > 0 && told("asks_total") < CHECKS / 2);
    let status = server.admin().get("/admin/v1/status").json();
    assert_eq!(status["store"]["leases"]["spent"], spent, "{status}");

    let log = server.log();
    for remark in [
        "lease has no effect on 100/m by fixed_window: only token_bucket can be leased",
        "is shortened to 2.5ms",
        "its burst fills in 1ms, which is too short to prepay for",
    ] {
        assert!(log.contains(remark), "{remark:?} is not in {log}");
    }
    drop(client);
    server.signal("TERM");
    assert!(server.wait().success());

    // What passed is owed, and what the first grant took for granted.
    let peeked = Server::with(&arguments).client().ok("/v1/peek", r#"{"attributes": {}}"#);
    let left = peeked["remaining"].as_u64().unwrap();
    let returned = began.elapsed().as_secs() * 100 / 60 + 2;
    assert!((1_000 - CHECKS - 51..=1_000 - CHECKS + returned).contains(&left), "{left} left: {peeked}");
}
