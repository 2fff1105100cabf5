//! Several nodes on one Redis share a limit; and how they decide without it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testkit::{FaultProxy, Mode, Redis};
use tokio::time::Instant;

use crate::http_client::Reply;
use crate::server_process::{PATIENCE, Server, rule_file};

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["10/s burst 50"], on_store_failure: closed }
  - { name: everyone, key: all, limits: ["1000/s burst 500"], on_store_failure: closed }
"#;

fn node(redis: &Redis, rules: &str) -> Server {
    let (file, url) = (rule_file(rules), redis.url());
    Server::with(&["--rules", file.to_str().unwrap(), "--store", &url, "--store-deadline", "2s", "--nodes", "3"])
}

/// Sixty clients, spread over three nodes, on so many users. How many passed,
/// of how many, in how many seconds.
fn contend(users: usize) -> (u64, u64, f64) {
    let redis = Redis::start();
    let nodes = [node(&redis, RULES), node(&redis, RULES), node(&redis, RULES)];
    let (passed, asked, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (ready, mut start) = (Barrier::new(61), Instant::now());
    std::thread::scope(|scope| {
        for client in 0..60 {
            let (nodes, passed, asked, is_over, ready) = (&nodes, &passed, &asked, &is_over, &ready);
            scope.spawn(move || {
                let mut connection = nodes[client % 3].client();
                ready.wait();
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let user = (client * 31 + round) % users;
                    let body = format!("{{\"attributes\": {{\"user\": \"{user}\"}}}}");
                    let reply = connection.post("/v1/check", &body);
                    assert!([200, 429].contains(&reply.status), "{reply:?}");
                    assert_eq!(reply.json()["decided_by"], "redis", "{reply:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                    passed.fetch_add(u64::from(reply.status == 200), Ordering::Relaxed);
                }
            });
        }
        start = Instant::now();
        ready.wait();
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
    });
    (passed.into_inner(), asked.into_inner(), start.elapsed().as_secs_f64())
}

#[test]
fn three_nodes_share_one_users_limit() {
    let (passed, asked, seconds) = contend(1);
    let most = (50.0 + 10.0 * seconds).floor() as u64;
    println!("{passed} of {asked} passed in {seconds:.2} s: at most {most} may");
    assert!(passed <= most, "{passed} of {asked} passed in {seconds} s: at most {most} may");
    assert!(passed >= 75, "only {passed} of {asked} passed in {seconds} s");
}

#[test]
fn three_nodes_share_the_limits_of_a_hundred_users_and_of_everyone() {
    let (passed, asked, seconds) = contend(100);
    let most = (500.0 + 1_000.0 * seconds).floor() as u64;
    println!("{passed} of {asked} passed in {seconds:.2} s: at most {most} may");
    assert!(passed <= most, "{passed} of {asked} passed in {seconds} s: at most {most} may");
}

/// Nobody is left to wonder why most answers are `local`.
#[test]
fn a_redis_too_far_away_for_the_deadline_is_told_everywhere() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(redis.addr());
    proxy.set_replies(Mode::Delay(Duration::from_millis(40)));
    let (file, url) = (rule_file(RULES), proxy.url());
    let mut server = Server::with(&["--rules", file.to_str().unwrap(), "--store", &url]);
    server.wait_for_log("the round trip to Redis is too long for the deadline");
    let status = server.admin().get("/admin/v1/status").json();
    assert_eq!(status["store"]["is_too_far"], true, "{status}");
    assert_eq!(status["store"]["deadline_us"], 18_000, "{status}");
    assert!(status["store"]["round_trip_us"].as_u64().unwrap() >= 40_000, "{status}");
    let metrics = server.client().get("/metrics").body;
    assert!(metrics.contains("\nrate_limiter_store_deadline_seconds 0.018\n"), "{metrics}");
    let round_trip = metrics.split("\nrate_limiter_store_round_trip_seconds ").nth(1).expect("it is a metric");
    assert!(round_trip.lines().next().unwrap().parse::<f64>().unwrap() >= 0.04, "{metrics}");
    proxy.set_replies(Mode::Pass);
    proxy.close_all();
    server.wait_for_log("the round trip to Redis fits the deadline");
    let status = server.admin().get("/admin/v1/status").json();
    assert_eq!(status["store"]["is_too_far"], false, "{status}");
    assert!((15_000..=18_000).contains(&status["store"]["deadline_us"].as_u64().unwrap()), "{status}");
}

#[test]
fn without_redis_each_rule_follows_its_policy_and_recovers_by_itself() {
    let redis = Redis::start();
    for (policy, status, decided_by) in [("open", 200, "policy"), ("closed", 503, "policy"), ("local", 200, "local")] {
        let rules = format!(
            "rules: [{{name: r, key: \"user:{{user}}\", limits: [\"100/h burst 30\"], on_store_failure: {policy}}}]"
        );
        let mut server = node(&redis, &rules);
        let mut client = server.client();
        let body = r#"{"attributes": {"user": "42"}}"#;
        assert_eq!(client.ok("/v1/check", body)["decided_by"], "redis");
        redis.kill();
        let reply = client.post("/v1/check", body);
        assert_eq!((reply.status, &reply.json()["decided_by"]), (status, &decided_by.into()), "{policy}: {reply:?}");
        server.wait_for_log("Redis does not answer");
        assert_eq!(reply.header("retry-after"), (policy == "closed").then_some("1"), "{policy}: {reply:?}");
        if policy == "local" {
            shows_a_third_of_the_limit(&reply);
        }
        redis.restart();
        let start = Instant::now();
        while client.post("/v1/check", body).json()["decided_by"] != "redis" {
            assert!(start.elapsed() < PATIENCE, "{policy}: Redis is back and not asked");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What is enforced is what is shown, in the body as in the headers.
fn shows_a_third_of_the_limit(reply: &Reply) {
    let body = reply.json();
    for shown in [&body, &body["tiers"][0]] {
        // One of 30 was taken in Redis: a third of one of 10, and one more was taken here.
        assert_eq!((&shown["limit"], &shown["remaining"]), (&10.into(), &8.into()), "{reply:?}");
    }
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (Some("10"), Some("8")));
    assert_eq!(reply.header("ratelimit-policy"), Some("\"r\";q=10;w=1080"), "30 at 100 an hour take 1,080 s");
    assert!(reply.header("ratelimit").is_some_and(|it| it.starts_with("\"r\";r=8;")), "{reply:?}");
}
