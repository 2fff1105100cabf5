//! Properties that hold for every quota that `Quota` accepts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use checkdam::conformance::TestBucket;
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Tier};
use checkdam::time::{HORIZON_US, ManualClock, Zone};
use checkdam::{Algorithm, Align, CalendarOptions, Decision, Quota, QuotaSpec, Verdict, Weekday};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

type Store = MemoryStore<Arc<ManualClock>>;

fn store() -> Store {
    MemoryStore::with_clock(MemoryOptions { max_buckets: 4_096 }, Arc::new(ManualClock::default()))
}

fn apply(store: &Store, operation: Operation, now_us: u64, tier: Tier<'_>) -> Decision {
    store.clock().set(now_us);
    store.apply_now(operation, &[tier]).decisions[0]
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(Algorithm::ALL.to_vec())
}

/// Numbers of every size, small ones most often.
fn any_size(most: u64) -> impl Strategy<Value = u64> {
    (0..=most.ilog2()).prop_flat_map(move |bits| 1..=(1_u64 << bits).min(most))
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let day = 86_400_000_000;
    let period = prop_oneof![
        any_size(400 * day),
        prop::sample::select(vec![1_000, 1_000_000, 30_000_000, 60_000_000, 3_600_000_000, day, 30 * day, 365 * day])
    ];
    let align = prop::sample::select(vec![Align::Epoch, Align::Day, Align::Week, Align::Month, Align::Year]);
    let align = (align, any_calendar());
    (any_algorithm(), any_size(1_000_000_000_000), period, prop::option::of(any_size(1_000_000_000)), 0..=4_u64, align)
        .prop_filter_map("the quota is refused", |(algorithm, amount, period_us, burst, initial, (align, calendar))| {
            let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
            let amount = if algorithm == Algorithm::SlidingLog { amount % 10_000 + 1 } else { amount };
            let limit = burst.unwrap_or(amount);
            let align = if algorithm == Algorithm::FixedWindow { align } else { Align::Epoch };
            let calendar = CalendarOptions {
                zone: calendar.zone.filter(|_| align != Align::Epoch),
                anchor: calendar.anchor.filter(|_| align == Align::Month),
                week_starts: calendar.week_starts.filter(|_| align == Align::Week),
            };
            let spec = QuotaSpec {
                amount,
                calendar,
                period_us: match align {
                    Align::Epoch => period_us,
                    Align::Day => 86_400_000_000,
                    Align::Week => 7 * 86_400_000_000,
                    Align::Month => 30 * 86_400_000_000,
                    Align::Year => 365 * 86_400_000_000,
                },
                burst: burst.filter(|_| is_bucket),
                initial: (is_bucket && initial < 4).then_some(limit / 4 * initial),
                align,
                algorithm: None,
            };
            Quota::new(spec, algorithm).ok()
        })
}

/// Zones whose days begin at odd times, and every first day.
fn any_calendar() -> impl Strategy<Value = CalendarOptions> {
    let zones = ["Europe/Berlin", "Africa/Cairo", "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe"];
    let zone = prop::sample::select(zones.to_vec()).prop_map(|name| Zone::by_name(name).unwrap());
    let week_starts = prop::sample::select(Weekday::ALL.to_vec());
    (prop::option::of(zone), prop::option::of(1..=31_u8), prop::option::of(week_starts))
        .prop_map(|(zone, anchor, week_starts)| CalendarOptions { zone, anchor, week_starts })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        12 => Just(Operation::Take),
        2 => Just(Operation::Peek),
        2 => Just(Operation::Refund),
        1 => Just(Operation::Reset),
    ]
}

/// How far the clock moves, relative to the quota: mostly a little.
fn any_move() -> impl Strategy<Value = (i64, u64)> {
    (prop_oneof![8 => Just(1_i64), 1 => Just(-1), 1 => Just(0)], 0..=64_u64)
}

fn moved(now_us: u64, quota: &Quota, (direction, share): (i64, u64)) -> u64 {
    let by = (u128::from(quota.window_us()) * u128::from(share) / 48) as i64;
    now_us.saturating_add_signed(direction * by).min(HORIZON_US)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/it/properties.proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    /// The heart of it: `retry_after` is exact on both sides.
    #[test]
    fn a_denied_take_passes_at_retry_after_and_not_a_microsecond_earlier(
        quota in any_quota(),
        start in 0..HORIZON_US / 2,
        steps in prop::collection::vec((any_operation(), any_move(), 1..=8_u64), 1..40),
        cost_share in 1..=8_u64,
    ) {
        let store = store();
        let bucket = TestBucket::new("retry", "one");
        let cost = |share: u64| (quota.limit() / 8 * share).max(1).min(quota.limit());
        let mut now_us = start;
        for (operation, by, share) in steps {
            now_us = moved(now_us, &quota, by);
            let _ = apply(&store, operation, now_us, bucket.tier(&quota, cost(share)));
        }
        let asked = bucket.tier(&quota, cost(cost_share));
        let denied = apply(&store, Operation::Take, now_us, asked);
        if denied.verdict == Verdict::Denied {
            prop_assert!(denied.retry_after_us > 0);
            let retry_at = now_us + denied.retry_after_us;
            prop_assume!(retry_at <= HORIZON_US);
            let early = apply(&store, Operation::Peek, retry_at - 1, asked);
            prop_assert_eq!(early.verdict, Verdict::Denied, "passed a microsecond early");
            let in_time = apply(&store, Operation::Take, retry_at, asked);
            prop_assert_eq!(in_time.verdict, Verdict::Allowed, "{:?} then {:?}", denied, in_time);
        } else {
            prop_assert_eq!(denied.verdict, Verdict::Allowed);
        }
    }

    /// Overflow checks are on in tests: any overflow is a panic.
    #[test]
    fn no_arithmetic_panics_whatever_is_asked(
        quotas in prop::collection::vec(any_quota(), 1..4),
        steps in prop::collection::vec(
            (any_operation(), prop_oneof![any_size(HORIZON_US), Just(0), Just(u64::MAX / 32)], any::<u64>(), any::<prop::sample::Index>()),
            1..40,
        ),
    ) {
        let store = store();
        let bucket = TestBucket::new("panics", "one");
        for (operation, now_us, cost, which) in steps {
            let quota = &quotas[which.index(quotas.len())];
            let decision = apply(&store, operation, now_us, bucket.tier(quota, cost));
            prop_assert!(decision.remaining <= decision.limit);
            if cost > decision.limit && matches!(operation, Operation::Take | Operation::Peek) {
                prop_assert_eq!(decision.verdict, Verdict::CostExceedsBurst);
            }
        }
    }

    #[test]
    fn tiers_are_charged_all_or_nothing(
        quotas in prop::collection::vec(any_quota(), 1..12),
        costs in prop::collection::vec(1..=6_u64, 1..30),
        now_us in 0..HORIZON_US,
    ) {
        let store = store();
        let buckets: Vec<TestBucket> = (0..quotas.len()).map(|n| TestBucket::new("tiers", &n.to_string())).collect();
        store.clock().set(now_us);
        for cost in costs {
            let tiers: Vec<Tier<'_>> = buckets.iter().zip(&quotas).map(|(bucket, quota)| bucket.tier(quota, cost)).collect();
            let before = store.apply_now(Operation::Peek, &tiers).decisions;
            let taken = store.apply_now(Operation::Take, &tiers).decisions;
            let after = store.apply_now(Operation::Peek, &tiers).decisions;
            let passes = before.iter().all(Decision::is_allowed);
            prop_assert_eq!(passes, taken.iter().all(Decision::is_allowed));
            for ((before, after), taken) in before.iter().zip(&after).zip(&taken) {
                let charged = if passes { cost } else { 0 };
                prop_assert_eq!(before.remaining - charged, after.remaining);
                prop_assert_eq!(taken.remaining, after.remaining);
            }
        }
    }

    #[test]
    fn text_and_quota_say_the_same(quota in any_quota()) {
        let text = quota.spec().to_string();
        let again = Quota::new(text.parse::<QuotaSpec>().unwrap(), quota.algorithm()).unwrap();
        prop_assert_eq!(again, quota, "{}", text);
    }

    #[test]
    fn any_text_is_a_quota_or_a_refusal_that_repeats_it(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<Quota>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
