//! Network faults: lost replies, silent peers, and the latency of requests during an
//! outage.

use std::env;
use std::fs;
use std::future::poll_fn;
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use checkdam::DecidedBy;
use checkdam::conformance::TestBucket;
use checkdam::store::Operation;
use checkdam::store::redis::{CallError, PubSubEvent, RedisOptions};
use testkit::{FaultProxy, Mode, Redis};
use tokio::time::timeout;

use crate::setup::{
    ANSWERED_WITHIN, LIMIT, Load, USED_AGAIN_WITHIN, all_by_policy, ask, buckets, calls, patient, percentile, quota,
    remaining, script_calls, store, take, wait, wait_for_redis, without_breaker,
};

/// The server did what it was asked and the caller never learns: the take is
/// charged once, answered by policy, counted, and never sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_charged_at_most_once_and_never_replayed() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("lost", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(RedisOptions { deadline: Some(Duration::from_secs(2)), ..without_breaker(proxy.url()) });
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
    let store = store(RedisOptions { deadline: Some(Duration::from_secs(2)), ..RedisOptions::new(proxy.url()) });
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
    // requests meanwhile wait for it in vain, and the breaker opens once more.
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
    let store = store(RedisOptions { deadline: Some(Duration::from_millis(100)), ..without_breaker(proxy.url()) });
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

/// The breaker learns from calls, not from callers: those whose own patience is
/// shorter than the deadline open it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_early_open_the_breaker_too() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("impatient", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(RedisOptions::new(proxy.url()));
    wait_for_redis(&store, tier).await;
    proxy.set(Mode::Drop);
    let began = Instant::now();
    while !store.is_open() {
        assert!(began.elapsed() < LIMIT, "the breaker never opens: {:?}", store.stats());
        // The caller asks, and drops its future before the deadline without another look.
        let mut request = Box::pin(take(&store, tier));
        assert!(poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await.is_pending() || store.is_open());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.set(Mode::Pass);
    wait_for_redis(&store, tier).await;
    assert!(!store.is_open());
}

/// A server that is far away is asked by more than two calls at a time: while no
/// answer comes, many requests, each in a call of its own, still reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_follow_the_round_trip() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("far", "a"));
    let tier = bucket.tier(&quota, 1);
    let store = store(patient(proxy.url()));
    proxy.set_replies(Mode::Delay(Duration::from_millis(10)));
    wait_for_redis(&store, tier).await;
    let round_trip = store.round_trip().unwrap();
    assert!(round_trip >= Duration::from_millis(10), "{round_trip:?}");
    proxy.set_replies(Mode::Hold);
    let calls = script_calls(&server);
    let mut waiting = Vec::new();
    for number in 1..=12 {
        let (store, bucket) = (Arc::clone(&store), bucket.clone());
        waiting.push(tokio::spawn(async move { take(&store, bucket.tier(&quota, 1)).await.1 }));
        wait("the call to reach the server", || script_calls(&server) == calls + number);
    }
    proxy.set_replies(Mode::Pass);
    for one in waiting {
        assert_eq!(one.await.unwrap(), DecidedBy::Redis);
    }
}

/// A deadline that nobody set follows the round trip, within bounds; one that was
/// set is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_follows_the_round_trip_unless_it_is_set() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let (quota, bucket) = (quota("1/h burst 1000"), TestBucket::new("deadline", "a"));
    let tier = bucket.tier(&quota, 1);
    let (following, fixed) = (store(without_breaker(proxy.url())), store(patient(proxy.url())));
    assert_eq!((following.round_trip(), following.deadline()), (None, Duration::from_millis(15)));
    wait_for_redis(&following, tier).await;
    wait_for_redis(&fixed, tier).await;
    assert!(following.is_near_enough() && fixed.is_near_enough());
    proxy.set_replies(Mode::Delay(Duration::from_millis(40)));
    proxy.close_all();
    wait_for_redis(&fixed, tier).await;
    assert!(fixed.is_near_enough(), "{:?}", fixed.round_trip());
    assert_eq!(fixed.deadline(), Duration::from_secs(10));
    let began = Instant::now();
    while following.is_near_enough() {
        assert!(began.elapsed() < LIMIT, "{:?}", following.round_trip());
        assert_eq!(take(&following, tier).await.1, DecidedBy::Policy);
    }
    assert_eq!(following.deadline(), Duration::from_millis(18), "Envoy waits no longer");
}

/// A subscription to a server that has vanished without a word ends, though nothing
/// was to be heard on it; one on which nobody speaks stays.
#[tokio::test]
async fn a_subscription_to_a_server_that_vanished_is_given_up() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let store = store(RedisOptions::new(proxy.url()));
    let mut heard = store.subscribe();
    assert_eq!(timeout(LIMIT, heard.recv()).await.unwrap(), Some(PubSubEvent::Subscribed));
    let pings = calls(&server, "ping");
    // The answer needs real time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    let began = Instant::now();
    while calls(&server, "ping") == pings {
        assert!(began.elapsed() < LIMIT, "a silent subscription is not tested");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.publisher().publish(b"still here").await.unwrap();
    assert_eq!(timeout(LIMIT, heard.recv()).await.unwrap(), Some(PubSubEvent::Message(b"still here".to_vec())));
    proxy.set(Mode::Drop);
    tokio::time::pause();
    let lost = timeout(Duration::from_secs(60), heard.recv()).await.expect("it must not look as if nobody spoke");
    assert!(
        matches!(&lost, Some(PubSubEvent::Disconnected(why)) if why.reason.contains("no longer answers")),
        "{lost:?}"
    );
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
