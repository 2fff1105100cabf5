//! Setup of the Redis tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use checkdam::conformance::oracle::{self, OracleReport, Take};
use checkdam::conformance::{Harness, TestBucket};
use checkdam::store::redis::{BreakerOptions, RedisOptions, RedisStore};
use checkdam::store::{FailurePolicy, Operation, Store, Tier, TierDecisions};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, DecidedBy, Decision, Quota, Verdict};
use testkit::wait_until;
use tokio::task::JoinHandle;

/// How long anything that should happen by itself may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// The deadline, and what a busy machine may add to it: it is asked of a
/// percentile, never of the slowest.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_millis(15 + 10);
/// The slowest is only asked not to have waited for anything but the deadline:
/// the shortest of the other times, a quarter of a second to learn who holds
/// what, is longer.
const WAITED_FOR_NOTHING_ELSE: Duration = Duration::from_millis(200);
/// A server that is well again is asked after the breaker's pause of 250 ms, and
/// once more if the first to ask found an old connection; the rest is for a busy
/// machine.
pub(crate) const USED_AGAIN_WITHIN: Duration = Duration::from_secs(1);
/// How far the clocks of a cluster's three servers are ahead.
pub(crate) const CLOCKS_APART_US: [i64; 3] = [3_000_000, -3_000_000, 3_600_000_000];
/// A load ends by itself after so long, and each of its tasks after so many takes.
const LOAD_LIMIT: Duration = Duration::from_secs(90);
const LOAD_TAKES_MAX: usize = 200_000;

/// A store that must answer from Redis.
pub(crate) struct Answering(pub(crate) RedisStore);

impl Store for Answering {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        self.0.try_apply(operation, tiers).await.unwrap()
    }
}

/// A store on a clock that the suite sets.
pub(crate) struct OnRedis {
    clock: Arc<ManualClock>,
    store: Answering,
}

impl OnRedis {
    pub(crate) fn new(url: String) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = RedisStore::with_clock(patient(url), Some(Arc::clone(&clock))).unwrap();
        Self { clock, store: Answering(store) }
    }
}

impl Harness for OnRedis {
    type Store = Answering;

    fn store(&self) -> &Answering {
        &self.store
    }

    fn set_now_us(&self, now_us: u64) {
        self.clock.set(now_us);
    }
}

/// Options for tests of what is answered, not of when.
pub(crate) fn patient(url: String) -> RedisOptions {
    RedisOptions { deadline: Some(Duration::from_secs(10)), ..RedisOptions::new(url) }
}

/// Options under which every request is sent, whatever became of those before.
pub(crate) fn without_breaker(url: String) -> RedisOptions {
    let breaker = BreakerOptions { failures_max: u32::MAX, ..BreakerOptions::default() };
    RedisOptions { breaker, ..RedisOptions::new(url) }
}

pub(crate) fn store(options: RedisOptions) -> Arc<RedisStore> {
    Arc::new(RedisStore::new(options).unwrap())
}

pub(crate) fn quota(text: &str) -> Quota {
    Quota::new(text.parse().unwrap(), Algorithm::TokenBucket).unwrap()
}

pub(crate) fn with_policy(tier: Tier<'_>, on_failure: FailurePolicy) -> Tier<'_> {
    Tier { on_failure, ..tier }
}

/// One decision of a request with one tier, and who made it.
pub(crate) async fn ask(store: &RedisStore, operation: Operation, tier: Tier<'_>) -> (Decision, DecidedBy) {
    let answer = store.apply(operation, &[tier]).await;
    (answer.decisions[0], answer.by)
}

pub(crate) async fn take(store: &RedisStore, tier: Tier<'_>) -> (Decision, DecidedBy) {
    ask(store, Operation::Take, tier).await
}

/// What is left in a bucket, by Redis itself.
pub(crate) async fn remaining(url: String, tier: Tier<'_>) -> u64 {
    let (decision, by) = ask(&store(patient(url)), Operation::Peek, tier).await;
    assert_eq!(by, DecidedBy::Redis);
    decision.remaining
}

/// Waits until Redis itself answers again, without charging anything.
pub(crate) async fn wait_for_redis(store: &RedisStore, tier: Tier<'_>) -> Duration {
    let began = Instant::now();
    while ask(store, Operation::Peek, tier).await.1 != DecidedBy::Redis {
        assert!(began.elapsed() < LIMIT, "Redis does not answer after {LIMIT:?}: {:?}", store.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

/// Takes of these tiers in turn, none of which Redis may decide or delay. How
/// long they took, the fastest first.
pub(crate) async fn all_by_policy(store: &RedisStore, tiers: &[Tier<'_>], takes: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for tier in tiers.iter().cycle().take(takes) {
        let began = Instant::now();
        let (decision, by) = take(store, *tier).await;
        times.push(began.elapsed());
        assert_eq!((decision.verdict, by), (Verdict::Unavailable, DecidedBy::Policy));
    }
    times.sort_unstable();
    let slowest = times[takes - 1];
    assert!(slowest < WAITED_FOR_NOTHING_ELSE, "the slowest took {slowest:?}");
    times
}

/// What came of one take.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    /// Which of the load's buckets.
    pub(crate) bucket: usize,
    pub(crate) at_us: u64,
    pub(crate) is_allowed: bool,
    pub(crate) by: DecidedBy,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

/// Tasks that take from buckets, in turn, until they are stopped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<Taken>>>,
}

impl Load {
    /// A request takes one token of a bucket: both of its tiers, if it has two.
    /// Each task waits for `pace` after each take.
    pub(crate) fn start(
        store: &Arc<RedisStore>,
        tasks: usize,
        pace: Duration,
        quota: Quota,
        buckets: &[Vec<TestBucket>],
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let one = |task: usize| {
            let (store, is_over, buckets) = (Arc::clone(store), Arc::clone(&is_over), buckets.to_vec());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                let began = Instant::now();
                while !is_over.load(Ordering::Relaxed) && taken.len() < LOAD_TAKES_MAX && began.elapsed() < LOAD_LIMIT {
                    // Far apart, so that the tasks do not follow each other.
                    let bucket = (task * 7_919 + taken.len()) % buckets.len();
                    let tiers: Vec<Tier<'_>> = buckets[bucket].iter().map(|it| it.tier(&quota, 1)).collect();
                    let began = Instant::now();
                    let answer = store.apply(Operation::Take, &tiers).await;
                    let took = began.elapsed();
                    let is_allowed = answer.decisions.iter().all(Decision::is_allowed);
                    taken.push(Taken { bucket, at_us: answer.at_us, is_allowed, by: answer.by, began, took });
                    if !pace.is_zero() {
                        tokio::time::sleep(pace).await;
                    }
                }
                taken
            })
        };
        let tasks = (0..tasks).map(one).collect();
        Self { is_over, tasks }
    }

    pub(crate) async fn stop(self) -> Vec<Taken> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in self.tasks {
            all.extend(task.await.unwrap());
        }
        all
    }
}

/// Judges what Redis admitted of each bucket by a bucket of `quota`.
pub(crate) fn verify(quota: &Quota, taken: &[Taken]) -> OracleReport {
    let buckets = taken.iter().map(|it| it.bucket).max().map_or(0, |last| last + 1);
    let mut sum = OracleReport::default();
    for bucket in 0..buckets {
        let of_redis = taken.iter().filter(|it| it.bucket == bucket && it.by == DecidedBy::Redis);
        let mut takes: Vec<Take> =
            of_redis.map(|it| Take { at_us: it.at_us, cost: 1, admitted: it.is_allowed }).collect();
        let found = oracle::verify(quota, &mut takes).unwrap();
        sum.admitted += found.admitted;
        sum.ideal += found.ideal;
    }
    sum
}

pub(crate) fn count_by(taken: &[Taken], by: DecidedBy) -> usize {
    taken.iter().filter(|it| it.by == by).count()
}

/// The time that `share` of all takes stayed below.
pub(crate) fn percentile(taken: &[Taken], share: f64) -> Duration {
    let mut times: Vec<Duration> = taken.iter().map(|it| it.took).collect();
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
}

/// Buckets of one tier each.
pub(crate) fn buckets(rule: &str, count: usize) -> Vec<Vec<TestBucket>> {
    (0..count).map(|n| vec![TestBucket::new(rule, &format!("subject {n}"))]).collect()
}

/// Waits, without keeping others from running, until `condition` holds.
pub(crate) fn wait(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_until(what, LIMIT, condition));
}

/// How often the server has run the script, by its hash or whole.
pub(crate) fn script_calls(server: &testkit::Redis) -> u64 {
    calls(server, "evalsha") + calls(server, "eval")
}

/// How often the server has run a command.
pub(crate) fn calls(server: &testkit::Redis, command: &str) -> u64 {
    let info = server.info("commandstats");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}
