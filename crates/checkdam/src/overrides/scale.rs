//! Scale factor of an override: a decimal number in thousandths, never a float.

use std::fmt;
use std::str::FromStr;

use crate::quota::{Align, Quota, QuotaError, QuotaSpec};

/// What a scale is counted in.
const UNIT: u64 = 1_000;
const THOUSANDTHS_MAX: u64 = 1_000_000 * UNIT;

/// A positive number with up to three decimals, from 0.001 to 1,000,000.
///
/// ```
/// use checkdam::Scale;
/// let tenfold: Scale = "10".parse()?;
/// assert_eq!(tenfold, Scale::from_thousandths(10_000).unwrap());
/// assert_eq!("0.50".parse::<Scale>()?.to_string(), "0.5");
/// # Ok::<(), checkdam::ScaleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scale {
    thousandths: u64,
}

/// Why text is no scale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scale {text:?} is not a number from 0.001 to 1000000 with at most three decimals: write 10 or 0.5")]
pub struct ScaleError {
    /// The text as given.
    pub text: String,
}

impl Scale {
    /// A scale of so many thousandths; `None` if that is 0 or beyond a million.
    #[must_use]
    pub const fn from_thousandths(thousandths: u64) -> Option<Self> {
        if thousandths == 0 || thousandths > THOUSANDTHS_MAX { None } else { Some(Self { thousandths }) }
    }

    /// The scale in thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u64 {
        self.thousandths
    }

    /// `quota`, scaled. Fractions are rounded down, to no less than 1; a bucket's rate is
    /// kept exact where it can be counted.
    pub(crate) fn of(self, quota: &Quota) -> Result<Quota, QuotaError> {
        let (spec, algorithm) = (quota.spec(), quota.algorithm());
        let part = |amount: u64| {
            let scaled = u128::from(amount) * u128::from(self.thousandths) / u128::from(UNIT);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let scaled = QuotaSpec {
            amount: part(spec.amount).max(1),
            burst: spec.burst.map(|burst| part(burst).max(1)),
            initial: spec.initial.map(part),
            ..spec
        };
        let is_whole = u128::from(spec.amount) * u128::from(self.thousandths) % u128::from(UNIT) == 0;
        if !is_whole && algorithm.is_bucket() && spec.align == Align::Epoch {
            // Half of 1/s is 1/2s.
            let shared = gcd(self.thousandths, UNIT);
            let exact = QuotaSpec {
                amount: spec.amount.saturating_mul(self.thousandths / shared),
                period_us: spec.period_us.saturating_mul(UNIT / shared),
                burst: Some(part(quota.limit()).max(1)),
                ..scaled
            };
            if let Ok(quota) = Quota::new(exact, algorithm) {
                return Ok(quota);
            }
        }
        Quota::with_calendar(scaled, algorithm, quota.calendar())
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl FromStr for Scale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let refused = || ScaleError { text: text.chars().take(80).collect() };
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || whole.len() > 8 || !is_number(decimals) {
            return Err(refused());
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return Err(refused());
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| refused());
        let thousandths = number(whole)? * UNIT + number(&format!("{decimals:0<3}"))?;
        Self::from_thousandths(thousandths).ok_or_else(refused)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.thousandths / UNIT, self.thousandths % UNIT);
        if thousandths == 0 {
            return write!(out, "{whole}");
        }
        let decimals = format!("{thousandths:03}");
        write!(out, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// A scale as it is written: a number.
#[cfg(feature = "yaml")]
impl From<&Scale> for serde_json::Value {
    fn from(scale: &Scale) -> Self {
        match scale.thousandths % UNIT {
            0 => (scale.thousandths / UNIT).into(),
            // Twelve digits: a double says them exactly as they are written.
            _ => (scale.thousandths as f64 / UNIT as f64).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_decimals() {
        for (text, thousandths) in [
            ("10", 10_000),
            ("0.5", 500),
            ("1.25", 1_250),
            ("0.001", 1),
            ("1000000", THOUSANDTHS_MAX),
            ("2.0", 2_000),
            ("3.1400", 3_140),
        ] {
            let scale: Scale = text.parse().unwrap();
            assert_eq!(scale.thousandths(), thousandths, "{text}");
            assert_eq!(scale.to_string().parse::<Scale>().unwrap(), scale);
        }
        for text in
            ["", "0", "0.0", "-1", "+1", "1e3", ".5", "0.0001", "1000001", "1.", "x", "1.2.3", "99999999999999999999"]
        {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_scaled_quota_is_exact_where_it_can_be() {
        let table = [
            ("10/s burst 50", "10", "100/s burst 500"),
            ("10/s", "0.5", "5/s"),
            ("1/s", "0.5", "1/2s burst 1"),
            ("10/s burst 50 initial 5", "0.25", "10/4s burst 12 initial 1"),
            ("5000/h", "1.5", "7500/h"),
            ("1/s", "0.001", "1/1000s burst 1"),
        ];
        for (quota, scale, expected) in table {
            let (quota, scale): (Quota, Scale) = (quota.parse().unwrap(), scale.parse().unwrap());
            let scaled = scale.of(&quota).unwrap();
            let expected: Quota = expected.parse().unwrap();
            assert_eq!((scaled.limit(), scaled.window_us()), (expected.limit(), expected.window_us()), "{scaled}");
            assert_eq!(scaled.to_string(), expected.to_string());
        }
    }
}
