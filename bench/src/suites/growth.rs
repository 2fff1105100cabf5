//! What more of everything costs: live buckets, rules, tiers, connections, shards.

use std::time::Duration;

use checkdam::conformance::TestBucket;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{MemoryStore, Operation};
use checkdam::{Definitions, Limiter};
use testkit::Cluster;

use crate::Checkdam;
use crate::calls::{Drive, drive, runtime};
use crate::checks::{checks_ns, limiter, quota, rule, tenant};
use crate::contest::Contest;
use crate::inside::{Keys, fill, takes_ns};
use crate::load::{METRICS, RequestKind, run as load};
use crate::machine::{cores, pin_process};
use crate::rivals::QUOTA;
use crate::server::{ONE_TIER, Server};
use crate::session::Session;

pub(super) fn run(session: &mut Session) {
    buckets(session);
    rules(session);
    tiers(session);
    connections(session);
    shards(session);
}

fn buckets(session: &mut Session) {
    session.say("up to ten million buckets are filled");
    let sizes: Vec<usize> = (0..=7).map(|power| 10_usize.pow(power)).collect();
    let stores: Vec<Checkdam> = sizes.iter().map(|size| Checkdam::new(*size, QUOTA)).collect();
    for (size, store) in sizes.iter().zip(&stores) {
        let is_full = fill(*size, Duration::from_secs(120), &|key| store.take(key));
        assert!(is_full, "{size} takes took more than two minutes");
    }
    let mut contest = Contest::curve("a take from one of N live buckets", &["ns a take"]);
    for (size, store) in sizes.iter().zip(&stores) {
        let (keys, take) = (Keys::Even(*size), |_: usize, key: &String| store.take(key));
        contest.add(size.to_string(), move |length| vec![takes_ns(1, length, keys, &take)]);
    }
    let length = session.pace().short;
    let figures = contest.run(session, length);
    session.keep(figures);
}

fn checks(session: &mut Session, title: &str, limiters: &[(usize, usize, Limiter<MemoryStore>)]) {
    let mut contest = Contest::curve(title, &["ns a check"]);
    for (size, tiers, limiter) in limiters {
        contest.add(size.to_string(), move |length| vec![checks_ns(limiter, *tiers, 1_000, length)]);
    }
    let length = session.pace().short;
    let figures = contest.run(session, length);
    session.keep(figures);
}

fn rules(session: &mut Session) {
    let of = |size: usize| {
        let definitions = Definitions { rules: (0..size).map(tenant).collect(), ..Definitions::default() };
        (size, 1, limiter(definitions))
    };
    let limiters: Vec<_> = (0..=5).map(|power| of(10_usize.pow(power))).collect();
    checks(session, "a check with N rules, one concerns it", &limiters);
}

fn tiers(session: &mut Session) {
    let of = |size: usize| {
        let rules = (0..size).map(|number| rule(&format!("rule-{number}"), "user:{user}")).collect();
        (size, size, limiter(Definitions { rules, ..Definitions::default() }))
    };
    let limiters: Vec<_> = (0..=4).map(|power| of(1 << power)).collect();
    checks(session, "a check of N tiers, all or none", &limiters);
}

fn connections(session: &mut Session) {
    let server = Server::checkdam(ONE_TIER, &[]);
    let mut contest = Contest::curve("HTTP checks over N connections", METRICS);
    for power in 0..=6 {
        let count = 1_usize << power;
        let server = &server;
        contest.add(count.to_string(), move |length| load(server.target(RequestKind::Check), count, length));
    }
    let length = session.pace().long / 2;
    let figures = contest.run(session, length);
    session.keep(figures);
}

fn shards(session: &mut Session) {
    const METRICS: &[&str] = &["checks/s", "Redis CPU µs/check, all shards", "cores of the busiest shard"];
    let runtime = runtime();
    let _inside = runtime.enter();
    let quota = quota("1/s burst 100000");
    let clusters: Vec<Cluster> =
        (1..=3).map(|masters| Cluster::builder().masters(masters).replicas_per_master(0).start()).collect();
    let mut contest = Contest::curve("takes in a Redis Cluster of N shards", METRICS);
    for cluster in &clusters {
        for (place, node) in cluster.nodes().iter().enumerate() {
            pin_process(node.pid(), cores()[place % cores().len()]);
        }
        let options = RedisOptions { deadline: Some(Duration::from_secs(5)), ..RedisOptions::new(cluster.url()) };
        let store = RedisStore::new(options).unwrap_or_else(|error| panic!("the store: {error}"));
        let store = std::sync::Arc::new(store);
        let runtime = &runtime;
        contest.add(cluster.nodes().len().to_string(), move |length| {
            let cpu = || cluster.nodes().iter().map(testkit::Redis::cpu_seconds).collect::<Vec<f64>>();
            let (before, store) = (cpu(), std::sync::Arc::clone(&store));
            let take = async move |key: usize| {
                let bucket = TestBucket::new("rule-0", &key.to_string());
                let answer = store.try_apply(Operation::Take, &[bucket.tier(&quota, 1)]).await;
                assert!(answer.is_ok(), "the cluster did not answer");
            };
            let (checks, seconds) = drive(runtime, Drive { waiting: 256, keys: 10_000, at_once: 1 }, length, take);
            let spent: Vec<f64> = cpu().iter().zip(before).map(|(after, before)| after - before).collect();
            let busiest = spent.iter().fold(0.0, |most: f64, cpu| most.max(*cpu));
            vec![checks / seconds, spent.iter().sum::<f64>() * 1e6 / checks, busiest / seconds]
        });
    }
    contest.note(format!(
        "client and shards share {} cores: the figure that grows with machines is the CPU time a check",
        cores().len()
    ));
    let length = session.pace().long;
    let figures = contest.run(session, length);
    session.keep(figures);
}
