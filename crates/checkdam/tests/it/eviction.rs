//! Evictions from the memory store: a flood of keys can neither reset a bucket nor
//! lock other subjects out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Condition, Decision, Limiter, Quota, Request, Rule, RuleSet};
use pollster::block_on;

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;

fn quota(text: &str, algorithm: Algorithm) -> Quota {
    Quota::new(text.parse().unwrap(), algorithm).unwrap()
}

/// A limiter with one rule for each attribute that is named, and a clock that stands.
struct Dam {
    clock: Arc<ManualClock>,
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
}

impl Dam {
    /// The attributes are those of the keys; `global` is one that its key does not name.
    fn new(max_buckets: usize, rules: &[(&str, Quota)]) -> Self {
        let clock = Arc::new(ManualClock::at(1_000 * HOUR_US + 17));
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets }, Arc::clone(&clock));
        let rule = |(attribute, quota): &(&str, Quota)| match *attribute {
            "global" => {
                Rule::new("global", "global".parse().unwrap(), vec![*quota]).when("global", Condition::Present(true))
            }
            name => Rule::new(name, format!("{name}:{{{name}}}").parse().unwrap(), vec![*quota]),
        };
        let rules = RuleSet::new(rules.iter().map(rule).collect()).unwrap();
        Self { clock, limiter: Limiter::new(rules, store) }
    }

    /// What the rule of `attribute` answers, and only that one.
    fn take(&self, attribute: &str, value: &str, cost: u64) -> Decision {
        let request = Request::new().with(attribute, value).unwrap().costing(cost);
        let outcome = block_on(self.limiter.check(&request));
        let tier = outcome.tiers().find(|tier| tier.rule.name == attribute).unwrap();
        *tier.decision
    }

    fn flood(&self, attribute: &str, keys: u64, cost: u64) {
        for key in 0..keys {
            let _ = self.take(attribute, &format!("flood {key}"), cost);
            if key % 1_000 == 0 {
                self.clock.advance(1_000);
            }
        }
    }

    /// Every new subject passes after its `retry_after`, not before, and that is at most
    /// `longest_us`. Returns how many passed at once.
    fn strangers_pass_when_told(&self, attribute: &str, cost: u64, longest_us: u64) -> usize {
        let start_us = checkdam::time::Clock::now_us(&*self.clock);
        let mut waiting = Vec::new();
        let mut at_once = 0;
        for number in 0..100 {
            let name = format!("stranger {number}");
            let decision = self.take(attribute, &name, cost);
            if decision.is_allowed() {
                at_once += 1;
                continue;
            }
            let told_us = decision.retry_after_us;
            assert!((1..=longest_us).contains(&told_us), "{attribute}: told {told_us} of {longest_us}");
            waiting.push((start_us + told_us, name));
        }
        waiting.sort();
        for (told_us, name) in waiting {
            self.clock.set(told_us - 1);
            assert!(!self.take(attribute, &name, cost).is_allowed(), "{attribute}: {name} passed early");
            self.clock.set(told_us);
            let decision = self.take(attribute, &name, cost);
            assert!(decision.is_allowed(), "{attribute}: {name} was told {told_us}, now: {decision:?}");
        }
        at_once
    }
}

/// The figures of the report that found it.
#[test]
fn a_flood_of_daily_keys_does_not_lock_out_strangers_of_another_rule() {
    let token = Algorithm::TokenBucket;
    let dam = Dam::new(100_000, &[("ip", quota("5/d", token)), ("user", quota("10/s burst 50", token))]);
    dam.flood("ip", 300_000, 1);
    for number in 0..1_000 {
        assert!(dam.take("user", &format!("user {number}"), 1).is_allowed(), "stranger {number}");
    }
    let stats = dam.limiter.store().stats();
    assert!(stats.evicted > 100_000 && stats.buckets <= 100_000, "{stats:?}");
}

/// The flood and the strangers are of one rule, of two rules of one scale, and of
/// two scales, in every algorithm; the flood takes a little, or all.
#[test]
fn after_any_flood_strangers_pass_when_they_were_told() {
    for algorithm in Algorithm::ALL {
        for cost in [1, 5] {
            let quotas = [("ip", "5/30h"), ("user", "5/10h"), ("device", "10/m"), ("account", "10/s")];
            let dam = Dam::new(5_000, &quotas.map(|(name, text)| (name, quota(text, algorithm))));
            let exhausted = |when: &str| {
                for number in 0..20 {
                    let allowed =
                        ["ip", "user"].map(|name| dam.take(name, &format!("victim {number}"), 5).is_allowed());
                    assert_eq!(allowed, [when == "before"; 2], "{algorithm:?}: victim {number} {when} the flood");
                }
            };
            exhausted("before");
            dam.flood("ip", 20_000, cost);
            exhausted("after");
            for (name, period_us) in [("account", SECOND_US), ("device", 60 * SECOND_US)] {
                let at_once = dam.strangers_pass_when_told(name, 1, period_us);
                assert_eq!(at_once, 100, "{algorithm:?}: strangers of {name}");
            }
            // A sliding window owes until the window after the next.
            let periods = if algorithm == (Algorithm::SlidingWindow { strict: false }) { 2 } else { 1 };
            dam.strangers_pass_when_told("user", 5, periods * 10 * HOUR_US * 11 / 10);
            dam.strangers_pass_when_told("ip", 1, periods * 30 * HOUR_US * 11 / 10);
            let stats = dam.limiter.store().stats();
            assert!(stats.evicted > 1_000 && stats.buckets <= 5_000, "{algorithm:?}: {stats:?}");
        }
    }
}

/// A bucket that begins empty is not forgotten while its owner waits, nor given
/// more than a new one.
#[test]
fn buckets_that_begin_with_less_than_their_burst_keep_what_they_told() {
    let (token, slow) = (Algorithm::TokenBucket, "1/d burst 4 initial 0");
    let dam = Dam::new(5_000, &[("ip", quota("5/d", token)), ("user", quota(slow, token))]);
    for (flooded, cost) in [("ip", 5), ("user", 4)] {
        dam.flood(flooded, 20_000, cost);
        assert_eq!(dam.strangers_pass_when_told("user", 1, 24 * HOUR_US), 0, "a new bucket is empty");
        dam.clock.advance(10 * 24 * HOUR_US);
        assert_eq!(dam.strangers_pass_when_told("user", 4, 4 * 24 * HOUR_US), 0, "a new bucket is empty");
        dam.clock.advance(10 * 24 * HOUR_US);
    }
}

/// A bucket that many share, beside floods of another scale and of its own.
#[test]
fn a_shared_bucket_goes_on_beside_a_flood() {
    for algorithm in Algorithm::ALL {
        // A window that lost its place is denied for as long as its windows are.
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        for (flooded, least) in [("5/d", 1_000), ("1/s", if is_bucket { 900 } else { 300 })] {
            let rules = [("ip", quota(flooded, algorithm)), ("tenant", quota("1000/s", algorithm))];
            let dam = Dam::new(5_000, &rules);
            dam.flood("ip", 10_000, 1);
            let mut passed = 0;
            // 200 requests a second, and 20,000 keys.
            for number in 0..1_000 {
                for key in 0..20 {
                    let _ = dam.take("ip", &format!("{number} {key}"), 1);
                }
                dam.clock.advance(SECOND_US / 200);
                passed += usize::from(dam.take("tenant", "acme", 1).is_allowed());
            }
            assert!(passed >= least, "{algorithm:?} beside {flooded}: {passed} of 1,000 passed");
        }
    }
}

/// A key without attributes has one bucket: it is charged exactly, whatever comes.
/// Debt outlives a flood of keys that owe no more than their limit.
#[test]
fn recorded_debt_is_evicted_after_everything_else() {
    for algorithm in Algorithm::ALL {
        let dam = Dam::new(8_192, &[("user", quota("100/h", algorithm)), ("ip", quota("100/h", algorithm))]);
        let debtor = Request::new().with("user", "debtor").unwrap();
        let recorded = block_on(dam.limiter.record(&debtor.clone().costing(500)));
        assert_eq!(recorded.tiers().next().unwrap().decision.debt, 400, "{algorithm:?}");
        dam.flood("ip", 60_000, 100);
        let debt = block_on(dam.limiter.peek(&debtor.costing(0))).tiers().next().unwrap().decision.debt;
        assert!((395..=400).contains(&debt), "{algorithm:?}: {debt} of 400 are left");
    }
}

#[test]
fn the_buckets_of_keys_without_attributes_are_never_evicted() {
    for algorithm in Algorithm::ALL {
        let dam = Dam::new(5_000, &[("ip", quota("5/d", algorithm)), ("global", quota("10000/d", algorithm))]);
        for left in [9_999, 9_998, 9_997] {
            assert_eq!(dam.take("global", "yes", 1).remaining, left, "{algorithm:?}");
            dam.flood("ip", 10_000, 5);
        }
        let request = Request::new().with("global", "yes").unwrap();
        assert_eq!(block_on(dam.limiter.refund(&request)).governing().unwrap().decision.remaining, 9_998);
        dam.flood("ip", 20_000, 5);
        assert_eq!(dam.take("global", "yes", 1).remaining, 9_997, "{algorithm:?}: after a refund");
        let _ = block_on(dam.limiter.reset(&request));
        dam.flood("ip", 30_000, 5);
        assert_eq!(dam.take("global", "yes", 1).remaining, 9_999, "{algorithm:?}: after a reset");
    }
}

/// Even if there are more of them than places, and some begin empty.
#[test]
fn more_pinned_buckets_than_places_are_all_exact() {
    const RULES: usize = 6_000;
    let quotas = ["1000/d", "7/s burst 100000", "1000/d burst 1000 initial 500"].map(|text| text.parse().unwrap());
    let rule = |number: usize| {
        let rule = Rule::new(number.to_string(), format!("global {number}").parse().unwrap(), vec![quotas[number % 3]]);
        rule.when("number", Condition::is(number.to_string()))
    };
    let clock = Arc::new(ManualClock::at(1_000 * HOUR_US));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 1 }, Arc::clone(&clock));
    let limiter = Limiter::new(RuleSet::new((0..RULES).map(rule).collect()).unwrap(), store);
    for round in 1..=3_u64 {
        for number in 0..RULES {
            let request = Request::new().with("number", number.to_string()).unwrap();
            let left = block_on(limiter.check(&request)).governing().unwrap().decision.remaining;
            assert_eq!(left, [1_000, 100_000, 500][number % 3] - round, "rule {number}");
        }
    }
    assert!(limiter.store().stats().evicted > 1_000);
}
