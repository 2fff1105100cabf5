//! Four processes that spend one leased limit, checked by the oracle while they are
//! stopped, killed, or given other terms.
//!
//! Each is this program itself, started as a node by a variable.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use checkdam::conformance::TestBucket;
use checkdam::conformance::oracle::{self, Take};
use checkdam::lease::LeaseTerms;
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::store::{Operation, Store, Tier};
use checkdam::{Lease, Quota};
use testkit::Redis;

use crate::setup::{quota, script_calls};

/// What a node is to do: the server's URL, its leases, how much it asks for a
/// second, for how many milliseconds, where it writes what came of it, the quota.
const ORDER: &str = "CHECKDAM_TEST_NODE";
/// How often a node pays attention to anything but its requests.
const TICK: Duration = Duration::from_millis(2);
/// A node that was held up makes up for no more than so much of it.
const CATCH_UP: Duration = Duration::from_millis(40);
const QUOTA: &str = "10000/s burst 5000";
const LENGTH: Duration = Duration::from_millis(100);
/// Demand that is not alike, two and a half times what is allowed.
const DEMAND: [u64; 4] = [16_000, 6_000, 2_000, 1_000];

/// One node, as the test sees it.
struct Node {
    child: Child,
    file: PathBuf,
}

/// SIGKILL.
const KILLED: i32 = 9;

/// What a node did.
struct Report {
    takes: Vec<Take>,
    /// Granted, spent, returned, lost, cached denials; none if it was killed.
    stats: Option<[u64; 5]>,
}

impl Node {
    fn start(url: &str, quota: &str, leases: &str, per_s: u64, length: Duration) -> Self {
        let file = std::env::temp_dir().join(format!("checkdam-node-{}-{:x}", std::process::id(), unique()));
        let order = format!("{url} {leases} {per_s} {} {} {quota}", length.as_millis(), file.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "lease_nodes::is_a_node", "--nocapture"])
            .env(ORDER, order)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, file }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill {name}");
    }

    fn report(mut self) -> Report {
        let status = self.child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(KILLED), "a node ended with {status}");
        let bytes = fs::read(&self.file).unwrap();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        // A time, and one bit more: whether it passed.
        let take = |word: u64| Take { at_us: word >> 1, cost: 1, admitted: word & 1 == 1 };
        let takes = bytes.chunks_exact(8).map(|bytes| take(number(bytes))).collect();
        let stats = fs::read_to_string(self.file.with_extension("stats")).ok().map(|text| {
            let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        });
        Report { takes, stats }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = (fs::remove_file(&self.file), fs::remove_file(self.file.with_extension("stats")));
    }
}

fn unique() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}

/// Leases by name: one after the other, for half a second each.
fn terms(name: &str, quota: &Quota, since: Duration) -> Option<LeaseTerms> {
    let all: Vec<&str> = name.split(',').collect();
    let lease = match all[since.as_millis() as usize / 500 % all.len()] {
        "off" => Lease::Off,
        "auto" => Lease::Auto,
        length_ms => Lease::For(length_ms.parse::<u64>().unwrap() * 1_000),
    };
    LeaseTerms::of(lease, quota)
}

/// Not a test: what the tests of this module start.
#[test]
#[ignore = "it is started by the other tests of this module"]
fn is_a_node() {
    let order = std::env::var(ORDER).expect("it is not a test of its own");
    let words: Vec<&str> = order.splitn(6, ' ').collect();
    let [url, leases, per_s, length_ms, file, text] = words[..] else { panic!("{order}") };
    let (per_s, length) = (per_s.parse().unwrap(), Duration::from_millis(length_ms.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(be_a_node((url, text, leases), per_s, length, file.into()));
}

async fn be_a_node((url, text, leases): (&str, &str, &str), per_s: u64, length: Duration, path: PathBuf) {
    let options = RedisOptions { deadline: Some(Duration::from_millis(500)), ..RedisOptions::new(url) };
    let store = RedisStore::new(options).unwrap();
    let (quota, bucket) = (quota(text), TestBucket::new("node", "hot"));
    let mut file = File::create(&path).unwrap();
    let (began, mut paid_for) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < length {
        let now = began.elapsed();
        paid_for = paid_for.max(now.saturating_sub(CATCH_UP));
        let due = (now - paid_for).as_micros() as u64 * per_s / 1_000_000;
        paid_for += Duration::from_micros(due * 1_000_000 / per_s);
        let tier = Tier { lease: terms(leases, &quota, now), ..bucket.tier(&quota, 1) };
        let mut words = Vec::new();
        for _ in 0..due {
            let answer = store.apply(Operation::Take, &[tier]).await;
            let word = answer.at_us << 1 | u64::from(answer.decisions[0].is_allowed());
            words.extend(word.to_le_bytes());
        }
        file.write_all(&words).unwrap();
        tokio::time::sleep(TICK).await;
    }
    store.return_leases().await;
    let stats = store.lease_stats();
    let numbers = [stats.granted, stats.spent, stats.returned, stats.lost, stats.cached_denials];
    fs::write(path.with_extension("stats"), numbers.map(|number| number.to_string()).join(" ")).unwrap();
}

/// Judges what all of them let pass; gives the share of what was to be had.
fn verify(text: &str, reports: &[Report]) -> f64 {
    let mut takes: Vec<Take> = reports.iter().flat_map(|report| report.takes.iter().copied()).collect();
    let found = oracle::verify(&quota(text), &mut takes).unwrap();
    let used = found.admitted as f64 / found.ideal as f64;
    let stats: Vec<_> = reports.iter().map(|report| report.stats).collect();
    println!("{} takes, {found:?}, used {used:.4}, granted/spent/returned/lost/cached {stats:?}", takes.len());
    used
}

fn start_all(server: &Redis, length: Duration) -> Vec<Node> {
    let leases = LENGTH.as_millis().to_string();
    DEMAND.iter().map(|per_s| Node::start(&server.url(), QUOTA, &leases, *per_s, length)).collect()
}

/// Four processes at a time are enough for a small machine.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spend_a_hot_limit(length: Duration, used_min: f64) {
    let _alone = alone();
    let server = Redis::start();
    let nodes = start_all(&server, length);
    let reports: Vec<Report> = nodes.into_iter().map(Node::report).collect();
    let (used, calls) = (verify(QUOTA, &reports), script_calls(&server));
    let checks: usize = reports.iter().map(|report| report.takes.len()).sum();
    println!("{calls} calls for {checks} checks: {:.3} %", calls as f64 / checks as f64 * 100.0);
    assert!(used >= used_min, "only {used} of what an ideal bucket admits");
    assert!(calls * 100 <= checks as u64, "{calls} calls for {checks} checks");
}

#[test]
fn four_processes_never_exceed_a_hot_limit_and_use_it() {
    // The first grant takes a tenth of a second's tokens for granted: 3 % of this.
    spend_a_hot_limit(Duration::from_secs(3), 0.92);
}

#[test]
#[ignore = "it takes a minute"]
fn four_processes_never_exceed_a_hot_limit_in_a_minute() {
    spend_a_hot_limit(Duration::from_secs(60), 0.95);
}

#[test]
fn a_process_that_is_stopped_spends_nothing_stale_and_one_that_is_killed_is_not_missed() {
    let _alone = alone();
    let server = Redis::start();
    let nodes = start_all(&server, Duration::from_millis(3_500));
    let pause = |node: &Node, length| {
        node.signal("-STOP");
        sleep(length);
        node.signal("-CONT");
    };
    for _ in 0..2 {
        sleep(Duration::from_millis(500));
        pause(&nodes[1], 3 * LENGTH);
    }
    nodes[0].signal("-KILL");
    sleep(Duration::from_millis(400));
    pause(&nodes[1], 3 * LENGTH);
    let reports: Vec<Report> = nodes.into_iter().map(Node::report).collect();
    verify(QUOTA, &reports);
    assert!(reports[0].stats.is_none(), "it ended by itself");
    let [.., lost, _] = reports[1].stats.unwrap();
    assert!(lost > 0, "what it held when it was stopped cannot have been spent");
    // The others want less than is allowed, and soon have all of it: what was
    // lost with the dead is no more than it held.
    let late = |report: &Report| {
        let last_us = report.takes.last().unwrap().at_us;
        let takes = report.takes.iter().filter(|take| take.at_us + 500_000 > last_us);
        takes.fold((0, 0), |(passed, all), take| (passed + usize::from(take.admitted), all + 1))
    };
    for (passed, all) in reports[1..].iter().map(late) {
        assert!(passed * 100 >= all * 99, "{passed} of {all} passed in the last half second");
    }
}

#[test]
fn leases_may_come_go_and_change_at_any_time() {
    let _alone = alone();
    let (server, text) = (Redis::start(), "2000/s burst 1000");
    let orders = ["100,off,50,auto", "off,200,100", "auto,off", "50,20"];
    let nodes: Vec<Node> = orders
        .into_iter()
        .map(|leases| Node::start(&server.url(), text, leases, 1_500, Duration::from_millis(2_500)))
        .collect();
    let reports: Vec<Report> = nodes.into_iter().map(Node::report).collect();
    verify(text, &reports);
    let prepaid = |report: &Report| report.stats.is_some_and(|[_, spent, ..]| spent > 0);
    assert!(reports.iter().all(prepaid), "somebody prepaid nothing");
}
