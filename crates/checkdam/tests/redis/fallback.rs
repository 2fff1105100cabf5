//! What nodes admit by themselves while Redis does not reply, and what of it Redis is
//! charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{FailurePolicy, MemoryOptions, MemoryStore, Operation, Tier};
use checkdam::time::{ManualClock, SECOND_US};
use checkdam::{Algorithm, DecidedBy, Limiter, Outcome, Quota, QuotaSpec, Request, Rule, RuleSet};
use testkit::{FaultProxy, Redis};

use crate::setup::{ask, quota, store, take, wait_for_redis, with_policy, without_breaker};

/// A store that never reaches a server, on a clock that the test sets.
fn away(nodes: u64) -> (RedisStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US));
    let url = format!("redis://127.0.0.1:{}", testkit::free_port());
    let options = RedisOptions { nodes, ..RedisOptions::new(url) };
    (RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap(), clock)
}

/// A request that would have to wait for too long is denied and charged nothing,
/// so the queue never grows beyond what may be waited for.
#[tokio::test]
async fn a_leaky_bucket_serves_its_rate_for_as_long_as_redis_is_away() {
    let (store, clock) = away(1);
    let quota = Quota::new("10/s burst 150".parse().unwrap(), Algorithm::LeakyBucket).unwrap();
    let rule = Rule::new("queue", "all".parse().unwrap(), vec![quota]);
    let limiter = Limiter::new(RuleSet::new(vec![rule]).unwrap(), store);
    let delay_max = Duration::from_secs(10);
    let mut served = Vec::new();
    for _second in 0..60 {
        let mut passed = 0;
        for _ in 0..50 {
            let outcome = limiter.check_within(&Request::new(), delay_max.as_micros() as u64).await;
            assert_eq!(outcome.decided_by(), DecidedBy::Local);
            assert!(Duration::from_micros(outcome.delay_us()) <= delay_max, "{outcome:?}");
            passed += u64::from(outcome.is_allowed());
            clock.advance(SECOND_US / 50);
        }
        served.push(passed);
    }
    let queued: u64 = served[..3].iter().sum();
    assert_eq!(queued, 101 + 29, "the queue of ten seconds, who is served at once, and the rate: {served:?}");
    assert!(served[3..].iter().all(|passed| *passed == 10), "{served:?}");
}

/// What each step of a story is answered: how many of so many takes pass, and who
/// decides.
async fn passes(store: &RedisStore, tier: Tier<'_>, takes: usize, by: DecidedBy) -> usize {
    let mut passed = 0;
    for _ in 0..takes {
        let (decision, decided_by) = take(store, tier).await;
        assert_eq!(decided_by, by, "{:?}", store.stats());
        passed += usize::from(decision.is_allowed());
    }
    passed
}

/// Takes Redis away, and brings it back.
fn set_away(proxy: &FaultProxy, is_away: bool) {
    proxy.refuse(is_away);
    proxy.close_all();
}

async fn wait_for_charges(store: &RedisStore, charged: u64) {
    for _ in 0..2_000 {
        if store.stats().charged >= charged {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{charged} were not charged: {:?}", store.stats());
}

fn node(proxy: &FaultProxy, clock: &Arc<ManualClock>) -> RedisStore {
    let options = RedisOptions { nodes: 3, ..without_breaker(proxy.url()) };
    let options = RedisOptions { deadline: Some(Duration::from_secs(5)), ..options };
    RedisStore::with_clock(options, Some(Arc::clone(clock))).unwrap()
}

/// The local share continues from what Redis last said, and Redis learns what was
/// admitted meanwhile.
#[tokio::test]
async fn a_node_goes_on_from_what_redis_last_said_and_charges_what_it_admits() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    for algorithm in Algorithm::ALL {
        let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US + 30 * SECOND_US));
        let (first, second) = (node(&proxy, &clock), node(&proxy, &clock));
        let quota = Quota::new("12/m".parse().unwrap(), algorithm).unwrap();
        let (bucket, other) = (TestBucket::new("share", &format!("{algorithm:?}")), TestBucket::new("share", "other"));
        let tier = with_policy(bucket.tier(&quota, 1), FailurePolicy::Local);
        assert_eq!(passes(&first, tier, 12, DecidedBy::Redis).await, 12, "{algorithm:?}");
        // The second node learns of it from a denial.
        assert_eq!(passes(&second, tier, 1, DecidedBy::Redis).await, 0, "{algorithm:?}");
        set_away(&proxy, true);
        for node in [&first, &second] {
            assert_eq!(passes(node, tier, 5, DecidedBy::Local).await, 0, "{algorithm:?}: all was gone");
        }
        let unheard_of = with_policy(other.tier(&quota, 1), FailurePolicy::Local);
        let restarted = node(&proxy, &clock);
        assert_eq!(passes(&restarted, unheard_of, 9, DecidedBy::Local).await, 4, "{algorithm:?}: a third of 12");
        // A third of what has come back by now, in buckets; of a whole limit in windows.
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        clock.advance(if is_bucket { 15 * SECOND_US } else { 125 * SECOND_US });
        let share = if is_bucket { 1 } else { 4 };
        assert_eq!(passes(&first, tier, 9, DecidedBy::Local).await, share, "{algorithm:?}");
        set_away(&proxy, false);
        wait_for_redis(&second, tier).await;
        let left = ask(&second, Operation::Peek, tier).await;
        wait_for_redis(&first, tier).await;
        wait_for_charges(&first, share as u64).await;
        let (after, _) = ask(&second, Operation::Peek, tier).await;
        assert_eq!(after.remaining, left.0.remaining - share as u64, "{algorithm:?}: what was admitted is charged");
        assert_eq!(first.stats().not_charged, 0);
    }
}

/// What is recorded while Redis is away counts on this node at once, and in Redis once it
/// replies again, also as debt; what has been paid back or has left by then does not.
#[tokio::test]
async fn what_is_recorded_without_redis_is_owed_to_it() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    for algorithm in Algorithm::ALL {
        let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US + 30 * SECOND_US));
        let (first, second) = (node(&proxy, &clock), node(&proxy, &clock));
        // Written with the limit, as in "12/m sliding_log".
        let spec = QuotaSpec { algorithm: Some(algorithm), ..QuotaSpec::new(12, 60 * SECOND_US) };
        let quota = Quota::new(spec, Algorithm::TokenBucket).unwrap();
        let mut recorded = 0;
        for policy in [FailurePolicy::Local, FailurePolicy::Closed, FailurePolicy::Open] {
            let bucket = TestBucket::new("recorded", &format!("{algorithm:?} {policy:?}"));
            let tier = |cost| with_policy(bucket.tier(&quota, cost), policy);
            let (decision, by) = ask(&first, Operation::Record, tier(2)).await;
            assert_eq!((decision.remaining, by), (10, DecidedBy::Redis), "{algorithm:?} {policy:?}");
            set_away(&proxy, true);
            let (decision, by) = ask(&first, Operation::Record, tier(15)).await;
            if policy == FailurePolicy::Local {
                assert_eq!((decision.is_allowed(), by), (false, DecidedBy::Local), "{algorithm:?}: {decision:?}");
                let (decision, _) = ask(&first, Operation::Take, tier(0)).await;
                assert!(!decision.is_allowed(), "{algorithm:?}: in debt, also here");
            } else {
                assert_eq!(by, DecidedBy::Policy, "{algorithm:?} {policy:?}");
            }
            set_away(&proxy, false);
            wait_for_redis(&first, tier(0)).await;
            recorded += 15;
            wait_for_charges(&first, recorded).await;
            wait_for_redis(&second, tier(0)).await;
            let (decision, by) = ask(&second, Operation::Peek, tier(0)).await;
            assert_eq!((decision.debt, by), (5, DecidedBy::Redis), "{algorithm:?} {policy:?}: {:?}", first.stats());
            assert_eq!(first.stats().not_charged, 0);
            assert!(ask(&second, Operation::Reset, tier(0)).await.0.is_allowed());
        }
        let bucket = TestBucket::new("recorded", &format!("{algorithm:?} long ago"));
        set_away(&proxy, true);
        let tier = with_policy(bucket.tier(&quota, 15), FailurePolicy::Local);
        assert!(!ask(&first, Operation::Record, tier).await.0.is_allowed());
        clock.advance(600 * SECOND_US);
        set_away(&proxy, false);
        wait_for_redis(&first, tier).await;
        wait_for_redis(&second, tier).await;
        assert_eq!(ask(&second, Operation::Peek, tier).await.0.remaining, 12, "{algorithm:?}: it has left by now");
    }
}

/// What a bucket owed before is paid back first: a record that waits for Redis is not paid
/// back by the same time again. A cost beyond all bounds is the most that may be owed.
#[tokio::test]
async fn a_record_that_waits_for_redis_is_paid_back_once_and_bounded() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US));
    let node = node(&proxy, &clock);
    let (per_minute, per_day) = (quota("12/m"), quota("10/d"));
    let (bucket, other) = (TestBucket::new("owing", "a"), TestBucket::new("huge", "b"));
    for policy in [FailurePolicy::Local, FailurePolicy::Closed, FailurePolicy::Open] {
        let tier = |cost| with_policy(bucket.tier(&per_minute, cost), policy);
        let huge = |cost| with_policy(other.tier(&per_day, cost), policy);
        assert!(ask(&node, Operation::Take, tier(12)).await.0.is_allowed());
        set_away(&proxy, true);
        assert_ne!(ask(&node, Operation::Record, tier(15)).await.1, DecidedBy::Redis);
        for _ in 0..2 {
            assert_ne!(ask(&node, Operation::Record, huge(1_000_000_000_000)).await.1, DecidedBy::Redis);
        }
        clock.advance(30 * SECOND_US);
        let charged = node.stats().charged;
        set_away(&proxy, false);
        wait_for_redis(&node, tier(0)).await;
        wait_for_charges(&node, charged + 15 + 1_000).await;
        let (decision, _) = ask(&node, Operation::Peek, tier(0)).await;
        assert_eq!(decision.reset_after_us, (12 + 15) * 5 * SECOND_US - 30 * SECOND_US, "{policy:?}");
        let (decision, _) = ask(&node, Operation::Peek, huge(0)).await;
        assert!((999..=1_000).contains(&decision.debt), "{policy:?}: {decision:?}");
        for tier in [tier(0), huge(0)] {
            assert!(ask(&node, Operation::Reset, tier).await.0.is_allowed());
        }
    }
}

/// Who keeps well within the limit for as long as Redis is away owes nothing
/// when it is back.
#[tokio::test]
async fn what_has_come_back_meanwhile_is_not_charged() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    for algorithm in Algorithm::ALL {
        let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US));
        let node = node(&proxy, &clock);
        let quota = Quota::new("12/m".parse().unwrap(), algorithm).unwrap();
        let bucket = TestBucket::new("honest", &format!("{algorithm:?}"));
        let tier = with_policy(bucket.tier(&quota, 1), FailurePolicy::Local);
        assert_eq!(passes(&node, tier, 1, DecidedBy::Redis).await, 1);
        set_away(&proxy, true);
        for _ in 0..100 {
            clock.advance(30 * SECOND_US);
            assert_eq!(passes(&node, tier, 1, DecidedBy::Local).await, 1, "{algorithm:?}");
        }
        set_away(&proxy, false);
        wait_for_redis(&node, tier).await;
        wait_for_charges(&node, 1).await;
        let (decision, _) = ask(&node, Operation::Peek, tier).await;
        assert!(decision.remaining >= 9, "{algorithm:?}: {decision:?}, {:?}", node.stats());
    }
}

/// Nodes that lose Redis for moments, again and again, on a limit that is asked
/// for far more than it allows: what Redis and the nodes admit together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_hangs_admit_no_more_than_the_local_share_for_their_time() {
    const NODES: u64 = 3;
    let server = Redis::start();
    let quota = quota("200/s burst 100");
    let bucket = TestBucket::new("hangs", "all");
    let is_over = Arc::new(AtomicBool::new(false));
    let options = RedisOptions { nodes: NODES, ..RedisOptions::new(server.url()) };
    let nodes: Vec<Arc<RedisStore>> = (0..NODES).map(|_| store(options.clone())).collect();
    let began = Instant::now();
    let task = |node: &Arc<RedisStore>| {
        let (node, bucket, is_over) = (Arc::clone(node), bucket.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) && answers.len() < 100_000 {
                let tier = with_policy(bucket.tier(&quota, 1), FailurePolicy::Local);
                let asked = Instant::now();
                let (decision, by) = take(&node, tier).await;
                answers.push((asked, by, decision.is_allowed()));
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            answers
        })
    };
    let tasks: Vec<_> = nodes.iter().flat_map(|node| (0..4).map(|_| task(node)).collect::<Vec<_>>()).collect();
    for hang_ms in [20, 200, 60, 500, 30, 100, 20, 300] {
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.pause();
        tokio::time::sleep(Duration::from_millis(hang_ms)).await;
        server.resume();
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut of_nodes = vec![Vec::new(); nodes.len()];
    for (number, task) in tasks.into_iter().enumerate() {
        of_nodes[number / 4].extend(task.await.unwrap());
    }
    let took = began.elapsed();
    let (mut admitted, mut local, mut away) = (0.0, 0, Duration::ZERO);
    for answers in &mut of_nodes {
        answers.sort_by_key(|(asked, ..)| *asked);
        admitted += answers.iter().filter(|(.., is_allowed)| *is_allowed).count() as f64;
        local += answers.iter().filter(|(_, by, is_allowed)| *is_allowed && *by == DecidedBy::Local).count();
        // From the last answer before one that did not come, to the next.
        away += answers
            .windows(2)
            .filter(|two| two[0].1 == DecidedBy::Local || two[1].1 == DecidedBy::Local)
            .map(|two| two[1].0 - two[0].0)
            .sum::<Duration>();
    }
    let stats: Vec<_> = nodes.iter().map(|node| node.stats()).collect();
    let bound = 100.0 + 200.0 * took.as_secs_f64();
    let share = 200.0 / NODES as f64 * away.as_secs_f64();
    println!("{admitted} admitted in {took:?}, {local} of them here; {bound:.0} and {share:.0} allowed; {stats:?}");
    assert!(local > 0, "Redis never failed to answer");
    assert!(admitted <= bound + share, "{admitted} are more than {bound} and {share}");
    assert!(stats.iter().map(|stats| stats.charged).sum::<u64>() > 0, "nothing was charged: {stats:?}");
}

/// Requests that may wait for different times, and for any, in one queue: memory
/// and Redis answer alike, `retry_after` is true, and the key outlives the queue.
#[tokio::test]
async fn bounded_delays_are_decided_alike_by_memory_and_redis() {
    let server = Redis::start();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    for (number, text) in
        ["10/s burst 150", "3/s burst 20", "7/m burst 9 initial 2", "1000/s burst 5"].iter().enumerate()
    {
        let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US));
        let quota = Quota::new(text.parse().unwrap(), Algorithm::LeakyBucket).unwrap();
        let mut rule = Rule::new(format!("queue {number}"), "all".parse().unwrap(), vec![quota]);
        rule.on_store_failure = FailurePolicy::Closed;
        let rules = || RuleSet::new(vec![rule.clone()]).unwrap();
        let options = RedisOptions { deadline: Some(Duration::from_secs(10)), ..RedisOptions::new(server.url()) };
        let redis = Limiter::new(rules(), RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap());
        let memory =
            Limiter::new(rules(), MemoryStore::with_clock(MemoryOptions { max_buckets: 1_000 }, Arc::clone(&clock)));
        let mut denied = 0;
        for step in 0..400 {
            let delay_max_us = if below(3) == 0 { u64::MAX } else { below(quota.window_us() * 5 / 4) };
            let request = Request::new().costing(below(4));
            let (ours, theirs) =
                (memory.check_within(&request, delay_max_us).await, redis.check_within(&request, delay_max_us).await);
            let decision = |outcome: &Outcome| *outcome.governing().unwrap().decision;
            let about = format!("{text}, step {step}, at most {delay_max_us} µs, cost {}", request.cost());
            assert_eq!(decision(&ours), decision(&theirs), "{about}");
            assert!(ours.delay_us() <= delay_max_us, "{about}: {ours:?}");
            if decision(&ours).retry_after_us > 0 {
                denied += 1;
                let until_us = clock.advance(decision(&ours).retry_after_us - 1);
                assert!(!memory.check_within(&request, delay_max_us).await.is_allowed(), "{about}: too early");
                clock.set(until_us + 1);
                assert!(redis.check_within(&request, delay_max_us).await.is_allowed(), "{about}: when told");
                assert!(memory.check_within(&request, delay_max_us).await.is_allowed(), "{about}: when told");
            }
            clock.advance(below(quota.window_us() / 150 + 2));
        }
        assert!(denied > 20, "{text}: {denied} were denied");
    }
}

/// A take that may wait for a moment only is charged to the same key, which lives
/// as long as the whole queue needs.
#[tokio::test]
async fn a_short_delay_shortens_no_ttl() {
    let server = Redis::start();
    let quota = Quota::new("10/s burst 1500".parse().unwrap(), Algorithm::LeakyBucket).unwrap();
    let rule = Rule::new("queue", "all".parse().unwrap(), vec![quota]);
    let limiter =
        Limiter::new(RuleSet::new(vec![rule]).unwrap(), RedisStore::new(RedisOptions::new(server.url())).unwrap());
    assert!(limiter.check_within(&Request::new(), SECOND_US).await.is_allowed());
    let left_ms = server.command(&["EVAL", "return redis.call('PTTL', redis.call('KEYS', '*')[1])", "0"]).int();
    assert!(left_ms > 290_000, "{left_ms} ms");
    assert!(limiter.check(&Request::new().costing(1_400)).await.is_allowed());
    assert_eq!(server.command(&["DBSIZE"]).int(), 1, "it is one queue");
    assert!(!limiter.check_within(&Request::new(), SECOND_US).await.is_allowed());
}
