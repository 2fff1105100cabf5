//! Overrides: subjects with other limits than the rule's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Allowance, Definitions, Limiter, Outcome, Override, Request, Rule, RuleSet, rule_file};
use pollster::block_on;

type TestLimiter = Limiter<MemoryStore<Arc<ManualClock>>>;

fn limiter(rules: &str) -> TestLimiter {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, clock);
    Limiter::new(rule_file::compile(rules).unwrap(), store)
}

fn check(limiter: &TestLimiter, attributes: &[(&str, &str)]) -> Outcome {
    let request = attributes.iter().fold(Request::new(), |request, (name, value)| request.with(*name, *value).unwrap());
    block_on(limiter.check(&request))
}

fn limits(outcome: &Outcome) -> Vec<u64> {
    outcome.tiers().map(|tier| tier.decision.limit).collect()
}

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: [10/s burst 50, 5000/h] }
  - { name: per-place, key: "{tenant}/{user}", when: { tenant: { present: true } }, limits: [7/s] }
  - { name: switched-off, key: "user:{user}", mode: "off", limits: [1/s] }
overrides:
  - { rule: per-user, subject: "user:*", limits: [1/s] }
  - { rule: per-user, subject: "user:bot-*", limits: [2/s] }
  - { rule: per-user, subject: "*:bot-1*", limits: [3/s] }
  - { rule: per-user, subject: "user:*t-1*", limits: [4/s] }
  - { rule: per-user, subject: "user:q*", limits: [5/s] }
  - { rule: per-user, subject: "user:*q", limits: [6/s] }
  - { rule: per-user, subject: "user:bot-11", scale: 10 }
  - { rule: per-user, subject: "user:half", scale: 0.5 }
  - { rule: per-user, subject: "user:free", unlimited: true }
  - { rule: per-user, subject: 'user:\*', limits: [9/s, 9/m, 9/h] }
  - { rule: per-place, subject: "acme/*", limits: [70/s] }
  - { rule: switched-off, subject: "user:1", scale: 2 }
"#;

/// A name that somebody chose must not reach into the next attribute.
#[test]
fn a_wildcard_stands_within_one_attribute() {
    let limiter = limiter(
        r#"
rules:
  - { name: per-place, key: "{tenant}/{user}", limits: [7/s] }
  - { name: per-path, key: "ip:{ip}:{path}", when: { path: { present: true } }, limits: [3/s] }
overrides:
  - { rule: per-place, subject: "*/admin", limits: [700/s] }
  - { rule: per-place, subject: "acme/*", limits: [70/s] }
  - { rule: per-path, subject: "ip:2001:db8::*:/login", limits: [30/s] }
"#,
    );
    for (tenant, user, expected) in [
        ("a", "admin", 700),
        ("a", "b/admin", 7),
        ("a/b", "admin", 700),
        ("acme", "x/y", 70),
        ("acme/x", "y", 7),
        ("x", "acme/y", 7),
    ] {
        let outcome = check(&limiter, &[("tenant", tenant), ("user", user)]);
        assert_eq!(limits(&outcome), [expected], "{tenant} and {user}");
    }
    let of_path = |ip, path| limits(&check(&limiter, &[("ip", ip), ("path", path)]));
    assert_eq!((of_path("2001:db8::1", "/login"), of_path("::1", "/x:/login")), (vec![30], vec![3]));
}

#[test]
fn the_nearest_override_counts() {
    let limiter = limiter(RULES);
    let table: [(&str, &[u64]); 10] = [
        ("anyone", &[1]),
        ("bot-2", &[2]),
        ("bot-1", &[2]),
        ("xt-1", &[4]),
        ("qq", &[5]),
        ("bot-11", &[500, 50_000]),
        ("half", &[25, 2_500]),
        ("free", &[]),
        ("*", &[9, 9, 9]),
        ("\\*", &[1]),
    ];
    for (user, expected) in table {
        assert_eq!(limits(&check(&limiter, &[("user", user)])), expected, "{user}");
    }
    assert_eq!(limits(&check(&limiter, &[("user", "free"), ("tenant", "acme")])), [70]);
    assert_eq!(limits(&check(&limiter, &[("user", "free"), ("tenant", "other")])), [7]);
}

#[test]
fn what_is_lifted_passes_without_tiers_and_is_explained() {
    let limiter = limiter(RULES);
    let outcome = check(&limiter, &[("user", "free")]);
    assert!(outcome.is_allowed() && outcome.governing().is_none());
    let request = Request::new().with("user", "free").unwrap();
    let rules = limiter.rules();
    let explained = rules.explain(&request, 1);
    assert_eq!(explained.len(), 1, "what is lifted comes before what never concerned the request");
    assert!(!explained[0].matches);
    assert_eq!(explained[0].applied.unwrap().allowance, Allowance::Unlimited);
    assert_eq!(explained[0].reasons[1], "the override of \"user:free\" lifts it");
    let request = Request::new().with("user", "bot-11").unwrap();
    let explained = rules.explain(&request, 0);
    assert!(explained[0].matches);
    assert_eq!(explained[0].reasons[1], "the override of \"user:bot-11\" allows 10 times its limits");
    let request = Request::new().with("user", "bot-5").unwrap();
    assert_eq!(rules.explain(&request, 0)[0].reasons[1], "the override of \"user:bot-*\" has limits of its own: 2/s");
}

#[test]
fn an_override_that_comes_and_goes_leaves_what_is_owed() {
    let rules = "rules: [{ name: a, key: \"user:{user}\", limits: [10/h] }]";
    let limiter = limiter(rules);
    for _ in 0..8 {
        assert!(check(&limiter, &[("user", "1")]).is_allowed());
    }
    let with = format!("{rules}\noverrides: [{{ rule: a, subject: \"user:1\", limits: [10/h burst 20] }}]");
    limiter.set_rules(rule_file::compile(&with).unwrap());
    let outcome = check(&limiter, &[("user", "1")]);
    assert_eq!(outcome.governing().unwrap().decision.remaining, 19);
    assert_eq!(outcome.governing().unwrap().policy_name(), "a");
    limiter.set_rules(rule_file::compile(rules).unwrap());
    assert_eq!(check(&limiter, &[("user", "1")]).governing().unwrap().decision.remaining, 1);
}

#[test]
fn limits_of_an_override_have_the_algorithm_of_the_rule_unless_they_name_one() {
    let limiter = limiter(
        r#"
rules:
  - { name: calendar, key: "a:{user}", limits: [1000 per calendar month] }
  - { name: named, key: "b:{user}", limits: [100/m sliding_log], algorithm: sliding_window }
overrides:
  - { rule: calendar, subject: "a:1", limits: [10/s burst 20, 5 per calendar day] }
  - { rule: named, subject: "b:1", limits: [200/m, 7/s token_bucket] }
"#,
    );
    let outcome = check(&limiter, &[("user", "1")]);
    let algorithms: Vec<_> = outcome.tiers().map(|tier| tier.quota.algorithm().name()).collect();
    assert_eq!(algorithms, ["token_bucket", "fixed_window", "sliding_window", "token_bucket"]);
    let names: Vec<_> = outcome.tiers().map(|tier| tier.limit_name().to_owned()).collect();
    assert_eq!(names, ["10/s burst 20", "5 per calendar day", "200/m", "7/s token_bucket"]);
}

#[test]
fn calendar_limits_of_a_rule_and_its_overrides_have_the_options_of_the_rule() {
    let limiter = limiter(
        r#"
rules:
  - name: billing
    key: "a:{user}"
    limits: [1000 per calendar month, 100 per calendar day, 500 per calendar month zone UTC anchor 1, 10/s]
    zone: Europe/Berlin
    anchor: 15
overrides:
  - { rule: billing, subject: "a:1", limits: [10 per calendar month, 7 per calendar month anchor 31, 5 per calendar week] }
  - { rule: billing, subject: "a:2", scale: 2 }
"#,
    );
    let limits = |user: &str| -> Vec<String> {
        let outcome = check(&limiter, &[("user", user)]);
        outcome.tiers().map(|tier| tier.quota.to_string()).collect()
    };
    assert_eq!(
        limits("0"),
        [
            "1000 per calendar month zone Europe/Berlin anchor 15",
            "100 per calendar day zone Europe/Berlin",
            "500 per calendar month zone UTC anchor 1",
            "10/s",
        ]
    );
    assert_eq!(
        limits("1"),
        [
            "10 per calendar month zone Europe/Berlin anchor 15",
            "7 per calendar month zone Europe/Berlin anchor 31",
            "5 per calendar week zone Europe/Berlin",
        ]
    );
    assert_eq!(
        limits("2"),
        [
            "2000 per calendar month zone Europe/Berlin anchor 15",
            "200 per calendar day zone Europe/Berlin",
            "1000 per calendar month zone UTC anchor 1",
            "20/s",
        ]
    );
}

/// (what is wrong, the override, words of the message)
const REFUSED: [(&str, &str, &str); 11] = [
    ("unknown rule", "{ rule: nobody, subject: \"user:1\", scale: 2 }", "there is no rule of that name"),
    ("no subject", "{ rule: a, scale: 2 }", "the override has no subject"),
    ("no rule", "{ subject: \"user:1\", scale: 2 }", "the override has no rule"),
    ("nothing allowed", "{ rule: a, subject: \"user:1\" }", "one of limits"),
    ("two things allowed", "{ rule: a, subject: \"user:1\", scale: 2, limits: [1/s] }", "one of limits"),
    ("no limits", "{ rule: a, subject: \"user:1\", limits: [] }", "limits is empty"),
    ("bad limit", "{ rule: a, subject: \"user:1\", limits: [0/s] }", "limit is 0"),
    ("bad scale", "{ rule: a, subject: \"user:1\", scale: -1 }", "scale \"-1\" is not a number"),
    ("scaled beyond", "{ rule: a, subject: \"user:1\", scale: 1000000 }", "cannot be counted"),
    ("a subject of another kind", "{ rule: a, subject: \"tenant:1\", scale: 2 }", "its key is \"user:{user}\""),
    ("a wildcard of another kind", "{ rule: a, subject: \"ip:*\", scale: 2 }", "its key is \"user:{user}\""),
];

#[test]
fn refusals_name_the_override_and_say_why() {
    for (what, text, words) in REFUSED {
        let file =
            format!("rules:\n  - {{ name: a, key: \"user:{{user}}\", limits: [1000/s] }}\noverrides:\n  - {text}\n");
        let error = rule_file::compile(&file).expect_err(what);
        assert_eq!(error.line, 4, "{what}: {error}");
        assert!(error.reason.contains(words) && error.reason.contains("override"), "{what}: {error}");
    }
}

#[test]
fn one_subject_has_one_override() {
    let rule = Rule::new("a", "user:{user}".parse().unwrap(), vec!["1/s".parse().unwrap()]);
    for subject in ["user:1", "user:*"] {
        let one = Override::new("a", subject, Allowance::Unlimited);
        let definitions =
            Definitions { rules: vec![rule.clone()], overrides: vec![one.clone(), one], ..Definitions::default() };
        let error = RuleSet::compile(definitions).unwrap_err();
        assert_eq!(error.index, 1);
        assert!(error.to_string().starts_with(&format!("override of {subject:?} for rule \"a\": ")), "{error}");
        assert!(error.reason.contains("earlier override"), "{error}");
    }
}

#[test]
fn higher_priority_comes_first_and_the_rest_as_listed() {
    let limiter = limiter(
        r#"
rules:
  - { name: a, key: k, limits: [1/h] }
  - { name: b, key: k, limits: [1/h], priority: -1 }
  - { name: c, key: k, limits: [1/h], priority: 10 }
  - { name: d, key: k, limits: [1/h] }
"#,
    );
    let outcome = check(&limiter, &[]);
    let names: Vec<_> = outcome.tiers().map(|tier| tier.rule.name.clone()).collect();
    assert_eq!(names, ["c", "a", "d", "b"]);
    assert_eq!(check(&limiter, &[]).violated().unwrap().rule.name, "c", "ties go to the first");
}
