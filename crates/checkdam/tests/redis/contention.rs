//! Three stores, each with its own runtime and connections, and sixty clients: the
//! oracle finds no over-admission.

use std::thread;
use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::conformance::oracle::{self, Take};
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Operation, Store, Tier};
use checkdam::{DecidedBy, Decision, Quota};
use testkit::{Cluster, Engine, Redis};

use crate::setup::{CLOCKS_APART_US, Load, Taken, buckets, count_by, patient, quota, store, verify};

const STORES: usize = 3;
const CLIENTS_A_STORE: usize = 20;

fn options(url: &str) -> RedisOptions {
    RedisOptions { deadline: Some(Duration::from_secs(1)), readable_keys: true, ..RedisOptions::new(url) }
}

/// Runs `work` in as many threads as there are stores, each with a runtime of
/// its own.
fn on_each_store<T: Send>(work: &(impl AsyncFn(usize) -> T + Sync)) -> Vec<T> {
    let run = |number| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(number))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..STORES).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn sixty_clients_of_three_stores_never_exceed_a_limit() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = Redis::builder().engine(engine).start();
        for (text, keys) in [("2000/s burst 100", 1), ("20/s burst 10", 100)] {
            let (url, quota) = (server.url(), quota(text));
            let taken: Vec<Taken> = on_each_store(&async |_| {
                let store = store(options(&url));
                let buckets = buckets(&format!("contention {keys}"), keys);
                let load = Load::start(&store, CLIENTS_A_STORE, Duration::ZERO, quota, &buckets);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                load.stop().await
            })
            .into_iter()
            .flatten()
            .collect();
            let found = verify(&quota, &taken);
            let used = found.admitted as f64 / found.ideal as f64;
            println!("{engine:?}, {text}, {keys} keys: {} takes, used {used:.4}, {found:?}", taken.len());
            assert_eq!(count_by(&taken, DecidedBy::Redis), taken.len(), "some were decided by policy");
            assert!(used > 0.98, "only {used} of what an ideal bucket admits");
        }
    }
}

/// The three tiers of a request: their quotas and buckets.
#[derive(Clone)]
struct Tiers {
    quotas: [Quota; 3],
    users: Vec<TestBucket>,
    endpoints: Vec<TestBucket>,
    global: TestBucket,
}

impl Tiers {
    fn new(quotas: [&str; 3], users: usize, endpoints: usize) -> Self {
        let many = |rule: &str, count| (0..count).map(|n| TestBucket::new(rule, &format!("{rule}:{n}"))).collect();
        Self {
            quotas: quotas.map(quota),
            users: many("user", users),
            endpoints: many("endpoint", endpoints),
            global: TestBucket::new("global", "global"),
        }
    }

    /// How far ahead the clock of an answer is: an answer has one time, the
    /// latest of its servers'.
    fn ahead_us(&self, cluster: &Cluster, clocks_us: [i64; 3], request: usize) -> i64 {
        let clock_us = |tier: Tier<'_>| {
            let subject = std::str::from_utf8(tier.subject).unwrap();
            clocks_us[cluster.master_of_slot(cluster.slot_of(&format!("cd:{{{subject}}}:x")))]
        };
        self.of(request).map(clock_us).into_iter().max().unwrap()
    }

    fn of(&self, request: usize) -> [Tier<'_>; 3] {
        let user = &self.users[request % self.users.len()];
        let endpoint = &self.endpoints[request % self.endpoints.len()];
        [user.tier(&self.quotas[0], 1), endpoint.tier(&self.quotas[1], 1), self.global.tier(&self.quotas[2], 1)]
    }

    /// Every client of every store makes so many requests.
    fn load(&self, url: &str, requests: usize) -> Vec<Asked> {
        let all = on_each_store(&async |store_number| {
            let store = store(options(url));
            let clients: Vec<_> = (0..CLIENTS_A_STORE)
                .map(|client| {
                    let (store, tiers) = (store.clone(), self.clone());
                    tokio::spawn(async move {
                        let mut asked = Vec::new();
                        for number in 0..requests {
                            let request = store_number * 7 + client * 3 + number;
                            asked.push(ask(&store, &tiers, request).await);
                        }
                        asked
                    })
                })
                .collect();
            let mut asked = Vec::new();
            for client in clients {
                asked.extend(client.await.unwrap());
            }
            assert_eq!(store.stats().unknown, 0, "{:?}", store.stats());
            asked
        });
        all.into_iter().flatten().collect()
    }
}

struct Asked {
    request: usize,
    at_us: u64,
    took: Duration,
    is_allowed: bool,
}

async fn ask(store: &RedisStore, tiers: &Tiers, request: usize) -> Asked {
    let began = Instant::now();
    let answer = store.apply(Operation::Take, &tiers.of(request)).await;
    assert_eq!(answer.by, DecidedBy::Redis, "{:?}", store.stats());
    for (decision, quota) in answer.decisions.iter().zip(&tiers.quotas) {
        // Whatever the other shards' clocks say: a bucket that is empty has one
        // token again after one interval, and is full after all of them.
        let interval_us = quota.period_us().div_ceil(quota.spec().amount);
        assert!(decision.retry_after_us <= interval_us, "{quota}: {decision:?}");
        assert!(decision.reset_after_us <= interval_us * quota.limit(), "{quota}: {decision:?}");
    }
    let is_allowed = answer.decisions.iter().all(Decision::is_allowed);
    Asked { request, at_us: answer.at_us, took: began.elapsed(), is_allowed }
}

/// A cluster whose clocks are so far ahead of the machine's.
fn cluster(clocks_us: [i64; 3]) -> Cluster {
    Cluster::builder().replicas_per_master(0).clocks_ahead_us(clocks_us).start()
}

#[test]
fn tiers_in_different_slots_are_charged_together_or_not_at_all() {
    charged_together_or_not_at_all([0; 3]);
}

#[test]
fn tiers_on_shards_whose_clocks_are_apart_are_charged_together_or_not_at_all() {
    charged_together_or_not_at_all(CLOCKS_APART_US);
}

/// Buckets that hardly fill up again: whatever was admitted is still owed, and
/// nothing else is.
fn charged_together_or_not_at_all(clocks_us: [i64; 3]) {
    let cluster = cluster(clocks_us);
    let tiers = Tiers::new(["1/h burst 10", "1/h burst 60", "1/h burst 100"], 15, 2);
    let asked = tiers.load(&cluster.url(), 60);
    let admitted = asked.iter().filter(|it| it.is_allowed).count();
    println!("three tiers in three slots: {admitted} of {} admitted, at most 100", asked.len());
    assert_eq!(admitted, 100, "the global tier allows 100, and the others more than that");
    assert!(cluster.nodes().iter().all(|node| node.command(&["DBSIZE"]).int() > 0), "a server holds no tier");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = store(RedisOptions { readable_keys: true, ..patient(cluster.url()) });
        for request in 0..30 {
            let standing = store.apply(Operation::Peek, &tiers.of(request)).await;
            for (place, decision) in standing.decisions.iter().enumerate() {
                let charged = |it: &&Asked| it.is_allowed && same_bucket(&tiers, it.request, request, place);
                let count = asked.iter().filter(charged).count() as u64;
                assert!(count <= tiers.quotas[place].limit(), "tier {place} of {request} admitted {count}");
                let owed = decision.reset_after_us as f64 / 3_600_000_000.0;
                assert!((owed - count as f64).abs() < 0.5, "tier {place}: {count} were admitted, {owed} are owed");
            }
        }
    });
}

#[test]
fn no_tier_of_a_cluster_admits_too_much() {
    admits_no_more_than_it_may([0; 3]);
}

#[test]
fn no_tier_on_shards_whose_clocks_are_apart_admits_too_much() {
    admits_no_more_than_it_may(CLOCKS_APART_US);
}

/// Buckets that fill up as fast as they are emptied, so that what is given back
/// late would be given twice.
fn admits_no_more_than_it_may(clocks_us: [i64; 3]) {
    let cluster = cluster(clocks_us);
    let tiers = Tiers::new(["40/s burst 1", "200/s burst 4", "300/s burst 10"], 10, 2);
    let mut asked = tiers.load(&cluster.url(), 80);
    let ahead_us: Vec<i64> = (0..10).map(|request| tiers.ahead_us(&cluster, clocks_us, request)).collect();
    for it in &mut asked {
        it.at_us = it.at_us.checked_add_signed(-ahead_us[it.request % 10]).unwrap();
    }
    // By the machine's clock, as every server's but for a constant: a tier may
    // have been charged earlier than its answer says, by no more than the
    // request took.
    let slowest = asked.iter().filter(|it| it.is_allowed).map(|it| it.took).max().unwrap();
    let admitted = asked.iter().filter(|it| it.is_allowed).count();
    println!("three tiers that refill: {admitted} of {} admitted, the slowest in {slowest:?}", asked.len());
    for place in 0..3 {
        let mut spec = tiers.quotas[place].spec();
        let slack = (spec.amount as f64 * slowest.as_secs_f64()).ceil() as u64;
        spec.burst = Some(tiers.quotas[place].limit() + slack);
        let judged = Quota::new(spec, tiers.quotas[place].algorithm()).unwrap();
        for request in 0..10 {
            let mine = asked.iter().filter(|it| same_bucket(&tiers, it.request, request, place));
            let mut takes: Vec<Take> =
                mine.map(|it| Take { at_us: it.at_us, cost: 1, admitted: it.is_allowed }).collect();
            oracle::verify(&judged, &mut takes).unwrap();
        }
    }
}

fn same_bucket(tiers: &Tiers, one: usize, other: usize, place: usize) -> bool {
    let subjects = (tiers.of(one)[place].subject, tiers.of(other)[place].subject);
    subjects.0 == subjects.1
}
