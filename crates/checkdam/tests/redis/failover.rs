//! Failover of masters and migration of slots, under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::store::redis::{CallError, RedisOptions, RedisStore};
use checkdam::store::{Operation, Store, Tier};
use checkdam::{DecidedBy, Decision, Quota};
use testkit::{Cluster, Engine, Sentinel};

use crate::setup::{
    ANSWERED_WITHIN, Load, Taken, all_by_policy, buckets, count_by, patient, quota, store, verify, wait,
    wait_for_redis, without_breaker,
};

const KEYS: usize = 30;

/// A bucket with room for what one loss event may cost: one more burst.
fn with_bursts(quota: &Quota, bursts: u64) -> Quota {
    let mut spec = quota.spec();
    spec.burst = Some(quota.limit() * bursts);
    Quota::new(spec, quota.algorithm()).unwrap()
}

/// How long Redis itself answered nothing that was asked.
fn longest_gap(taken: &[Taken]) -> Duration {
    let mut ends: Vec<Instant> =
        taken.iter().filter(|it| it.by == DecidedBy::Redis).map(|it| it.began + it.took).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

async fn resumes(store: &RedisStore, quota: &Quota, buckets: &[Vec<TestBucket>]) {
    for bucket in buckets.iter().flatten() {
        wait_for_redis(store, bucket.tier(quota, 1)).await;
    }
}

/// Lets the load go on for so many answers by Redis.
fn answers_more(store: &RedisStore) {
    let before = store.stats().answered;
    wait("the load to go on", || store.stats().answered >= before + 1_000);
}

fn report(name: &str, store: &RedisStore, quota: &Quota, taken: &[Taken]) {
    let found = verify(&with_bursts(quota, 2), taken);
    println!(
        "{name}: {} takes, {} by Redis, {} by policy, silent for {:?}; admitted {} within a bound of one more burst \
         for each of {KEYS} keys; {:?}",
        taken.len(),
        count_by(taken, DecidedBy::Redis),
        count_by(taken, DecidedBy::Policy),
        longest_gap(taken),
        found.admitted,
        store.stats()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_loses_a_master_costs_at_most_one_more_burst() {
    let cluster = Cluster::start(3, 1, Engine::Redis);
    let (quota, buckets) = (quota("1/s burst 50"), buckets("failover", KEYS));
    let store = store(RedisOptions::new(cluster.url()));
    resumes(&store, &quota, &buckets).await;
    let load = Load::start(&store, 8, Duration::from_millis(5), quota, &buckets);
    answers_more(&store);
    let dead = tokio::task::block_in_place(|| {
        let dead = cluster.kill_master(0);
        cluster.wait_ok();
        dead
    });
    resumes(&store, &quota, &buckets).await;
    answers_more(&store);
    let taken = load.stop().await;
    report("cluster failover", &store, &quota, &taken);
    assert!(!store.is_open(), "a server that was replaced must be forgotten");
    assert!(!cluster.nodes()[dead].is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_failover_costs_at_most_one_more_burst() {
    let sentinel = Sentinel::start();
    let (quota, buckets) = (quota("1/s burst 50"), buckets("failover", KEYS));
    let store = store(RedisOptions::new(sentinel.url()));
    resumes(&store, &quota, &buckets).await;
    let load = Load::start(&store, 8, Duration::from_millis(5), quota, &buckets);
    answers_more(&store);
    tokio::task::block_in_place(|| {
        sentinel.kill_master();
        sentinel.wait_failover();
    });
    resumes(&store, &quota, &buckets).await;
    answers_more(&store);
    let taken = load.stop().await;
    report("sentinel failover", &store, &quota, &taken);
}

/// The old master stays, and says READONLY.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_demoted_is_left_for_the_new_one() {
    let sentinel = Sentinel::start();
    let (quota, buckets) = (quota("1/s burst 50"), buckets("demoted", KEYS));
    let store = store(RedisOptions::new(sentinel.url()));
    resumes(&store, &quota, &buckets).await;
    let load = Load::start(&store, 8, Duration::from_millis(5), quota, &buckets);
    answers_more(&store);
    let old = sentinel.current_master();
    wait("a new master", || {
        let _ = sentinel.sentinels()[0].command(&["SENTINEL", "FAILOVER", "mymaster"]);
        sentinel.current_master() != old
    });
    tokio::task::block_in_place(|| sentinel.wait_replicated());
    resumes(&store, &quota, &buckets).await;
    answers_more(&store);
    let taken = load.stop().await;
    report("demotion", &store, &quota, &taken);
    let new = &sentinel.servers()[sentinel.current_master()];
    assert_eq!(new.command(&["DBSIZE"]).int(), KEYS as i64);
    assert!(!store.is_open());
}

/// Without one of its masters a cluster that must cover all slots answers
/// CLUSTERDOWN to every call: nothing is executed, whichever node has the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_answered_for_by_policy_and_used_again() {
    let cluster = Cluster::builder().replicas_per_master(0).args(["--cluster-require-full-coverage", "yes"]).start();
    let (quota, buckets) = (quota("1/h burst 50"), buckets("down", KEYS));
    let tiers: Vec<Tier<'_>> = buckets.iter().flatten().map(|bucket| bucket.tier(&quota, 1)).collect();
    let usual = store(RedisOptions::new(cluster.url()));
    resumes(&usual, &quota, &buckets).await;
    let before = store(patient(cluster.url()));
    for tier in &tiers {
        assert!(allows(&before, Operation::Take, &[*tier]).await);
    }
    let (dead, alive) = cluster.nodes().split_at(1);
    dead[0].kill();
    wait("the cluster to be down", || {
        alive.iter().all(|node| node.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail"))
    });
    let unhurried =
        store(RedisOptions { deadline: Some(Duration::from_millis(200)), ..without_breaker(cluster.url()) });
    let is_told_so = |bucket: &TestBucket| {
        let (store, bucket) = (Arc::clone(&unhurried), bucket.clone());
        tokio::spawn(async move {
            loop {
                match store.try_apply(Operation::Take, &[bucket.tier(&quota, 1)]).await.unwrap_err() {
                    CallError::Moved { reason, to: None, .. } if reason.starts_with("CLUSTERDOWN") => return true,
                    CallError::Unreachable { .. } => return false,
                    // Late, on a machine that is busy.
                    _ => {}
                }
            }
        })
    };
    let asked: Vec<_> = buckets.iter().flatten().map(is_told_so).collect();
    let mut down = 0;
    for asked in asked {
        down += u64::from(asked.await.unwrap());
    }
    let times = all_by_policy(&store(without_breaker(cluster.url())), &tiers, 100).await;
    assert!(times[50] <= ANSWERED_WITHIN, "half of them took {:?}", times[50]);
    all_by_policy(&usual, &tiers, 100).await;
    assert!(usual.is_open(), "{:?}", usual.stats());
    tokio::task::block_in_place(|| {
        dead[0].restart();
        cluster.wait_ok();
    });
    let began = Instant::now();
    resumes(&usual, &quota, &buckets).await;
    let after = began.elapsed();
    let (patient, mut charged) = (store(patient(cluster.url())), 0);
    for tier in &tiers {
        // The server that died had saved nothing: its buckets are as new.
        let left = left(&patient, &[*tier]).await[0];
        assert!([49, 50].contains(&left), "what was refused must not be charged: {left} left");
        charged += 50 - left;
    }
    println!(
        "cluster down: {down} of {KEYS} by CLUSTERDOWN, median {:?}, slowest {:?}; used again {after:?} after it",
        times[50], times[99]
    );
    // The store is as quick as with one server; but a cluster that comes together
    // on a busy machine may fall apart once more, which costs it seconds.
    assert!(after < Duration::from_secs(5) && !usual.is_open(), "{after:?}");
    assert_eq!(charged, down, "the servers that lived keep what they were owed");
}

/// A node that hangs must not keep a new store from learning who holds what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_entered_though_its_first_node_hangs() {
    let cluster = Cluster::builder().masters(3).replicas_per_master(0).start();
    cluster.nodes()[0].pause();
    let (quota, buckets) = (quota("1/h burst 50"), buckets("entered", KEYS));
    let store = store(RedisOptions::new(cluster.url()));
    let began = Instant::now();
    let mut answered = 0;
    while answered < KEYS / 3 && began.elapsed() < Duration::from_secs(5) {
        answered = 0;
        for bucket in buckets.iter().flatten() {
            let answer = store.apply(Operation::Peek, &[bucket.tier(&quota, 1)]).await;
            answered += usize::from(answer.by == DecidedBy::Redis);
        }
    }
    println!("first node hangs: {answered} of {KEYS} keys answered after {:?}, {:?}", began.elapsed(), store.stats());
    assert!(answered >= KEYS / 3, "two of three nodes are well");
    cluster.nodes()[0].resume();
    resumes(&store, &quota, &buckets).await;
}

/// What was used is charged to every server that replies, once, and to the others later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_across_slots_is_charged_once_though_a_server_hangs() {
    let cluster = Cluster::builder().masters(3).replicas_per_master(0).start();
    let (quota, buckets) = (quota("10/d"), buckets("recorded", KEYS));
    let store = store(RedisOptions { deadline: Some(Duration::from_millis(300)), ..RedisOptions::new(cluster.url()) });
    resumes(&store, &quota, &buckets).await;
    let tiers: Vec<Tier<'_>> = buckets.iter().flatten().map(|bucket| bucket.tier(&quota, 25)).collect();
    for tier in &tiers {
        assert_eq!(store.apply(Operation::Reset, &[*tier]).await.by, DecidedBy::Redis);
    }
    cluster.nodes()[0].pause();
    let answer = store.apply(Operation::Record, &tiers).await;
    assert_ne!(answer.by, DecidedBy::Redis, "one of three servers hangs");
    cluster.nodes()[0].resume();
    let began = Instant::now();
    let mut debts = Vec::new();
    while began.elapsed() < Duration::from_secs(20) {
        debts.clear();
        for tier in &tiers {
            let answer = store.apply(Operation::Peek, &[Tier { cost: 0, ..*tier }]).await;
            debts.push(if answer.by == DecidedBy::Redis { answer.decisions[0].debt } else { 0 });
        }
        if debts.iter().all(|debt| *debt > 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A server that hung may have charged what it was sent when it went on: the result of
    // that call is unknown, so its tiers are charged again.
    assert!(debts.iter().all(|debt| [15, 40].contains(debt)), "{debts:?}");
    let once = debts.iter().filter(|debt| **debt == 15).count();
    assert!(once >= KEYS / 3, "servers that replied are charged once: {debts:?}");
}

/// MOVED and ASK, and TRYAGAIN for requests of two tiers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_lose_no_request() {
    let cluster = Cluster::start(3, 0, Engine::Redis);
    let quota = quota("100/s burst 20");
    let two = |n: usize| ["one", "two"].map(|rule| TestBucket::new(rule, &format!("moving {n}"))).to_vec();
    let buckets: Vec<Vec<TestBucket>> = (0..4).map(two).collect();
    let store = store(RedisOptions {
        deadline: Some(Duration::from_secs(2)),
        readable_keys: true,
        ..RedisOptions::new(cluster.url())
    });
    resumes(&store, &quota, &buckets).await;
    let load = Load::start(&store, 8, Duration::from_millis(1), quota, &buckets);
    tokio::task::block_in_place(|| {
        for round in 0..10 {
            for n in 0..buckets.len() {
                let slot = cluster.slot_of(&format!("cd:{{moving {n}}}:x"));
                let to = (cluster.master_of_slot(slot) + 1 + round % 2) % 3;
                let migration = cluster.begin_migration(slot, to);
                // One key of two: from here on requests for both find neither
                // server able.
                migration.migrate_keys(1);
                migration.finish();
                cluster.wait_ok();
            }
        }
    });
    let taken = load.stop().await;
    let found = verify(&quota, &taken);
    let policy = count_by(&taken, DecidedBy::Policy);
    println!("40 slots moved under {} takes: {policy} by policy, {found:?}, {:?}", taken.len(), store.stats());
    assert!(policy <= taken.len() / 1_000, "{policy} of {} were decided by policy: {:?}", taken.len(), store.stats());
}

/// While a slot's keys are on two servers, two tiers are charged one by one:
/// both or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_keys_are_on_two_servers_is_answered() {
    let cluster = Cluster::start(3, 0, Engine::Redis);
    let (wide, narrow) = (quota("1/h burst 10"), quota("1/h burst 3"));
    let (first, second) = (TestBucket::new("first", "apart"), TestBucket::new("second", "apart"));
    let tiers = [first.tier(&wide, 1), second.tier(&narrow, 1)];
    let store = store(RedisOptions { readable_keys: true, ..patient(cluster.url()) });
    assert!(allows(&store, Operation::Take, &tiers).await);
    let slot = cluster.slot_of("cd:{apart}:x");
    let to = (cluster.master_of_slot(slot) + 1) % 3;
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.migrate_keys(1), 1);
    for expected in [true, true, false, false] {
        assert_eq!(allows(&store, Operation::Take, &tiers).await, expected);
    }
    assert_eq!(left(&store, &tiers).await, [7, 0], "what is denied is given back");
    migration.finish();
    assert_eq!(left(&store, &tiers).await, [7, 0]);
    assert!(!allows(&store, Operation::Take, &tiers).await);
    println!("keys on two servers: {:?}", store.stats());
}

async fn allows(store: &Arc<RedisStore>, operation: Operation, tiers: &[Tier<'_>]) -> bool {
    let answer = store.apply(operation, tiers).await;
    assert_eq!(answer.by, DecidedBy::Redis, "{:?}", store.stats());
    answer.decisions.iter().all(Decision::is_allowed)
}

async fn left(store: &Arc<RedisStore>, tiers: &[Tier<'_>]) -> Vec<u64> {
    let answer = store.apply(Operation::Peek, tiers).await;
    assert_eq!(answer.by, DecidedBy::Redis, "{:?}", store.stats());
    answer.decisions.iter().map(|decision| decision.remaining).collect()
}
