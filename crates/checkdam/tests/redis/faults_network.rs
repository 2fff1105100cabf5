//! A network that fails: replies that are lost, peers that fall silent, and
//! what an outage costs those who wait.

use std::env;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use checkdam::DecidedBy;
use checkdam::conformance::TestBucket;
use checkdam::store::Operation;
use checkdam::store::redis::{CallError, RedisOptions};
use testkit::{FaultProxy, Mode, Redis};

use crate::setup::{
    ANSWERED_WITHIN, Load, USED_AGAIN_WITHIN, all_by_policy, ask, buckets, percentile, quota, remaining, script_calls,
    store, take, wait, wait_for_redis, without_breaker,
};

/// The server did what it was asked and the caller never learns: the take is
/// charged once, answered by policy, counted, and never sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_charged_at_most_once_and_never_replayed() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("lost", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(RedisOptions { deadline: Duration::from_secs(2), ..without_breaker(proxy.url()) });
    assert!(take(&store, tier).await.0.is_allowed());
    let calls = script_calls(&server);
    let lost = 20;
    for round in 1..=lost {
        proxy.set_replies(Mode::CutOnce(0));
        let error = store.try_apply(Operation::Take, &[tier]).await.unwrap_err();
        assert!(matches!(error, CallError::Disconnected { .. }), "{error}");
        let (decision, by) = take(&store, tier).await;
        assert_eq!(by, DecidedBy::Redis, "the next request must find a new connection");
        assert_eq!(decision.remaining, 1_000 - 1 - 2 * round, "each lost take is charged once");
    }
    assert_eq!(script_calls(&server) - calls, 2 * lost, "a request was sent twice");
    assert_eq!(proxy.cuts(), lost);
    proxy.set_replies(Mode::CutOnce(0));
    assert_eq!(take(&store, tier).await.1, DecidedBy::Policy);
    assert_eq!(store.stats().unknown, 1);
    println!("lost replies: {lost} of {lost} charged once, none replayed, {:?}", store.stats());
}

/// While every reply is cut no connection can be made: nothing is asked, so
/// nothing is charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_always_cut_open_the_breaker_until_they_pass() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("cut", "a"));
    let tier = bucket.tier(&quota, 1);
    // Far more time than a connection that is cut takes, so that none is merely
    // late.
    let store = store(RedisOptions { deadline: Duration::from_secs(2), ..RedisOptions::new(proxy.url()) });
    wait_for_redis(&store, tier).await;
    let before = store.stats().unknown;
    proxy.set_replies(Mode::CutAfter(0));
    for _ in 0..50 {
        assert_eq!(take(&store, tier).await.1, DecidedBy::Policy);
    }
    let stats = store.stats();
    let unknown = stats.unknown - before;
    assert!(store.is_open(), "five failures open the breaker: {stats:?}");
    assert_eq!(unknown, 1, "only the first found a connection to be sent by: {stats:?}");
    proxy.set_replies(Mode::Pass);
    let after = wait_for_redis(&store, tier).await;
    let left = remaining(server.url(), tier).await;
    println!("replies cut: {stats:?}; {left} of 1000 left; used again {after:?} after they passed");
    assert!(after < USED_AGAIN_WITHIN, "{after:?}");
    assert_eq!(1_000 - left, unknown, "a take whose reply is lost is charged, and no other");
}

/// A peer that vanishes without a word: no error ever comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_given_up() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("half", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(RedisOptions::new(proxy.url()));
    wait_for_redis(&store, tier).await;
    proxy.set(Mode::Drop);
    // Five of them wait for it until the breaker opens.
    let times = all_by_policy(&store, &[tier], 100).await;
    proxy.set(Mode::Pass);
    let after = wait_for_redis(&store, tier).await;
    println!("half-open: of 100 five took {:?}; used again {after:?} after the network healed", &times[95..]);
    assert!(times[95] <= ANSWERED_WITHIN, "{:?}", &times[90..]);
    // A connection that was begun in the silence is given up after half a second;
    // who asks meanwhile waits for it in vain, and the breaker pauses once more.
    assert!(after < 2 * USED_AGAIN_WITHIN, "{after:?}");
    assert_eq!(remaining(server.url(), tier).await, 1_000, "nothing arrived, so nothing is charged");
}

/// A server that is slow but in time keeps its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_costs_answers_but_no_connections() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("slow", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(RedisOptions { deadline: Duration::from_millis(100), ..without_breaker(proxy.url()) });
    wait_for_redis(&store, tier).await;
    let connections = proxy.accepted();
    let late = Duration::from_millis(400);
    for _ in 0..5 {
        proxy.set_replies(Mode::Delay(late));
        let began = Instant::now();
        assert_eq!(take(&store, tier).await.1, DecidedBy::Policy);
        assert!(began.elapsed() < late, "the caller waited for what came too late: {:?}", began.elapsed());
        proxy.set_replies(Mode::Pass);
        wait_for_redis(&store, tier).await;
    }
    println!("slow: {:?}", store.stats());
    assert_eq!(proxy.accepted(), connections, "a connection that answers late is still good");
}

/// The most that the process may grow, the record of the load included.
const GROWTH_MAX_KB: i64 = 24 * 1_024;

/// In a process of its own, because that is what must not grow.
#[test]
fn an_outage_costs_no_caller_more_than_the_deadline() {
    let test = "faults_network::soak_an_outage_of_nine_seconds";
    let run = Command::new(env::current_exe().unwrap()).args(["--exact", test, "--ignored", "--nocapture"]).output();
    let run = run.unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}");
    assert!(run.status.success() && text.contains("1 passed"), "{}", String::from_utf8_lossy(&run.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in a process of its own"]
async fn soak_an_outage_of_nine_seconds() {
    outage(Duration::from_secs(5), Duration::from_secs(4), Duration::from_millis(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes over a minute"]
async fn soak_an_outage_of_a_minute() {
    outage(Duration::from_secs(35), Duration::from_secs(25), Duration::from_millis(12)).await;
}

/// A server that hangs, then is gone, then comes back, under a load whose
/// tasks wait for `pace` after each take.
async fn outage(hangs_for: Duration, gone_for: Duration, pace: Duration) {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, buckets) = (quota("1000/s burst 1000"), buckets("outage", 50));
    let store = store(RedisOptions::new(proxy.url()));
    let tier = buckets[0][0].tier(&quota, 1);
    wait_for_redis(&store, tier).await;
    let memory_kb = resident_kb();
    server.pause();
    let load = Load::start(&store, 32, pace, quota, &buckets);
    let mut open_most = 0;
    for (number, lasts) in [hangs_for, gone_for].into_iter().enumerate() {
        if number == 1 {
            server.kill();
        }
        let began = Instant::now();
        while began.elapsed() < lasts {
            open_most = open_most.max(proxy.open());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let taken = load.stop().await;
    let growth_kb = resident_kb() - memory_kb;
    let (median, p99) = (percentile(&taken, 0.5), percentile(&taken, 0.99));
    println!(
        "outage of {:?}: {} takes, median {median:?}, p99 {p99:?}, slowest {:?}, at most {open_most} connections, \
         {growth_kb} KiB more, {:?}",
        hangs_for + gone_for,
        taken.len(),
        percentile(&taken, 1.0),
        store.stats()
    );
    assert!(taken.iter().all(|it| it.by == DecidedBy::Policy));
    assert!(p99 <= ANSWERED_WITHIN, "p99 is {p99:?}");
    assert!(open_most <= 2, "{open_most} connections were open at once");
    assert!(growth_kb < GROWTH_MAX_KB, "the process grew by {growth_kb} KiB");
    server.restart();
    let after = wait_for_redis(&store, tier).await;
    println!("used again {after:?} after its return");
    assert!(after < USED_AGAIN_WITHIN, "{after:?}");
    assert_eq!(ask(&store, Operation::Take, tier).await.1, DecidedBy::Redis);
    wait("one connection to be left", || proxy.open() == 1);
}

fn resident_kb() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
