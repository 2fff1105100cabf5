//! Quotas: which are valid, and the errors of those that are not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use checkdam::time::Zone;
use checkdam::{Algorithm, Align, CalendarOptions, Quota, QuotaSpec, Weekday};

#[test]
fn text_is_understood() {
    let table = [
        ("10/s burst 50", 10, 1_000_000, 50, None),
        ("100/m", 100, 60_000_000, 100, None),
        ("5 per 30s", 5, 30_000_000, 5, None),
        ("20000/d", 20_000, 86_400_000_000, 20_000, None),
        ("  10 / s   burst   50  initial 5 ", 10, 1_000_000, 50, Some(5)),
        ("10/s initial 0 burst 50", 10, 1_000_000, 50, Some(0)),
        ("1_000_000 per hour", 1_000_000, 3_600_000_000, 1_000_000, None),
        ("1/y", 1, 31_536_000_000_000, 1, None),
        ("3/100ms", 3, 100_000, 3, None),
        ("2 per week", 2, 604_800_000_000, 2, None),
        ("7 per month", 7, 2_592_000_000_000, 7, None),
        ("10000000/s", 10_000_000, 1_000_000, 10_000_000, None),
        ("16000000/s", 16_000_000, 1_000_000, 16_000_000, None),
    ];
    for (text, amount, period_us, limit, initial) in table {
        let quota: Quota = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let QuotaSpec { amount: got, initial: got_initial, .. } = quota.spec();
        assert_eq!((got, quota.period_us(), quota.limit(), got_initial), (amount, period_us, limit, initial), "{text}");
    }
}

#[test]
fn ticks_make_the_interval_whole_where_that_is_possible() {
    for (text, ticks) in [("10/s", 1), ("3/s", 3), ("7/s", 7), ("10000000/s", 10), ("16000000/s", 16), ("9/s", 9)] {
        assert_eq!(text.parse::<Quota>().unwrap().ticks_per_us(), ticks, "{text}");
    }
}

/// (the limit, the algorithm of its rule, the algorithm that counts it)
const ALGORITHMS: [(&str, Algorithm, Algorithm); 8] = [
    ("10/s burst 50", Algorithm::TokenBucket, Algorithm::TokenBucket),
    ("10/s", Algorithm::LeakyBucket, Algorithm::LeakyBucket),
    ("10 per calendar month", Algorithm::TokenBucket, Algorithm::FixedWindow),
    ("10 per calendar day", Algorithm::SlidingLog, Algorithm::FixedWindow),
    ("100/m sliding_window", Algorithm::TokenBucket, Algorithm::SlidingWindow { strict: false }),
    ("100/m sliding_window strict", Algorithm::FixedWindow, Algorithm::SlidingWindow { strict: true }),
    ("10/s burst 50 token_bucket", Algorithm::FixedWindow, Algorithm::TokenBucket),
    ("10/s burst 5 initial 2 leaky_bucket", Algorithm::SlidingLog, Algorithm::LeakyBucket),
];

#[test]
fn a_limit_is_counted_by_its_own_algorithm_or_by_that_of_its_rule() {
    for (text, usual, expected) in ALGORITHMS {
        let quota = Quota::parse(text, usual).unwrap();
        assert_eq!((quota.algorithm(), quota.to_string().as_str()), (expected, text));
    }
    for (text, reason) in [
        ("10 per calendar day token_bucket", "a calendar period does not apply to token_bucket"),
        ("10/s burst 5 fixed_window", "burst does not apply to fixed_window"),
        ("10/s fixed_window sliding_log", "\"sliding_log\" is unexpected"),
        ("10/s fixed_window strict", "\"strict\" is unexpected"),
        ("10/s magic", "\"magic\" is unexpected"),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn windows_of_the_calendar_have_its_periods() {
    const DAY_US: u64 = 86_400_000_000;
    let quota = |align, period_us| {
        let spec = QuotaSpec { align, ..QuotaSpec::new(10, period_us) };
        Quota::new(spec, Algorithm::FixedWindow)
    };
    for (align, days) in [(Align::Day, 1), (Align::Week, 7), (Align::Month, 30), (Align::Year, 365)] {
        assert!(quota(align, days * DAY_US).is_ok(), "{align:?}");
        for period_us in [60_000_000, days * DAY_US - 1, (days + 1) * DAY_US] {
            let error = quota(align, period_us).unwrap_err().to_string();
            assert!(error.contains("windows of a calendar") && error.contains("per calendar"), "{align:?}: {error}");
        }
    }
    assert!(quota(Align::Epoch, 60_000_000).is_ok());
}

#[test]
fn calendar_limits_have_a_zone_a_billing_day_and_a_first_day_of_the_week() {
    let berlin = Zone::by_name("Europe/Berlin");
    let table = [
        ("10 per calendar month", CalendarOptions::default()),
        (
            "10 per calendar month zone Europe/Berlin anchor 15",
            CalendarOptions { zone: berlin, anchor: Some(15), week_starts: None },
        ),
        (
            "10 per calendar week zone Europe/Berlin week_starts sunday fixed_window",
            CalendarOptions { zone: berlin, anchor: None, week_starts: Some(Weekday::Sunday) },
        ),
        ("10 per calendar day zone UTC", CalendarOptions { zone: Some(Zone::UTC), ..CalendarOptions::default() }),
    ];
    for (text, expected) in table {
        let quota = Quota::parse(text, Algorithm::TokenBucket).unwrap();
        assert_eq!((quota.calendar(), quota.to_string().as_str()), (expected, text));
    }
    let other_order = "10 per calendar month fixed_window anchor 15  zone Europe/Berlin".parse::<QuotaSpec>().unwrap();
    assert_eq!(other_order.to_string(), "10 per calendar month zone Europe/Berlin anchor 15 fixed_window");
}

#[test]
fn limits_of_another_calendar_have_another_bucket() {
    let quota = |text: &str| Quota::parse(text, Algorithm::FixedWindow).unwrap();
    let texts = [
        "10 per calendar month",
        "10 per calendar month zone Europe/Berlin",
        "10 per calendar month zone Europe/Paris",
        "10 per calendar month anchor 15",
        "10 per calendar month zone Europe/Berlin anchor 15",
        "10 per calendar week",
        "10 per calendar week week_starts sunday",
        "10 per calendar day",
        "10 per calendar day zone Etc/UTC",
    ];
    for one in texts {
        for other in texts {
            let (first, second) = (quota(one), quota(other));
            assert_eq!(first.shares_bucket_with(&second), one == other, "{one}, {other}");
            assert_eq!(first.arithmetic() == second.arithmetic(), one == other, "{one}, {other}");
        }
        assert!(!quota(one).arithmetic().contains('/'), "{one}");
    }
    for (one, other) in [
        ("10 per calendar month", "20 per calendar month zone UTC anchor 1"),
        ("10 per calendar week", "10 per calendar week week_starts monday"),
    ] {
        assert!(quota(one).shares_bucket_with(&quota(other)), "{one}, {other}");
    }
}

#[test]
fn refusals_name_the_value_and_what_fits() {
    let table = [
        ("", "expected a number for the limit"),
        ("fast", "expected a number for the limit"),
        ("10", "expected '/' or 'per'"),
        ("10/", "\"\" is not a unit"),
        ("10/fortnight", "\"fortnight\" is not a unit: use ms, s, m, h, d, w, month or y"),
        ("1.5/s", "the limit must be a whole number"),
        ("-1/s", "expected a number for the limit"),
        ("10/s burst", "expected a number for burst"),
        ("10/s burst 5 burst 6", "\"6\" is unexpected"),
        ("10/s bust 5", "\"bust 5\" is unexpected"),
        ("0/s", "limit is 0"),
        ("10/s burst 0", "burst is 0"),
        ("10/0s", "period is 0"),
        ("99999999999999999999/s", "the limit 99999999999999999999 is too large"),
        ("10/s burst 2000000000000", "burst 2000000000000 is too large: at most 1000000000000 fits"),
        ("1/20y", "the period 20y is too long"),
        ("10/99999999999999y", "is too long"),
        ("10/s burst 5 initial 6", "initial 6 exceeds the burst 5"),
        ("999983/s", "999983/s cannot be counted within 0.1 %"),
        ("17000000/s", "16000000/s would fit"),
        ("10500000/s", "would fit"),
        ("1/y burst 1000", "a burst of 134 would fit"),
        ("10 per calendar decade", "calendar \"decade\" is not a period"),
        (
            "10 per calendar month leaky_bucket",
            "a calendar period does not apply to leaky_bucket: name fixed_window, or no algorithm",
        ),
        (
            "10 per calendar day zone europe/berlin",
            "zone \"europe/berlin\" is not a name of the IANA time zone database: write Europe/Berlin",
        ),
        ("10 per calendar day zone Atlantis", "write for example Europe/Berlin, America/New_York or UTC"),
        ("10 per calendar day zone", "zone \"\" is not a name"),
        ("10 per calendar month anchor 0", "anchor 0 is not a day of a month: use 1 to 31"),
        ("10 per calendar month anchor 32", "anchor 32 is not a day of a month"),
        ("10 per calendar month anchor 999", "anchor 999 is not a day of a month"),
        ("10 per calendar month anchor", "expected a number for anchor"),
        ("10 per calendar month anchor 1 anchor 2", "\"2\" is unexpected; only 'zone NAME', 'anchor DAY'"),
        (
            "10 per calendar year anchor 15",
            "anchor 15 does not apply to a calendar year: write \"10 per calendar month anchor 15\", or leave anchor out",
        ),
        ("10 per calendar week anchor 15", "anchor 15 does not apply to a calendar week"),
        ("10 per calendar day anchor 15", "anchor 15 does not apply to a calendar day"),
        (
            "10 per calendar month week_starts sunday",
            "week_starts sunday does not apply to a calendar month: write \"10 per calendar week week_starts sunday\"",
        ),
        ("10 per calendar week week_starts someday", "week_starts \"someday\" is not a day of the week: write monday"),
        (
            "10/s zone Europe/Berlin",
            "zone Europe/Berlin does not apply to a limit without a calendar period: write \"10 per calendar month zone",
        ),
        ("10/m anchor 3", "anchor 3 does not apply to a limit without a calendar period"),
    ];
    for (text, expected) in table {
        let error = text.parse::<Quota>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = "9".repeat(10_000);
    let error = long.parse::<Quota>().unwrap_err().to_string();
    assert!(error.len() < 500, "a long text must not be repeated whole");
}

#[test]
fn what_an_algorithm_cannot_use_is_refused() {
    let table = [
        (
            "10/s burst 5",
            Algorithm::FixedWindow,
            "burst does not apply to fixed_window: leave it out, or use token_bucket or leaky_bucket",
        ),
        ("10/s initial 5", Algorithm::SlidingLog, "initial does not apply to sliding_log"),
        ("10001/s", Algorithm::SlidingLog, "at most 10000 fits; use sliding_window"),
    ];
    for (text, algorithm, expected) in table {
        let error = Quota::new(text.parse().unwrap(), algorithm).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Whatever a refusal proposes must be accepted.
#[test]
fn what_a_refusal_proposes_fits() {
    for amount in [999_983_u64, 10_500_000, 15_999_999, 17_000_000, 3_333_333, 900_000_000_000] {
        let error = format!("{amount}/s").parse::<Quota>().unwrap_err().to_string();
        let (_, proposals) = error.split_once(": ").unwrap_or_else(|| panic!("{error}"));
        let mut found = 0;
        for word in proposals.split_whitespace().filter(|word| word.ends_with("/s")) {
            word.parse::<Quota>().unwrap_or_else(|again| panic!("{amount}: {word}: {again}"));
            found += 1;
        }
        assert!(found > 0, "{amount}: {error}");
    }
}
