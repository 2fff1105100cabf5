//! Takes in Redis: our script beside the classic one (HMGET, HMSET, EXPIRE), by
//! the server's CPU time and by its memory, and beside what the server can do at
//! all by redis-benchmark.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkdam::Quota;
use checkdam::conformance::TestBucket;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Operation, Tier};
use redis::aio::MultiplexedConnection;
use testkit::Redis;
use tokio::runtime::Runtime;

use crate::calls::{METRICS, commands, run as run_calls, runtime};
use crate::checks::quota;
use crate::contest::Contest;
use crate::figures::{Bound, Figures};
use crate::machine::{load_core, pin_process, server_core};
use crate::session::{Judged, Over, Session};

/// What people paste: a bucket in a hash, with floats.
const CLASSIC_SCRIPT: &str = r"
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local tokens, last_refill = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + (now - last_refill) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last_refill', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate) * 2)
return { allowed and 1 or 0, math.floor(tokens) }
";

const KEYS: usize = 10_000;
/// Checks that wait at a time.
const WAITING: usize = 64;
const CLASSIC: &str = "classic script";
const SINGLE: &str = "checkdam, one check a call";
const THREE: &str = "checkdam, 3 tiers, one check a call";
const BATCHED: &str = "checkdam, batched";
const THREE_BATCHED: &str = "checkdam, 3 tiers, batched";

/// A server on its core, and its clients.
struct Scene {
    server: Redis,
    runtime: Runtime,
    quota: Quota,
    single: Arc<RedisStore>,
    batched: Arc<RedisStore>,
    link: MultiplexedConnection,
}

impl Scene {
    fn new() -> Self {
        let server = Redis::start();
        pin_process(server.pid(), server_core());
        let runtime = runtime();
        // Stores start their tasks where they are made.
        let inside = runtime.enter();
        let store = |batch_max: usize| {
            let options =
                RedisOptions { deadline: Some(Duration::from_secs(5)), batch_max, ..RedisOptions::new(server.url()) };
            Arc::new(RedisStore::new(options).unwrap_or_else(|error| panic!("the store: {error}")))
        };
        let link = runtime.block_on(async {
            let client = redis::Client::open(server.url())?;
            client.get_multiplexed_async_connection().await
        });
        let link = link.unwrap_or_else(|error| panic!("the classic script's connection: {error}"));
        let (single, batched) = (store(1), store(32));
        drop(inside);
        Self { quota: quota("1/s burst 100000"), single, batched, runtime, link, server }
    }

    fn classic(&self, key_length: usize) -> impl AsyncFn(usize) + 'static {
        let (script, link) = (redis::Script::new(CLASSIC_SCRIPT), self.link.clone());
        async move |key: usize| {
            let mut link = link.clone();
            let mut call = script.key(format!("{key:0key_length$}"));
            let answer: redis::RedisResult<(i64, i64)> = call.arg(1).arg(100_000).arg(1).invoke_async(&mut link).await;
            assert!(answer.is_ok_and(|(is_allowed, _)| is_allowed == 1), "the classic script refused");
        }
    }

    fn take(&self, store: &Arc<RedisStore>, tiers: usize) -> impl AsyncFn(usize) + 'static {
        let (store, quota) = (Arc::clone(store), self.quota);
        async move |key: usize| {
            let buckets: Vec<TestBucket> =
                (0..tiers).map(|tier| TestBucket::new(&format!("rule-{tier}"), &key.to_string())).collect();
            let tiers: Vec<Tier<'_>> = buckets.iter().map(|bucket| bucket.tier(&quota, 1)).collect();
            let answer = store.try_apply(Operation::Take, &tiers).await;
            assert!(answer.is_ok(), "Redis did not answer");
        }
    }

    fn run(&self, length: Duration, check: impl AsyncFn(usize) + 'static) -> Vec<f64> {
        run_calls(&self.runtime, &self.server, (WAITING, KEYS), length, check)
    }

    /// The server's own limit: redis-benchmark with one command, 32 at a time.
    fn limit(&self, length: Duration, words: &[&str], guessed_per_second: f64) -> Vec<f64> {
        let count = (guessed_per_second * length.as_secs_f64()).max(10_000.0);
        self.server.command(&["CONFIG", "RESETSTAT"]).expect_ok();
        let (cpu, start) = (self.server.cpu_seconds(), Instant::now());
        let mut benchmark = Command::new("taskset");
        benchmark.args(["-c", &load_core().to_string(), "redis-benchmark", "-c", "64", "-P", "32", "-q"]);
        benchmark.args(["-n", &format!("{count:.0}"), "-r", &KEYS.to_string()]);
        let output = benchmark.args(["-p", &self.server.addr().port().to_string()]).args(words).output();
        let is_done = output.as_ref().is_ok_and(|output| output.status.success());
        assert!(is_done, "redis-benchmark: {output:?}. Install it with: apt-get install redis-tools");
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), self.server.cpu_seconds() - cpu);
        let (calls, command_us) = commands(&self.server, &words[0].to_lowercase());
        vec![calls / seconds, cpu * 1e6 / calls, command_us / calls]
    }

    /// Bytes of the server's memory a key, when each was taken from once; and how long keys are.
    fn bytes(&self, check: impl AsyncFn(usize)) -> (f64, usize) {
        let used = || self.server.info_field("memory", "used_memory").parse::<f64>().unwrap_or(f64::NAN);
        self.server.command(&["FLUSHALL"]).expect_ok();
        self.runtime.block_on(async {
            for key in 0..KEYS {
                check(key).await;
            }
        });
        let with = used();
        let keys = self.server.command(&["DBSIZE"]).int() as f64;
        let length = self.server.command(&["RANDOMKEY"]).text().len();
        self.server.command(&["FLUSHALL"]).expect_ok();
        // What the script and connections hold is there before and after.
        ((with - used()) / keys, length)
    }
}

pub(super) fn run(session: &mut Session) {
    let scene = Scene::new();
    let scene = &scene;
    let (our_bytes, key_length) = scene.bytes(scene.take(&scene.single, 1));
    let (classic_bytes, _) = scene.bytes(scene.classic(key_length));
    let mut contest = Contest::new(format!("takes in Redis, {WAITING} waiting, {KEYS} keys"), METRICS);
    contest.add(CLASSIC, |length| scene.run(length, scene.classic(key_length)));
    contest.add(SINGLE, |length| scene.run(length, scene.take(&scene.single, 1)));
    contest.add(THREE, |length| scene.run(length, scene.take(&scene.single, 3)));
    contest.add(BATCHED, |length| scene.run(length, scene.take(&scene.batched, 1)));
    contest.add(THREE_BATCHED, |length| scene.run(length, scene.take(&scene.batched, 3)));
    contest.add("limit: PING, 32 at a time", |length| scene.limit(length, &["PING"], 700_000.0));
    let increment = ["INCRBY", "bench:__rand_int__", "1"];
    contest.add("limit: INCRBY, 32 at a time", |length| scene.limit(length, &increment, 400_000.0));
    contest.note("Redis on one core, its client on another; all of Redis' CPU time counts, the network too");
    let length = session.pace().long;
    let figures = contest.run(session, length);
    judge(session, &figures);
    session.keep(figures);
    let mut contest = Contest::new("memory a bucket in Redis", &["bytes a bucket"]);
    contest.add(CLASSIC, |_| vec![classic_bytes]);
    contest.add("checkdam", |_| vec![our_bytes]);
    contest.note(format!("keys of {key_length} bytes on both sides"));
    let figures = contest.run(session, length);
    session.judge(Judged {
        figures: &figures,
        metric: 0,
        what: "memory per bucket in Redis",
        ours: "checkdam",
        against: "classic hash, same key length",
        theirs: CLASSIC,
        over: Over::Ours,
        bound: Bound::AtMost(0.65),
        fault: None,
    });
    session.keep(figures);
}

fn judge(session: &mut Session, figures: &Figures) {
    let rows = [
        ("single take in Redis", SINGLE, "classic script, Redis CPU", Over::Theirs, Bound::AtLeast(2.0)),
        ("batched takes", BATCHED, "classic script, Redis CPU", Over::Theirs, Bound::AtLeast(4.0)),
        ("3 tiers, one call", THREE, "one classic call, Redis CPU", Over::Ours, Bound::AtMost(1.3)),
    ];
    for (what, ours, against, over, bound) in rows {
        session.judge(Judged { figures, metric: 1, what, ours, against, theirs: CLASSIC, over, bound, fault: None });
    }
}
