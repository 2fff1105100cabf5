//! A check in Redis: checkdam's script beside the classic one (HMGET, HMSET,
//! EXPIRE) on a server of its own, by the server's CPU time and by its memory.
//!
//! Compare within one run only: `cargo bench -p bench --bench redis`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::future::Future;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use checkdam::Quota;
use checkdam::conformance::TestBucket;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Operation, Tier};
use redis::aio::MultiplexedConnection;
use testkit::Redis;

/// What people paste: a bucket in a hash, with floats.
const CLASSIC: &str = r"
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
/// Requests that wait at a time.
const WAITING: usize = 64;
const RUN: Duration = Duration::from_secs(3);

struct Figures {
    name: &'static str,
    checks_per_second: f64,
    /// Microseconds of the server's CPU per check, the network included.
    cpu_us: f64,
    /// Microseconds in the command itself per check.
    command_us: f64,
}

/// Runs `waiting` tasks against the server for a while.
async fn measure<F, Fut>(server: &Redis, name: &'static str, waiting: usize, check: F) -> Figures
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let done = Arc::new(AtomicUsize::new(0));
    let run = |length: Duration| {
        let end = Instant::now() + length;
        let tasks = (0..waiting).map(|task| {
            let (check, done) = (check.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let mut key = task * 7_919;
                while Instant::now() < end {
                    check(key % KEYS).await;
                    key += 104_729;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        tasks.collect::<Vec<_>>()
    };
    for task in run(RUN / 6) {
        task.await.unwrap();
    }
    server.command(&["CONFIG", "RESETSTAT"]);
    done.store(0, Ordering::Relaxed);
    let (cpu, start) = (server.cpu_seconds(), Instant::now());
    for task in run(RUN) {
        task.await.unwrap();
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds() - cpu);
    let checks = done.load(Ordering::Relaxed) as f64;
    let stats = server.info("commandstats");
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let usec: f64 = line.split(',').find_map(|part| part.strip_prefix("usec=")).unwrap().parse().unwrap();
    Figures { name, checks_per_second: checks / seconds, cpu_us: cpu * 1e6 / checks, command_us: usec / checks }
}

fn bytes_per_key(server: &Redis) -> f64 {
    let used = || server.info_field("memory", "used_memory").parse::<f64>().unwrap();
    let keys = server.command(&["DBSIZE"]).int() as f64;
    let with = used();
    server.command(&["FLUSHALL"]);
    (with - used()) / keys
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = Redis::start();
    let quota: Quota = "1/s burst 100000".parse().unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let link: MultiplexedConnection = client.get_multiplexed_async_connection().await.unwrap();
    let script = Arc::new(redis::Script::new(CLASSIC));
    let classic = {
        let script = Arc::clone(&script);
        move |key: usize| {
            let (script, mut link) = (Arc::clone(&script), link.clone());
            async move {
                let mut call = script.key(format!("cd:{{{key:015}}}:rule-0000"));
                let _: (i64, i64) = call.arg(1).arg(100_000).arg(1).invoke_async(&mut link).await.unwrap();
            }
        }
    };
    let store = |batch_max: usize| {
        let options = RedisOptions { deadline: Duration::from_secs(5), batch_max, ..RedisOptions::new(server.url()) };
        Arc::new(RedisStore::new(options).unwrap())
    };
    let take = |store: &Arc<RedisStore>, tiers: usize| {
        let store = Arc::clone(store);
        move |key: usize| {
            let store = Arc::clone(&store);
            async move {
                let buckets: Vec<TestBucket> =
                    (0..tiers).map(|tier| TestBucket::new(&format!("rule-{tier}"), &key.to_string())).collect();
                let tiers: Vec<Tier<'_>> = buckets.iter().map(|bucket| bucket.tier(&quota, 1)).collect();
                store.try_apply(Operation::Take, &tiers).await.unwrap();
            }
        }
    };
    let (single, batched) = (store(1), store(32));
    let mut rows = Vec::new();
    rows.push(measure(&server, "classic script", WAITING, classic.clone()).await);
    let classic_bytes = bytes_per_key(&server);
    rows.push(measure(&server, "checkdam, one check a call", WAITING, take(&single, 1)).await);
    let our_bytes = bytes_per_key(&server);
    rows.push(measure(&server, "checkdam, 3 tiers, one check a call", WAITING, take(&single, 3)).await);
    rows.push(measure(&server, "checkdam, batched", WAITING, take(&batched, 1)).await);
    rows.push(measure(&server, "checkdam, 3 tiers, batched", WAITING, take(&batched, 3)).await);
    rows.push(measure(&server, "classic script, again", WAITING, classic).await);
    println!("{:<34} {:>10} {:>14} {:>16}", "", "checks/s", "CPU µs/check", "command µs/check");
    for Figures { name, checks_per_second, cpu_us, command_us } in &rows {
        println!("{name:<34} {checks_per_second:>10.0} {cpu_us:>14.2} {command_us:>16.2}");
    }
    let classic_us = f64::midpoint(rows[0].command_us, rows[5].command_us);
    println!(
        "\ncommand time, classic over checkdam: one check a call {:.2}, batched {:.2}",
        classic_us / rows[1].command_us,
        classic_us / rows[3].command_us
    );
    println!(
        "three tiers over one classic call: one check a call {:.2}, batched {:.2}",
        rows[2].command_us / classic_us,
        rows[4].command_us / classic_us
    );
    println!(
        "bytes per bucket, same key length: classic {classic_bytes:.0}, checkdam {our_bytes:.0} ({:.2})",
        our_bytes / classic_bytes
    );
    println!("\nthe server's own limits, by redis-benchmark, {WAITING} clients:");
    for (name, pipeline) in [("PING_MBULK,INCR, one at a time", "1"), ("PING_MBULK,INCR, 32 at a time", "32")] {
        let socket = server.unix_path();
        let arguments =
            ["-s", socket.to_str().unwrap(), "-t", "ping_mbulk,incr", "-c", "64", "-n", "400000", "-P", pipeline, "-q"];
        let output = Command::new("redis-benchmark").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
        let totals = text.lines().filter(|line| line.contains("requests per second")).collect::<Vec<_>>().join("\n  ");
        println!("{name}:\n  {totals}");
    }
}
