//! What 100,000 rules and overrides cost a check that few of them concern:
//! `Limiter::check` in memory with 3 rules that concern the request, beside 7
//! others, and beside 50,000 others and 50,000 overrides of one of the three.
//!
//! Compare within one run only: `cargo bench -p bench --bench rules`.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bench::Walk;
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Allowance, Condition, Definitions, Limiter, Override, Quota, Request, Rule, RuleSet};

const RULES: usize = 50_000;
const OVERRIDES: usize = 50_000;
const ROUNDS: usize = 4_001;
/// So few at a time that the requests themselves stay in the cache, as requests
/// do that were just read.
const CHECKS: usize = 256;

/// So fast that every take passes.
const RATE: &str = "1000000/s burst 1000000000";

fn rule(name: &str, key: &str) -> Rule {
    Rule::new(name, key.parse().unwrap(), vec![RATE.parse::<Quota>().unwrap()])
}

fn tenant(number: usize) -> Rule {
    let name = format!("tenant-{number}");
    let rule = rule(&name, "tenant:{tenant}");
    rule.when("tenant", Condition::is(name))
}

/// Three rules that concern a user of `tenant-0`, and six and `others` more
/// that do not.
fn definitions(others: usize, overrides: usize) -> Definitions {
    let mut rules = vec![rule("per-user", "user:{user}"), rule("global", "global")];
    for plan in ["free", "pro", "team", "trial", "staff", "none"] {
        rules.push(rule(plan, "user:{user}").when("plan", Condition::is(plan)));
    }
    rules.extend((0..2 + others).map(tenant));
    let limits = |number: usize| vec![format!("{}/s burst 1000000000", 900_000 + number % 1_000 * 100)];
    let limits = |number| limits(number).iter().map(|text| text.parse().unwrap()).collect();
    let one = |number: usize| {
        let allowance = match number % 3 {
            0 => Allowance::Scale("10".parse().unwrap()),
            1 => Allowance::Scale("0.5".parse().unwrap()),
            _ => Allowance::Limits(limits(number % 10)),
        };
        Override::new("per-user", &format!("user:{number}"), allowance)
    };
    Definitions { rules, overrides: (0..overrides).map(one).collect(), ..Definitions::default() }
}

fn limiter(definitions: Definitions) -> (Limiter<MemoryStore>, Duration) {
    let start = Instant::now();
    let rules = RuleSet::compile(definitions).unwrap();
    let spent = start.elapsed();
    (Limiter::new(rules, MemoryStore::new(MemoryOptions { max_buckets: 1_000_000 })), spent)
}

/// The memory store never waits, so neither does this.
fn check(limiter: &Limiter<MemoryStore>, request: &Request<'_>) -> usize {
    let mut checked = pin!(limiter.check(request));
    match checked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => usize::from(outcome.is_allowed()) * outcome.tiers().len(),
        Poll::Pending => 0,
    }
}

fn request(user: &str) -> Request<'_> {
    let request = Request::new().with("user", user).unwrap().with("tenant", "tenant-0").unwrap();
    request.with("method", "GET").unwrap().with("endpoint", "/api/search").unwrap()
}

fn timed(limiter: &Limiter<MemoryStore>, requests: &[Request<'_>]) -> f64 {
    let start = Instant::now();
    for request in requests {
        assert_eq!(black_box(check(limiter, request)), 3);
    }
    start.elapsed().as_nanos() as f64 / requests.len() as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let (few, _) = limiter(definitions(0, 0));
    let definitions = definitions(RULES, OVERRIDES);
    let count = definitions.rules.len() + definitions.overrides.len();
    let (many, spent) = limiter(definitions);
    println!("compiled {count} rules and overrides in {:.0} ms", spent.as_secs_f64() * 1e3);
    // Of the random users every second has an override.
    for (name, users) in [("one user, overridden", 1), ("random users", 2 * OVERRIDES)] {
        let mut walk = Walk::new(42, users);
        let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let users: Vec<String> = (0..CHECKS).map(|_| walk.step().to_string()).collect();
            let requests: Vec<Request<'_>> = users.iter().map(|user| request(user)).collect();
            // In turn, so that neither is always the second to see the requests;
            // and once before, so that both find them in the cache.
            for request in &requests {
                black_box(request.get("method"));
            }
            if round % 2 == 0 {
                of_few.push(timed(&few, &requests));
                of_many.push(timed(&many, &requests));
            } else {
                of_many.push(timed(&many, &requests));
                of_few.push(timed(&few, &requests));
            }
        }
        let (few, many) = (median(of_few), median(of_many));
        println!("{name}: 10 rules {few:.0} ns, {count} rules and overrides {many:.0} ns, ratio {:.2}", many / few);
    }
}
