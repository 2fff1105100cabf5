//! Converts limits to and from the classic columns: a rate per second and a burst.

use checkdam::{Quota, QuotaSpec};

/// The period of a rate that is no whole number a second is at most a year.
const SECONDS_MAX: f64 = 31_536_000.0;
/// The tolerated error of a rate written as a fraction: a float loses more when it is
/// converted to text and back.
const LOSS_MAX: f64 = 1e-12;
/// The largest whole number that a float holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
const SECOND_US: u64 = 1_000_000;

/// A quota's rate per second, and what can pass at once if it is a bucket.
pub(super) fn rate_and_burst(quota: &Quota) -> (f64, Option<u64>) {
    let spec = quota.spec();
    let rate = spec.amount as f64 * SECOND_US as f64 / spec.period_us as f64;
    (rate, is_bucket(quota).then(|| quota.limit()))
}

/// The limit in the classic columns: an amount in the fewest whole seconds, as 0.5 is
/// 1 in 2 seconds.
pub(super) fn quota_of(rate: f64, burst: Option<i64>, has_burst: bool) -> Result<QuotaSpec, String> {
    if !rate.is_finite() || rate <= 0.0 {
        return Err(format!("rate_per_second is {rate}: it must be more than 0"));
    }
    let Some((amount, seconds)) = fraction(rate) else {
        return Err(format!("rate_per_second is {rate}: use limits for so odd a rate, such as [\"1/d\"]"));
    };
    let burst = match burst {
        Some(burst) if burst < 1 => return Err(format!("burst_capacity is {burst}: it must be at least 1")),
        Some(burst) => Some(burst.unsigned_abs()),
        // Omitted, it is the amount of one second, as everywhere.
        None if seconds == 1 => None,
        None => Some(rate.ceil() as u64),
    };
    let spec = QuotaSpec {
        amount,
        period_us: seconds * SECOND_US,
        burst: burst.filter(|_| has_burst),
        initial: None,
        align: checkdam::Align::Epoch,
    };
    Ok(spec)
}

/// Whether two rates are equal, within the error of conversion.
pub(super) fn is_same_rate(one: f64, other: f64) -> bool {
    (one - other).abs() <= one.abs() * 1e-9
}

fn is_bucket(quota: &Quota) -> bool {
    matches!(quota.algorithm(), checkdam::Algorithm::TokenBucket | checkdam::Algorithm::LeakyBucket)
}

/// The simplest fraction that is the rate, by its continued fraction.
fn fraction(rate: f64) -> Option<(u64, u64)> {
    let (mut above_before, mut below_before) = (1.0, 0.0);
    let (mut above, mut below) = (rate.floor(), 1.0);
    let mut rest = rate;
    while (above / below - rate).abs() > rate * LOSS_MAX {
        rest = 1.0 / (rest - rest.floor());
        let whole = rest.floor();
        (above, above_before) = (whole * above + above_before, above);
        (below, below_before) = (whole * below + below_before, below);
        if !rest.is_finite() || below > SECONDS_MAX || above > WHOLE_MAX {
            return None;
        }
    }
    (1.0..=WHOLE_MAX).contains(&above).then_some((above as u64, below as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_the_simplest_limits() {
        let table = [
            (10.0, Some(50), "10/s burst 50"),
            (10.0, None, "10/s"),
            (0.5, Some(5), "1/2s burst 5"),
            (0.5, None, "1/2s burst 1"),
            (2.5, None, "5/2s burst 3"),
            (1.0 / 60.0, Some(1), "1/m burst 1"),
            // As a float reads that was written with fifteen digits.
            (0.0166666666666667, Some(1), "1/m burst 1"),
            (5_000.0 / 3_600.0, Some(5_000), "25/18s burst 5000"),
            (0.1, Some(1), "1/10s burst 1"),
            (1.0 / 31_536_000.0, Some(1), "1/y burst 1"),
            (10_000_000.0, Some(10_000_000), "10000000/s burst 10000000"),
        ];
        for (rate, burst, expected) in table {
            assert_eq!(quota_of(rate, burst, true).unwrap().to_string(), expected, "{rate}");
        }
        assert_eq!(quota_of(10.0, Some(50), false).unwrap().to_string(), "10/s");
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12, 1e300] {
            assert!(quota_of(rate, None, true).is_err(), "{rate}");
        }
        for burst in [0, -1] {
            assert!(quota_of(1.0, Some(burst), true).is_err(), "{burst}");
        }
    }
}
