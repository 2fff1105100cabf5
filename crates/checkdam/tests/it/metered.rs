//! Metered requests: their cost was used already, so that a check charges it whether it
//! fits or not, and decides as ever.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use checkdam::rule_file::{self, FileOptions};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Limiter, Outcome, Request};
use pollster::block_on;

const FILES: [&str; 2] = [
    r#"
domain: edge
descriptors:
  - { key: tokens, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: calls, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: blocked, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
"#,
    r#"
rules:
  - { name: plain, domain: plain, key: "user:{user}", limits: ["10/d", "15/d fixed_window"] }
bans:
  - { subject: "tokens:banned" }
"#,
];

type Memory = Limiter<MemoryStore<Arc<ManualClock>>>;

fn limiter() -> Memory {
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 1_000 }, Arc::new(ManualClock::at(1_000_000_000)));
    let (rules, _) = rule_file::compile_all(&FILES, &FileOptions::default()).unwrap();
    Limiter::new(rules, store)
}

fn of<'a>(key: &'a str, value: &'a str, cost: u64) -> Request<'a> {
    Request::from_entries("edge", [(key, value)]).unwrap().costing(cost)
}

/// Whether the requests pass together.
fn passes(limiter: &Memory, requests: &[Request<'_>]) -> bool {
    block_on(limiter.check_batch(requests)).is_allowed()
}

/// What is left of a limit, and its debt.
fn state(limiter: &Memory, key: &str, value: &str) -> (u64, u64) {
    first_tier(&block_on(limiter.peek(&of(key, value, 1))))
}

fn first_tier(outcome: &Outcome) -> (u64, u64) {
    outcome.tiers().next().map(|tier| (tier.decision.remaining, tier.decision.debt)).unwrap()
}

#[test]
fn a_metered_cost_is_charged_once_whether_it_fits_or_not() {
    let limiter = limiter();
    assert!(passes(&limiter, &[of("tokens", "1", 4).metered()]));
    assert_eq!(state(&limiter, "tokens", "1"), (6, 0));
    assert!(!passes(&limiter, &[of("tokens", "1", 7)]), "not metered, and over");
    assert_eq!(state(&limiter, "tokens", "1"), (6, 0));
    let denied = block_on(limiter.check_batch(&[of("tokens", "1", 7).metered()]));
    assert_eq!((denied.is_allowed(), denied.cut_off()), (false, 0));
    assert_eq!(first_tier(&denied.outcomes()[0]), (6, 0), "its outcome is that of the decision");
    assert_eq!(state(&limiter, "tokens", "1"), (0, 1));
    assert!(!passes(&limiter, &[of("tokens", "1", 0).metered()]), "in debt");
    assert!(!block_on(limiter.check(&of("tokens", "1", 5).metered())).is_allowed(), "a single check does the same");
    assert_eq!(state(&limiter, "tokens", "1"), (0, 6));
    let cut = block_on(limiter.check_batch(&[of("tokens", "1", 1_000).metered()]));
    assert_eq!((cut.cut_off(), state(&limiter, "tokens", "1")), (6, (0, 1_000)));
}

#[test]
fn only_what_is_metered_is_charged_if_another_denies() {
    let limiter = limiter();
    let call = || of("calls", "1", 1);
    assert!(!passes(&limiter, &[of("tokens", "1", 12).metered(), call()]));
    assert_eq!((state(&limiter, "tokens", "1"), state(&limiter, "calls", "1")), ((0, 2), (3, 0)));
    assert!(!passes(&limiter, &[of("tokens", "2", 4).metered(), of("calls", "1", 4)]));
    assert_eq!((state(&limiter, "tokens", "2"), state(&limiter, "calls", "1")), ((6, 0), (3, 0)));
    // Of one bucket, the part that is metered.
    assert!(!passes(&limiter, &[of("tokens", "3", 4).metered(), of("tokens", "3", 7)]));
    assert_eq!(state(&limiter, "tokens", "3"), (6, 0));
    assert!(passes(&limiter, &[of("tokens", "3", 4).metered(), of("tokens", "3", 2)]));
    assert_eq!(state(&limiter, "tokens", "3"), (0, 0));
    // A limit of nothing, and a ban.
    assert!(!passes(&limiter, &[of("tokens", "4", 4).metered(), of("blocked", "1", 1)]));
    assert!(!passes(&limiter, &[of("tokens", "4", 4).metered(), of("tokens", "banned", 4).metered()]));
    assert_eq!(state(&limiter, "tokens", "4"), (2, 0));
    assert!(passes(&limiter, &[of("free", "1", 1_000).metered(), of("blocked", "1", 0).metered()]));
}

#[test]
fn limits_that_do_not_deny_by_themselves_are_charged_too() {
    let limiter = limiter();
    assert!(passes(&limiter, &[of("shadow", "1", 12).metered()]));
    assert_eq!(state(&limiter, "shadow", "1"), (0, 2));
    assert!(passes(&limiter, &[of("quota", "1", 1)]));
    // All limits in quota mode deny: what others were charged is refunded, except for metered costs.
    assert!(!passes(&limiter, &[of("quota", "1", 1), of("tokens", "1", 4).metered(), of("calls", "1", 1)]));
    assert_eq!((state(&limiter, "tokens", "1"), state(&limiter, "calls", "1")), ((6, 0), (3, 0)));
    assert!(!passes(&limiter, &[of("quota", "1", 3).metered(), of("calls", "1", 1)]));
    assert_eq!((state(&limiter, "quota", "1"), state(&limiter, "calls", "1")), ((0, 3), (3, 0)));
}

#[test]
fn all_limits_of_a_rule_are_charged() {
    let limiter = limiter();
    let user = |cost| Request::new().in_domain("plain").with("user", "42").unwrap().costing(cost);
    assert!(!passes(&limiter, &[user(12).metered()]));
    let outcome = block_on(limiter.peek(&user(1)));
    let tiers: Vec<_> = outcome.tiers().map(|tier| (tier.decision.remaining, tier.decision.debt)).collect();
    assert_eq!(tiers, [(0, 2), (3, 0)]);
    let _ = block_on(limiter.refund(&user(2).metered()));
    assert_eq!(first_tier(&block_on(limiter.peek(&user(1)))), (0, 0), "a refund refunds");
}
