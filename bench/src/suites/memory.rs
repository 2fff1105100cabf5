//! One take in memory: our table beside other limiters, beside the maps that
//! were tried for it, and beside the physical limit, a bare compare-and-swap.

use std::time::Duration;

use checkdam::KeyedLimiter;

use crate::contest::Contest;
use crate::figures::{Bound, Figures};
use crate::inside::{Keys, fill, takes_ns};
use crate::rivals::{Governor, LeakyBucket, OnDashMap, OnShards, QUOTA, Swap, Throttlecrab};
use crate::session::{Judged, Over, Session};
use crate::{Checkdam, keyed_limiter};

const MILLION: usize = 1_000_000;
/// A take of the store, as a rule's only tier makes it.
const STORE: &str = "checkdam";
/// The same by [`KeyedLimiter`], which the library offers for one limit a key.
const KEYED: &str = "checkdam keyed";

/// All limiters over the same keys.
struct Field {
    swap: Swap,
    checkdam: Checkdam,
    keyed: KeyedLimiter<str>,
    governor: Governor,
    on_dashmap: OnDashMap,
    on_shards: OnShards,
    throttlecrab: Throttlecrab,
    leaky_bucket: LeakyBucket,
    has_throttlecrab: bool,
}

impl Field {
    fn new(keys: usize) -> Self {
        let mut field = Self {
            swap: Swap::new(keys),
            checkdam: Checkdam::new(keys, QUOTA),
            keyed: keyed_limiter(keys, QUOTA),
            governor: Governor::default(),
            on_dashmap: OnDashMap::default(),
            on_shards: OnShards::default(),
            // Twice the room: it looks through all of its map when it is nearly full.
            throttlecrab: Throttlecrab::new(keys * 2),
            leaky_bucket: LeakyBucket::default(),
            has_throttlecrab: true,
        };
        fill(keys, Duration::from_secs(60), &|key| {
            field.checkdam.take(key)
                && field.keyed.check(key).is_allowed()
                && field.governor.take(key)
                && field.on_dashmap.take(key)
                && field.on_shards.take(key)
        });
        field.has_throttlecrab = fill(keys, Duration::from_secs(5), &|key| field.throttlecrab.take(key));
        field
    }

    fn contest(&self, session: &mut Session, title: &str, keys: Keys, threads: usize) -> Figures {
        let mut contest =
            Contest::new(format!("{title}, {threads} thread{}", if threads == 1 { "" } else { "s" }), &["ns a take"]);
        let mut add = |name: &str, take: &'static str| {
            contest.add(name, move |length| vec![self.measure(take, threads, length, keys)]);
        };
        add("bare compare-and-swap", "swap");
        add(STORE, "checkdam");
        add(KEYED, "keyed");
        add("governor keyed", "governor");
        add("DashMap + compare-and-swap", "dashmap");
        add("64 × Mutex<hashbrown>", "shards");
        if self.has_throttlecrab {
            add("throttlecrab", "throttlecrab");
        }
        if keys.count() == 1 {
            add("leaky-bucket, one bucket without keys", "leaky-bucket");
        }
        if !self.has_throttlecrab {
            contest.note("throttlecrab did not take once from every key within 5 s, and is left out");
        }
        let length = session.pace().short;
        contest.run(session, length)
    }

    fn measure(&self, which: &str, threads: usize, length: Duration, keys: Keys) -> f64 {
        match which {
            "swap" => takes_ns(threads, length, keys, &|number, _| self.swap.take(number)),
            "checkdam" => takes_ns(threads, length, keys, &|_, key| self.checkdam.take(key)),
            "keyed" => takes_ns(threads, length, keys, &|_, key| self.keyed.check(key).is_allowed()),
            "governor" => takes_ns(threads, length, keys, &|_, key| self.governor.take(key)),
            "dashmap" => takes_ns(threads, length, keys, &|_, key| self.on_dashmap.take(key)),
            "shards" => takes_ns(threads, length, keys, &|_, key| self.on_shards.take(key)),
            "throttlecrab" => takes_ns(threads, length, keys, &|_, key| self.throttlecrab.take(key)),
            _ => takes_ns(threads, length, keys, &|_, _| self.leaky_bucket.take()),
        }
    }
}

pub(super) fn run(session: &mut Session) {
    let hot = Field::new(1);
    for threads in [1, 2] {
        let figures = hot.contest(session, "one hot key", Keys::Even(1), threads);
        if threads == 1 {
            judge(session, &figures, (STORE, "store take, hot key, 1 thread"), 2.2);
            judge(session, &figures, (KEYED, "keyed limiter, hot key, 1 thread"), 2.2);
        }
        session.keep(figures);
    }
    drop(hot);
    session.say("a take from each of a million keys by each limiter");
    let many = Field::new(MILLION);
    for threads in [1, 2] {
        let figures = many.contest(session, "a million keys", Keys::Even(MILLION), threads);
        let [store, keyed] = match threads {
            1 => ["store take, 1M keys, 1 thread", "keyed limiter, 1M keys, 1 thread"],
            _ => ["store take, 1M keys, 2 threads", "keyed limiter, 1M keys, 2 threads"],
        };
        judge(session, &figures, (STORE, store), 4.0);
        judge(session, &figures, (KEYED, keyed), 4.0);
        session.keep(figures);
    }
    let figures = many.contest(session, "a million keys, skewed (Zipf)", Keys::Skewed(MILLION), 1);
    session.keep(figures);
}

fn judge(session: &mut Session, figures: &Figures, (ours, what): (&'static str, &str), least: f64) {
    session.judge(Judged {
        figures,
        metric: 0,
        what,
        ours,
        against: "governor keyed",
        theirs: "governor keyed",
        over: Over::Theirs,
        bound: Bound::AtLeast(least),
        fault: None,
    });
}
