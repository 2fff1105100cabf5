//! What 100,000 rules and overrides cost a check that few of them concern: 3
//! rules that concern the request, beside 7 others, and beside 50,000 others and
//! 50,000 overrides of one of the three.

use checkdam::{Allowance, Condition, Definitions, Override};

use crate::checks::{checks_ns, limiter, rule, tenant};
use crate::contest::Contest;
use crate::figures::Bound;
use crate::machine::{load_core, pin_thread};
use crate::session::{Judged, Over, Session};

const OTHERS: usize = 50_000;
const FEW: &str = "10 rules";
const MANY: &str = "100,010 rules and overrides";

/// Three rules that concern a user of `tenant-0`, and seven and `others` more
/// that do not.
fn definitions(others: usize) -> Definitions {
    let mut rules = vec![rule("per-user", "user:{user}"), rule("global", "global")];
    for plan in ["free", "pro", "team", "trial", "staff", "none"] {
        rules.push(rule(plan, "user:{user}").when("plan", Condition::is(plan)));
    }
    rules.extend((0..2 + others).map(tenant));
    let one = |number: usize| {
        let allowance = match number % 3 {
            0 => Allowance::Scale("10".parse().unwrap_or_else(|error| panic!("{error}"))),
            1 => Allowance::Scale("0.5".parse().unwrap_or_else(|error| panic!("{error}"))),
            _ => {
                let limit = format!("{}/s burst 1000000000", 900_000 + number % 10 * 100);
                Allowance::Limits(vec![limit.parse().unwrap_or_else(|error| panic!("{limit}: {error}"))])
            }
        };
        Override::new("per-user", &format!("user:user-{number:07}"), allowance)
    };
    Definitions { rules, overrides: (0..others).map(one).collect(), ..Definitions::default() }
}

pub(super) fn run(session: &mut Session) {
    pin_thread(&[load_core()]);
    let (few, many) = (limiter(definitions(0)), limiter(definitions(OTHERS)));
    // Of the random users every second has an override.
    for (title, users) in [("one user, overridden", 1), ("random users", 2 * OTHERS)] {
        let mut contest = Contest::new(format!("a check with many rules: {title}"), &["ns a check"]);
        contest.add(FEW, |length| vec![checks_ns(&few, 3, users, length)]);
        contest.add(MANY, |length| vec![checks_ns(&many, 3, users, length)]);
        let length = session.pace().short * 4;
        let figures = contest.run(session, length);
        session.judge(Judged {
            figures: &figures,
            metric: 0,
            what: &format!("rule matching with 100,000 rules, {title}"),
            ours: MANY,
            against: "10 rules",
            theirs: FEW,
            over: Over::Ours,
            bound: Bound::AtMost(1.3),
            fault: None,
        });
        session.keep(figures);
    }
}
