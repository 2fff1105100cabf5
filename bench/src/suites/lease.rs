//! A hot key through `Limiter::check` over a real Redis: leased, beside a call
//! for every check with many waiting, and beside calls that checks share, by the
//! same limiter.

use std::rc::Rc;
use std::time::Duration;

use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::{Lease, Limiter, Request, RuleSet};
use testkit::Redis;
use tokio::runtime::Runtime;

use crate::calls::{Drive, commands, drive, runtime};
use crate::checks::{quota, rule};
use crate::contest::Contest;
use crate::figures::Bound;
use crate::machine::{pin_process, server_core};
use crate::session::{Judged, Over, Session};

const METRICS: &[&str] = &["checks/s", "admitted of checks", "Redis calls of checks", "Redis CPU µs/check"];
const LEASED: &str = "lease: 100ms";
const EACH: &str = "no lease, a call a check, 512 waiting";
const SHARED: &str = "no lease, calls shared by up to 32, 512 waiting";
/// Far more than one core can ask for.
const PLENTY: &str = "1000000/s burst 100000000000";
/// Less than one core can ask for: what is admitted shows whether it is kept.
const SCARCE_RATE: f64 = 50_000.0;
const SCARCE_BURST: f64 = 20_000.0;

/// Leased checks do not wait: few tasks ask, and let the one that renews run.
const AT_ONCE: Drive = Drive { waiting: 4, keys: 1, at_once: 256 };
const ONE_BY_ONE: Drive = Drive { waiting: 512, keys: 1, at_once: 1 };

/// A limiter of one hot key.
struct Hot {
    limiter: Rc<Limiter<RedisStore>>,
}

impl Hot {
    fn new(server: &Redis, name: &str, limit: &str, (lease, batch_max): (Lease, usize)) -> Self {
        let options =
            RedisOptions { deadline: Some(Duration::from_secs(5)), batch_max, ..RedisOptions::new(server.url()) };
        let store = RedisStore::new(options).unwrap_or_else(|error| panic!("the store: {error}"));
        let mut rule = rule(name, "global");
        rule.quotas = vec![quota(limit)];
        rule.lease = lease;
        let rules = RuleSet::new(vec![rule]).unwrap_or_else(|error| panic!("the rules: {error}"));
        Self { limiter: Rc::new(Limiter::new(rules, store)) }
    }

    /// The metrics; and how many were admitted, and in how many seconds.
    fn run(&self, runtime: &Runtime, server: &Redis, how: Drive, length: Duration) -> (Vec<f64>, f64, f64) {
        server.command(&["CONFIG", "RESETSTAT"]).expect_ok();
        let cpu = server.cpu_seconds();
        let admitted = Rc::new(std::cell::Cell::new(0_u64));
        let (limiter, counter) = (Rc::clone(&self.limiter), Rc::clone(&admitted));
        let check = async move |_: usize| {
            let is_allowed = limiter.check(&Request::new()).await.is_allowed();
            counter.set(counter.get() + u64::from(is_allowed));
        };
        let (checks, seconds) = drive(runtime, how, length, check);
        let cpu = server.cpu_seconds() - cpu;
        let (calls, _) = commands(server, "evalsha");
        let admitted = admitted.get() as f64;
        (vec![checks / seconds, admitted / checks, calls / checks, cpu * 1e6 / checks], admitted, seconds)
    }
}

pub(super) fn run(session: &mut Session) {
    let server = Redis::start();
    pin_process(server.pid(), server_core());
    let runtime = runtime();
    let _inside = runtime.enter();
    let leased = Hot::new(&server, "leased", PLENTY, (Lease::For(100_000), 32));
    let each = Hot::new(&server, "each", PLENTY, (Lease::Off, 1));
    let shared = Hot::new(&server, "shared", PLENTY, (Lease::Off, 32));
    let mut contest = Contest::new("one hot key over Redis, through Limiter::check, one core", METRICS);
    contest.add(LEASED, |length| leased.run(&runtime, &server, AT_ONCE, length).0);
    contest.add(EACH, |length| each.run(&runtime, &server, ONE_BY_ONE, length).0);
    contest.add(SHARED, |length| shared.run(&runtime, &server, ONE_BY_ONE, length).0);
    let length = session.pace().long;
    let mut figures = contest.run(session, length);
    let limit = format!("{SCARCE_RATE}/s burst {SCARCE_BURST}");
    let scarce = Hot::new(&server, "scarce", &limit, (Lease::For(100_000), 32));
    let (_, admitted, seconds) = scarce.run(&runtime, &server, AT_ONCE, length * 2);
    let most = SCARCE_BURST + SCARCE_RATE * seconds;
    figures.notes.push(format!(
        "a leased limit of {limit} admitted {admitted:.0} in {seconds:.2} s, {:.1} % of the most that it may ({most:.0})",
        admitted / most * 100.0
    ));
    let fault = (admitted > most).then(|| format!("admitted {admitted:.0}, at most {most:.0} may pass"));
    session.judge(Judged {
        figures: &figures,
        metric: 0,
        what: "leased hot key through `Limiter::check`",
        ours: LEASED,
        against: "per-check pipelined Redis",
        theirs: EACH,
        over: Over::Ours,
        bound: Bound::AtLeast(100.0),
        fault,
    });
    session.keep(figures);
}
