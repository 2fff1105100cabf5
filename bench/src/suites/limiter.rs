//! A whole check in memory, from the text of its attributes to the decision,
//! beside limitador's: rules are matched, all tiers are charged together.

use std::hint::black_box;
use std::time::{Duration, Instant};

use checkdam::store::MemoryStore;
use checkdam::{Definitions, Limiter};

use crate::bare::LimitadorInMemory;
use crate::checks::{batches_ns, check, limiter, request, rule, tenant};
use crate::contest::Contest;
use crate::figures::Bound;
use crate::machine::{load_core, pin_thread};
use crate::session::{Judged, Over, Session};

const USERS: usize = 100_000;
const THREE: &str = "checkdam, 3 tiers";
const LIMITADOR: &str = "limitador, 1 limit";

fn checkdam_ns(limiter: &Limiter<MemoryStore>, tiers: usize, length: Duration) -> f64 {
    batches_ns(USERS, length, |users| {
        let start = Instant::now();
        for user in users {
            assert_eq!(black_box(check(limiter, &request(user))), tiers);
        }
        start.elapsed()
    })
}

pub(super) fn run(session: &mut Session) {
    pin_thread(&[load_core()]);
    let one = limiter(Definitions { rules: vec![rule("per-user", "user:{user}")], ..Definitions::default() });
    let rules = vec![rule("per-user", "user:{user}"), tenant(0), tenant(1), rule("global", "global")];
    let three = limiter(Definitions { rules, ..Definitions::default() });
    let limitador = LimitadorInMemory::new(USERS as u64 * 2);
    let mut contest = Contest::new("a check of one of 100,000 users, memory, 1 thread", &["ns a check"]);
    contest.add("checkdam, 1 tier", |length| vec![checkdam_ns(&one, 1, length)]);
    contest.add(THREE, |length| vec![checkdam_ns(&three, 3, length)]);
    contest.add(LIMITADOR, |length| {
        let time = |users: &[String]| {
            let start = Instant::now();
            for user in users {
                assert!(black_box(limitador.check(user)), "limitador refused {user}");
            }
            start.elapsed()
        };
        vec![batches_ns(USERS, length, time)]
    });
    contest.note("the making of the request from text counts on both sides; that ours allocates nothing is a test of the library");
    let length = session.pace().short * 2;
    let figures = contest.run(session, length);
    session.judge(Judged {
        figures: &figures,
        metric: 0,
        what: "`Limiter::check` with rule matching and 3 tiers, memory store",
        ours: THREE,
        against: "limitador's check of one",
        theirs: LIMITADOR,
        over: Over::Theirs,
        bound: Bound::AtLeast(15.0),
        fault: None,
    });
    session.keep(figures);
}
