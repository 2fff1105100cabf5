//! Bans: subjects that are denied before any rule is tested, and until when.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use checkdam::headers::{self, Dialect};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::{EPOCH_UNIX_US, ManualClock};
use checkdam::{Ban, Definitions, Limiter, Outcome, Request, RuleSet, Verdict, rule_file};
use pollster::block_on;

type TestLimiter = Limiter<MemoryStore<Arc<ManualClock>>>;

/// 2026-06-01T00:00:00Z in the store's time.
const JUNE_US: u64 = 1_780_272_000_000_000 - EPOCH_UNIX_US;

fn limiter(rules: &str) -> (TestLimiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(JUNE_US));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, Arc::clone(&clock));
    (Limiter::new(rule_file::compile(rules).unwrap(), store), clock)
}

fn request<'a>(attributes: &[(&'a str, &'a str)]) -> Request<'a> {
    attributes.iter().fold(Request::new(), |request, (name, value)| request.with(*name, *value).unwrap())
}

fn check(limiter: &TestLimiter, attributes: &[(&str, &str)]) -> Outcome {
    block_on(limiter.check(&request(attributes)))
}

fn headers_of(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    headers::write(outcome, Dialect::Both, |name, value| lines.push(format!("{name}: {value}")));
    lines
}

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: [10/h] }
bans:
  - { subject: "user:13", reason: fraud }
  - { subject: "user:bot-*" }
  - { subject: "ip:198.51.100.0/24", until: "2026-06-01T00:01:00Z", reason: scraping }
  - { subject: "ip:198.51.100.128/25", until: "2026-06-01T00:02:00Z", reason: still scraping }
  - { subject: "ip:203.0.113.7" }
  - { subject: "ip:2001:db8::/32" }
  - { subject: 'user:\*' }
"#;

#[test]
fn bans_match_what_they_say() {
    let (limiter, _) = limiter(RULES);
    type Attributes<'a> = &'a [(&'a str, &'a str)];
    let table: [(Attributes<'_>, Option<&str>); 18] = [
        (&[], None),
        (&[("user", "1")], None),
        (&[("user", "13")], Some("user:13")),
        (&[("user", "131")], None),
        (&[("tenant", "13")], None),
        (&[("user", "bot-")], Some("user:bot-*")),
        (&[("user", "*")], Some("user:\\*")),
        (&[("ip", "198.51.100.1")], Some("ip:198.51.100.0/24")),
        (&[("ip", "198.51.100.200")], Some("ip:198.51.100.128/25")),
        (&[("ip", "198.51.101.1")], None),
        (&[("ip", "203.0.113.7")], Some("ip:203.0.113.7")),
        (&[("ip", "::ffff:203.0.113.7")], Some("ip:203.0.113.7")),
        // As Envoy writes masked addresses.
        (&[("ip", "203.0.113.7/32")], Some("ip:203.0.113.7")),
        (&[("ip", "203.0.113.7/31")], None),
        (&[("ip", "2001:DB8:0:0:1::")], Some("ip:2001:db8::/32")),
        (&[("ip", "2001:db9::")], None),
        (&[("ip", "nonsense")], None),
        // Both are banned; the ban that never ends is the one that counts.
        (&[("ip", "198.51.100.1"), ("user", "13")], Some("user:13")),
    ];
    for (attributes, expected) in table {
        let outcome = check(&limiter, attributes);
        assert_eq!(outcome.ban().map(Ban::subject).as_deref(), expected, "{attributes:?}");
        assert_eq!(outcome.verdict() == Verdict::Banned, expected.is_some(), "{attributes:?}");
        assert_eq!(outcome.is_allowed(), expected.is_none(), "{attributes:?}");
    }
    let elsewhere = request(&[("user", "13")]).in_domain("edge");
    assert_eq!(block_on(limiter.check(&elsewhere)).verdict(), Verdict::Banned, "in every domain");
}

#[test]
fn a_ban_charges_nothing_and_says_why_and_for_how_long() {
    let (limiter, _) = limiter(RULES);
    let outcome = check(&limiter, &[("user", "13")]);
    assert_eq!((outcome.tiers().len(), outcome.retry_after(), outcome.decided_by().name()), (0, None, "policy"));
    assert!(outcome.any_rule_applied());
    assert!(outcome.governing().is_none() && outcome.violated().is_none());
    assert_eq!(outcome.ban().unwrap().reason, "fraud");
    assert!(headers_of(&outcome).is_empty(), "for ever: no time to come back at");
    let outcome = check(&limiter, &[("ip", "198.51.100.1"), ("user", "1")]);
    assert_eq!((outcome.retry_after(), outcome.at_us()), (Some(Duration::from_secs(60)), JUNE_US));
    assert_eq!(headers_of(&outcome), ["retry-after: 60"]);
    assert_eq!(check(&limiter, &[("user", "1")]).governing().unwrap().decision.remaining, 9, "the ban charged nothing");
}

#[test]
fn a_ban_ends_on_the_microsecond() {
    let (limiter, clock) = limiter(RULES);
    let banned = [("ip", "198.51.100.200"), ("user", "1")];
    clock.set(JUNE_US + 119_999_999);
    let last = check(&limiter, &banned);
    assert_eq!((last.verdict(), last.retry_after()), (Verdict::Banned, Some(Duration::from_micros(1))));
    assert_eq!(last.ban().unwrap().reason, "still scraping");
    clock.set(JUNE_US + 120_000_000);
    assert_eq!(check(&limiter, &banned).governing().unwrap().decision.remaining, 9);
}

#[test]
fn who_is_banned_can_be_looked_at_refunded_and_reset() {
    let rules = "rules: [{ name: a, key: \"user:{user}\", limits: [10/h] }]";
    let (limiter, _) = limiter(rules);
    let one = request(&[("user", "1")]);
    for _ in 0..5 {
        assert!(block_on(limiter.check(&one)).is_allowed());
    }
    limiter.set_rules(rule_file::compile(&format!("{rules}\nbans: [{{ subject: \"user:1\" }}]")).unwrap());
    assert_eq!(block_on(limiter.peek(&one)).verdict(), Verdict::Banned);
    assert_eq!(block_on(limiter.refund(&one)).governing().unwrap().decision.remaining, 6);
    assert_eq!(block_on(limiter.reset(&one)).governing().unwrap().decision.remaining, 10);
}

#[test]
fn refusals_name_the_ban_and_say_why() {
    let table = [
        ("{ reason: x }", "the ban has no subject"),
        ("{ subject: \"13\" }", "names no attribute"),
        ("{ subject: \"user:\" }", "write \"user:*\""),
        ("{ subject: \"a b:c\" }", "names the attribute \"a b\""),
        ("{ subject: \"ip:10.0.0.0/99\" }", "\"10.0.0.0/99\" is no network"),
        ("{ subject: \"user:1\", until: tomorrow }", "until \"tomorrow\" is not a time"),
        ("{ subject: \"user:1\", since: x }", "since"),
        ("{ subject: \"user:0\" }", "banned by an earlier ban"),
    ];
    for (text, words) in table {
        let file = format!("rules: []\nbans:\n  - {{ subject: \"user:0\" }}\n  - {text}\n");
        let error = rule_file::compile(&file).expect_err(text);
        assert!(error.line == 4 && error.reason.contains(words), "{text}: {error}");
    }
    let mut long = Ban::new("user:1").unwrap();
    long.reason = "x".repeat(2_000);
    let error = RuleSet::compile(Definitions { bans: vec![long], ..Definitions::default() }).unwrap_err();
    assert!(error.to_string().starts_with("ban \"user:1\": the reason is 2000 bytes long"), "{error}");
}
