//! Memory a bucket at a million keys: the growth of a process that holds
//! nothing else. Each limiter runs in a process of its own.

use std::process::Command;
use std::time::Duration;

use crate::Checkdam;
use crate::contest::Contest;
use crate::figures::Bound;
use crate::inside::fill;
use crate::machine::resident_bytes;
use crate::rivals::{Governor, OnDashMap, OnShards};
use crate::session::{Judged, Over, Session};

const KEYS: usize = 1_000_000;
const WHO: [(&str, &str); 4] = [
    ("checkdam", "checkdam (max_buckets = 2 × keys)"),
    ("governor", "governor keyed"),
    ("dashmap", "DashMap + compare-and-swap"),
    ("shards", "64 × Mutex<hashbrown>"),
];

/// Measures one limiter in this process, and prints its bytes a bucket.
#[allow(clippy::print_stdout, reason = "the answer to the process that asks")]
pub fn print_bytes(which: &str) {
    let before = resident_bytes();
    let limit = Duration::from_secs(60);
    let bytes = match which {
        "checkdam" => {
            let checkdam = Checkdam::new(KEYS, "1/h burst 100");
            grown(before, fill(KEYS, limit, &|key| checkdam.take(key)))
        }
        "governor" => {
            let governor = Governor::slow();
            grown(before, fill(KEYS, limit, &|key| governor.take(key)))
        }
        "dashmap" => {
            let map = OnDashMap::default();
            grown(before, fill(KEYS, limit, &|key| map.take(key)))
        }
        "shards" => {
            let map = OnShards::default();
            grown(before, fill(KEYS, limit, &|key| map.take(key)))
        }
        _ => panic!("there is no limiter {which:?}"),
    };
    println!("{bytes}");
}

fn grown(before: u64, is_full: bool) -> f64 {
    assert!(is_full, "a million takes took more than a minute");
    (resident_bytes() - before) as f64 / KEYS as f64
}

fn ask(which: &str) -> f64 {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("who am I? {error}"));
    let output = Command::new(program).args(["bytes-of", which]).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start myself: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{which}: {}", String::from_utf8_lossy(&output.stderr)))
}

pub(super) fn run(session: &mut Session) {
    let mut contest = Contest::new("memory a bucket, a million keys of 20 bytes", &["bytes a bucket"]);
    for (which, name) in WHO {
        // The same every time: one process is asked, whatever the number of rounds.
        let mut known = None;
        contest.add(name, move |_| vec![*known.get_or_insert_with(|| ask(which))]);
    }
    let length = session.pace().short;
    let figures = contest.run(session, length);
    session.judge(Judged {
        figures: &figures,
        metric: 0,
        what: "memory per bucket, 1M",
        ours: WHO[0].1,
        against: "governor keyed",
        theirs: WHO[1].1,
        over: Over::Theirs,
        bound: Bound::AtLeast(2.5),
        fault: None,
    });
    session.keep(figures);
}
