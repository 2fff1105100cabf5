//! The limiter: which rules apply to a request, and its outcome.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use checkdam::headers::{self, Dialect};
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Store, Tier, TierDecisions};
use checkdam::time::ManualClock;
use checkdam::{Condition, DecidedBy, Decision, Limiter, Outcome, Request, Rule, RuleSet, Verdict, rule_file};
use pollster::block_on;

type TestLimiter = Limiter<MemoryStore<Arc<ManualClock>>>;

fn limiter(rules: &str) -> TestLimiter {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, clock);
    Limiter::new(rule_file::compile(rules).unwrap(), store)
}

fn request<'a>(attributes: &[(&'a str, &'a str)]) -> Request<'a> {
    attributes.iter().fold(Request::new(), |request, (name, value)| request.with(*name, *value).unwrap())
}

fn check(limiter: &TestLimiter, attributes: &[(&str, &str)]) -> Outcome {
    block_on(limiter.check(&request(attributes)))
}

fn rules_of(outcome: &Outcome) -> Vec<String> {
    outcome.tiers().map(|tier| tier.rule.name.clone()).collect()
}

const CONDITIONS: &str = r#"
rules:
  - { name: always, key: global, limits: [100/s] }
  - { name: exact, key: "user:{user}", when: { plan: free }, limits: [100/s] }
  - { name: list, key: k, when: { method: [GET, POST] }, limits: [100/s] }
  - { name: path, key: k, when: { endpoint: "/users/{id}" }, limits: [100/s] }
  - { name: star, key: k, when: { endpoint: "/users/*" }, limits: [100/s] }
  - { name: any-path, key: k, when: { endpoint: "*" }, limits: [100/s] }
  - { name: network, key: k, when: { ip: 10.0.0.0/8 }, limits: [100/s] }
  - { name: outside, key: "ip:{ip}", when: { ip: { not_in: [10.0.0.0/8, "fd00::/8"] } }, limits: [100/s] }
  - { name: not-free, key: k, when: { plan: { not: free } }, limits: [100/s] }
  - { name: has-key, key: k, when: { api_key: { present: true } }, limits: [100/s] }
  - { name: no-key, key: k, when: { api_key: { present: false } }, limits: [100/s] }
  - { name: literal, key: k, when: { endpoint: { equals: "/users/{id}" } }, limits: [100/s] }
  - { name: both, key: k, when: { plan: free, method: GET }, limits: [100/s] }
  - { name: elsewhere, domain: edge, key: k, limits: [100/s] }
  - { name: never, key: k, mode: "off", limits: [100/s] }
"#;

#[test]
fn conditions_choose_the_rules() {
    let limiter = limiter(CONDITIONS);
    type Attributes<'a> = &'a [(&'a str, &'a str)];
    let table: [(Attributes<'_>, &[&str]); 9] = [
        (&[], &["always", "not-free", "no-key"]),
        (&[("plan", "free")], &["always", "no-key"]),
        (&[("plan", "free"), ("user", "1")], &["always", "exact", "no-key"]),
        (&[("plan", "free"), ("method", "GET")], &["always", "list", "no-key", "both"]),
        (&[("method", "get")], &["always", "not-free", "no-key"]),
        (&[("endpoint", "/users/7")], &["always", "path", "star", "any-path", "not-free", "no-key"]),
        (&[("endpoint", "/users/{id}")], &["always", "path", "star", "any-path", "not-free", "no-key", "literal"]),
        (&[("ip", "10.1.2.3"), ("api_key", "x")], &["always", "network", "not-free", "has-key"]),
        (&[("ip", "::ffff:10.1.2.3"), ("api_key", "x")], &["always", "network", "not-free", "has-key"]),
    ];
    for (attributes, expected) in table {
        assert_eq!(rules_of(&check(&limiter, attributes)), expected, "{attributes:?}");
    }
    for (ip, inside) in
        [("10.0.0.1", true), ("11.0.0.1", false), ("fd00::1", true), ("2001:db8::1", false), ("x", false)]
    {
        let outcome = check(&limiter, &[("ip", ip)]);
        assert_eq!(rules_of(&outcome).contains(&"outside".to_owned()), !inside, "{ip}");
    }
    let elsewhere = block_on(limiter.check(&Request::new().in_domain("edge")));
    assert_eq!(rules_of(&elsewhere), ["elsewhere"]);
}

/// The index must find exactly what trying every rule finds.
#[test]
fn the_index_finds_what_a_scan_finds() {
    let mut rules = Vec::new();
    for number in 0..300_u32 {
        let key = "user:{user}".parse().unwrap();
        let mut rule = Rule::new(format!("r{number}"), key, vec!["1/s".parse().unwrap()]);
        rule = match number % 5 {
            0 => rule.when("plan", Condition::is(format!("p{}", number % 7))),
            1 => rule.when("path", parse_condition(&format!("/a{}/*", number % 11))),
            2 => rule.when("path", parse_condition(&format!("/a{}/{{id}}/x", number % 3))),
            3 => rule.when("plan", Condition::is(format!("p{}", number % 2))).when("path", parse_condition("/a1/*")),
            _ => rule.when("region", Condition::NotIn(vec![checkdam::Matcher::Exact("eu".to_owned())])),
        };
        rules.push(rule);
    }
    let set = RuleSet::new(rules.clone()).unwrap();
    for plan in ["p0", "p1", "p6", "none"] {
        for path in ["/a1/7", "/a2/7/x", "/a10/x", "/b", ""] {
            for region in ["eu", "us"] {
                let request = request(&[("user", "1"), ("plan", plan), ("path", path), ("region", region)]);
                let found: Vec<String> =
                    set.explain(&request, 0).into_iter().map(|explanation| explanation.rule.name.clone()).collect();
                let scanned: Vec<String> = rules
                    .iter()
                    .filter(|rule| rule.when.iter().all(|(name, condition)| condition.holds(request.get(name))))
                    .map(|rule| rule.name.clone())
                    .collect();
                assert_eq!(found, scanned, "{request:?}");
            }
        }
    }
}

fn parse_condition(text: &str) -> Condition {
    Condition::In(vec![checkdam::Matcher::parse(text).unwrap()])
}

#[test]
fn the_longest_wait_is_the_violated_one_and_ties_go_to_the_first() {
    let limiter = limiter(
        r#"
rules:
  - { name: short, key: a, limits: [1/s] }
  - { name: long, key: b, limits: [1/m] }
  - { name: longest, key: c, limits: [1/h, 2/h] }
  - { name: same, key: d, limits: [1/h] }
"#,
    );
    let first = check(&limiter, &[]);
    assert!(first.is_allowed());
    assert_eq!(first.governing().unwrap().rule.name, "short", "the fewest remaining, the first of several");
    let second = check(&limiter, &[]);
    assert_eq!(second.denying().count(), 4);
    assert_eq!(second.violated().unwrap().rule.name, "longest");
    assert_eq!(second.retry_after(), Some(Duration::from_secs(3_600)));
    // The tier with room left was not charged by the denied request.
    let roomy = second.tiers().find(|tier| tier.quota.limit() == 2).unwrap();
    assert_eq!(roomy.decision.remaining, 1);
}

#[test]
fn a_shadow_is_reported_and_denies_nobody() {
    let limiter = limiter(
        r#"
rules:
  - { name: live, key: a, limits: [3/h] }
  - { name: candidate, key: a, mode: shadow, limits: [1/h] }
"#,
    );
    for shadow_allows in [true, false, false] {
        let outcome = check(&limiter, &[]);
        assert!(outcome.is_allowed() && outcome.any_rule_applied());
        assert_eq!(outcome.retry_after(), Some(Duration::ZERO));
        assert_eq!(outcome.governing().unwrap().rule.name, "live");
        let shadow = outcome.tiers().find(|tier| !tier.is_enforced()).unwrap();
        assert_eq!(shadow.decision.is_allowed(), shadow_allows);
    }
    assert_eq!(check(&limiter, &[]).violated().unwrap().rule.name, "live");
}

#[test]
fn what_no_rule_concerns_passes_without_headers() {
    let limiter = limiter("rules: [{ name: a, key: \"user:{user}\", limits: [1/s] }]");
    let outcome = check(&limiter, &[("ip", "1.2.3.4")]);
    assert!(outcome.is_allowed() && outcome.governing().is_none());
    assert!(!outcome.any_rule_applied());
    assert_eq!(outcome.retry_after(), Some(Duration::ZERO));
    headers::write(&outcome, Dialect::Both, |name, value| panic!("{name}: {value}"));
}

#[test]
fn a_limiter_in_memory_decides_without_a_future() {
    let limiter = limiter("rules: [{ name: a, key: \"user:{user}\", limits: [2/h] }]");
    let request = request(&[("user", "42")]);
    assert!(limiter.peek_now(&request).is_allowed());
    assert!(limiter.check_now(&request).is_allowed());
    assert!(!limiter.check_batch_now(&[request.clone(), request.clone()]).is_allowed());
    assert!(limiter.check_now(&request).is_allowed());
    assert_eq!(limiter.check_now(&request).verdict(), Verdict::Denied);
}

#[test]
fn what_can_never_pass_says_so_and_charges_nothing() {
    let limiter = limiter("rules: [{ name: a, key: k, limits: [5/s] }, { name: b, key: k, limits: [100/h] }]");
    let outcome = block_on(limiter.check(&Request::new().costing(6)));
    assert_eq!(outcome.verdict(), Verdict::CostExceedsBurst);
    assert_eq!((outcome.violated().unwrap().rule.name.as_str(), outcome.retry_after()), ("a", None));
    assert_eq!(check(&limiter, &[]).tiers().map(|tier| tier.decision.remaining).collect::<Vec<_>>(), [4, 99]);
}

#[test]
fn subjects_that_read_alike_have_buckets_of_their_own() {
    let limiter = limiter("rules: [{ name: a, key: \"{x}:{y}\", limits: [1/h] }]");
    assert!(check(&limiter, &[("x", "a:b"), ("y", "c")]).is_allowed());
    assert!(check(&limiter, &[("x", "a"), ("y", "b:c")]).is_allowed());
    assert!(!check(&limiter, &[("x", "a"), ("y", "b:c")]).is_allowed());
}

/// What is left of each limit after one more request under `limits`.
fn left_under(limiter: &TestLimiter, limits: &str) -> Vec<u64> {
    limiter.set_rules(rule_file::compile(&format!("rules: [{{ name: a, key: k, {limits} }}]")).unwrap());
    check(limiter, &[]).tiers().map(|tier| tier.decision.remaining).collect()
}

#[test]
fn a_bucket_of_other_numbers_is_new_and_the_old_one_keeps_what_is_owed() {
    let limiter = limiter("rules: [{ name: a, key: k, limits: [10/h] }]");
    for _ in 0..8 {
        let _ = check(&limiter, &[]);
    }
    assert_eq!(left_under(&limiter, "limits: [10/h burst 20]"), [19]);
    assert_eq!(left_under(&limiter, "limits: [10/h burst 5]"), [4]);
    assert_eq!(left_under(&limiter, "limits: [10/h], algorithm: leaky_bucket"), [9]);
    // The same rate in other words is the same bucket.
    assert_eq!(left_under(&limiter, "limits: [20/2h burst 10]"), [1]);
    assert_eq!(left_under(&limiter, "limits: [10/h]"), [0]);
}

#[test]
fn a_window_of_another_limit_keeps_its_count() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let limiter = limiter("rules: []");
        let left = |text: &str| left_under(&limiter, &format!("{text}, algorithm: {algorithm}"));
        assert_eq!(left("limits: [10/d]"), [9], "{algorithm}");
        assert_eq!(left("limits: [100/d]"), [98], "{algorithm}");
        assert_eq!(left("limits: [2/d]"), [0], "{algorithm}: denied");
        assert_eq!(left("limits: [3/d]"), [0], "{algorithm}");
        assert_eq!(left("limits: [10/w]"), [9], "{algorithm}: another period is another window");
        assert_eq!(left("limits: [10/d]"), [6], "{algorithm}");
    }
    let limiter = limiter("rules: []");
    let left =
        |strict: &str| left_under(&limiter, &format!("limits: [10/d], algorithm: sliding_window, strict: {strict}"));
    assert_eq!([left("true"), left("false"), left("true"), left("false")], [[9], [9], [8], [8]]);
}

#[test]
fn limits_may_be_listed_in_any_order_and_twice() {
    let limiter = limiter("rules: []");
    assert_eq!(left_under(&limiter, "limits: [10/h, 20/d]"), [9, 19]);
    assert_eq!(left_under(&limiter, "limits: [20/d, 10/h]"), [18, 8]);
    assert_eq!(left_under(&limiter, "limits: [5/m, 20/d, 10/h]"), [4, 17, 7]);
    // Limits that count alike are distinguished, and each is charged.
    assert_eq!(left_under(&limiter, "limits: [10/h, 10/h, 20/d]"), [6, 9, 16]);
    assert_eq!(left_under(&limiter, "limits: [10/h, 10/h]"), [5, 8]);
    let windows = "algorithm: fixed_window, limits";
    assert_eq!(left_under(&limiter, &format!("{windows}: [10/d, 20/d]")), [9, 19]);
    assert_eq!(left_under(&limiter, &format!("{windows}: [20/d, 10/d]")), [18, 8]);
}

#[test]
fn what_an_outcome_was_charged_goes_back_where_it_came_from() {
    let rules = |limit: &str| {
        format!(
            "rules: [{{ name: a, key: k, limits: [{limit}, 10/d] }}, \
             {{ name: full, key: k, limits: [1/d, 5/d], mode: shadow }}]"
        )
    };
    let limiter = limiter(&rules("4/h"));
    let left = |text: &str| -> Vec<u64> {
        limiter.set_rules(rule_file::compile(text).unwrap());
        block_on(limiter.peek(&Request::new())).tiers().map(|tier| tier.decision.remaining).collect()
    };
    let (first, second) = (check(&limiter, &[]), check(&limiter, &[]));
    assert_eq!(left(&rules("20/h")), [20, 8, 0, 4]);
    let other = check(&limiter, &[]);
    assert_eq!(left(&rules("20/h")), [19, 7, 0, 4]);
    // The second was not charged to the rule in shadow, which would have denied it.
    block_on(limiter.refund_outcome(&Request::new(), &second));
    assert_eq!(left(&rules("20/h")), [19, 8, 0, 4]);
    assert_eq!(left(&rules("4/h")), [3, 8, 0, 4]);
    block_on(limiter.refund_outcome(&Request::new(), &first));
    assert_eq!(left(&rules("4/h")), [4, 9, 1, 5]);
    block_on(limiter.refund_outcome(&Request::new(), &other));
    assert_eq!(left(&rules("20/h")), [20, 10, 1, 5]);
    // What charged nothing gives nothing back.
    let spent = block_on(limiter.check(&Request::new().costing(10)));
    assert_eq!(left(&rules("20/h")), [10, 0, 1, 5]);
    assert!(spent.is_allowed());
    let denied = check(&limiter, &[]);
    let peeked = block_on(limiter.peek(&Request::new().costing(0)));
    for outcome in [&denied, &peeked] {
        block_on(limiter.refund_outcome(&Request::new(), outcome));
    }
    assert_eq!(left(&rules("20/h")), [10, 0, 1, 5]);
}

fn headers_of(outcome: &Outcome, dialect: Dialect) -> Vec<String> {
    let mut lines = Vec::new();
    headers::write(outcome, dialect, |name, value| lines.push(format!("{name}: {value}")));
    lines
}

#[test]
fn headers_tell_the_same_story_in_both_dialects() {
    let limiter = limiter(
        r#"
rules:
  - { name: user-free, key: a, limits: ["2/s burst 3", "5000/h"] }
  - { name: "say \"hi\"", key: a, limits: [100/m] }
"#,
    );
    // 1,000,000 s after 2026-01-01: Unix time 1,768,225,600.
    let allowed = check(&limiter, &[]);
    assert_eq!(
        headers_of(&allowed, Dialect::Both),
        [
            "x-ratelimit-limit: 3",
            "x-ratelimit-remaining: 2",
            "x-ratelimit-reset: 1768225601",
            "ratelimit-policy: \"user-free 2/s\";q=3;w=2, \"user-free 5000/h\";q=5000;w=3600, \"say \\\"hi\\\"\";q=100;w=60",
            "ratelimit: \"user-free 2/s\";r=2;t=1",
        ]
    );
    let _ = check(&limiter, &[]);
    let _ = check(&limiter, &[]);
    let denied = check(&limiter, &[]);
    assert_eq!(
        headers_of(&denied, Dialect::X),
        ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1768225602", "retry-after: 1"]
    );
    assert_eq!(headers_of(&denied, Dialect::Ietf)[1..], ["ratelimit: \"user-free 2/s\";r=0;t=1", "retry-after: 1"]);
    assert_eq!(headers_of(&denied, Dialect::None), ["retry-after: 1"]);
}

#[test]
fn peek_refund_and_reset_work_through_the_rules() {
    let limiter = limiter("rules: [{ name: a, key: \"user:{user}\", limits: [5/h, 10/h] }]");
    let request = request(&[("user", "1")]).costing(4);
    let left = |outcome: Outcome| outcome.tiers().map(|tier| tier.decision.remaining).collect::<Vec<_>>();
    assert_eq!(left(block_on(limiter.peek(&request))), [5, 10]);
    assert_eq!(left(block_on(limiter.check(&request))), [1, 6]);
    assert!(!block_on(limiter.peek(&request)).is_allowed());
    assert_eq!(left(block_on(limiter.refund(&request))), [5, 10]);
    assert_eq!(left(block_on(limiter.check(&request))), [1, 6]);
    assert_eq!(left(block_on(limiter.reset(&request))), [5, 10]);
}

#[test]
fn a_request_with_too_many_tiers_is_denied_not_decided_in_part() {
    let rules: Vec<Rule> = (0..300)
        .map(|number| Rule::new(format!("r{number}"), "k".parse().unwrap(), vec!["100/s".parse().unwrap()]))
        .collect();
    let limiter = limiter("rules: []");
    limiter.set_rules(RuleSet::new(rules).unwrap());
    let outcome = check(&limiter, &[]);
    assert_eq!((outcome.verdict(), outcome.tiers().len()), (Verdict::Unavailable, 300));
    assert_eq!(outcome.decided_by().name(), "policy");
}

#[test]
fn too_many_tiers_in_shadow_let_nobody_pass_an_enforced_one() {
    let mut rules: Vec<Rule> = (0..300)
        .map(|number| Rule::new(format!("r{number}"), "k".parse().unwrap(), vec!["100/s".parse().unwrap()]))
        .collect();
    rules[..299].iter_mut().for_each(|rule| rule.mode = checkdam::Mode::Shadow);
    let limiter = limiter("rules: []");
    limiter.set_rules(RuleSet::new(rules).unwrap());
    assert_eq!(check(&limiter, &[]).verdict(), Verdict::Unavailable);
}

/// A store that gives one decision for every tier.
struct Decided(Decision);

impl Store for Decided {
    async fn apply(&self, _: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        TierDecisions {
            decisions: tiers.iter().map(|_| self.0).collect(),
            at_us: u64::MAX / 4,
            by: DecidedBy::Memory,
            cut_off: 0,
        }
    }
}

#[test]
fn headers_can_tell_the_longest_reset() {
    let (limit, remaining, delay_us, reset_after_us) = (1, 0, 0, u64::MAX);
    let decision =
        Decision { verdict: Verdict::Allowed, limit, remaining, debt: 0, retry_after_us: 0, reset_after_us, delay_us };
    let rules = rule_file::compile("rules: [{ name: a, key: all, limits: [1/s] }]").unwrap();
    let outcome = block_on(Limiter::new(rules, Decided(decision)).check(&Request::new()));
    let latest_s = u64::MAX.div_ceil(1_000_000);
    assert!(headers_of(&outcome, Dialect::X).contains(&format!("x-ratelimit-reset: {latest_s}")));
}
