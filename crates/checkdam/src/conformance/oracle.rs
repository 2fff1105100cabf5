//! The oracle: replays every admission of a store into an ideal bucket, which must
//! never go negative. O(n), and exact for all windows.

use std::collections::VecDeque;

use crate::quota::{Algorithm, Quota};
use crate::time::EPOCH_UNIX_US;

/// One take of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Take {
    /// The store's time of the decision.
    pub at_us: u64,
    /// The cost.
    pub cost: u64,
    /// Whether it was admitted.
    pub admitted: bool,
}

/// What the oracle found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OracleReport {
    /// The cost that was admitted.
    pub admitted: u128,
    /// The cost that an ideal bucket admits of the same takes.
    pub ideal: u128,
}

/// Replays what was admitted of one bucket, in the order of the store's times.
///
/// # Errors
/// Names the first admission that an ideal bucket could not have made.
pub fn verify(quota: &Quota, takes: &mut [Take]) -> Result<OracleReport, String> {
    takes.sort_by_key(|take| take.at_us);
    let mut report = OracleReport::default();
    let mut real = IdealBucket::new(quota);
    let mut greedy = IdealBucket::new(quota);
    for (number, take) in takes.iter().enumerate() {
        if take.admitted {
            report.admitted += u128::from(take.cost);
            if !real.admit(take.at_us, take.cost) {
                return Err(format!(
                    "{quota} ({}): admission {number} was one too many: {take:?}",
                    quota.algorithm().name()
                ));
            }
        }
        if greedy.admit(take.at_us, take.cost) {
            report.ideal += u128::from(take.cost);
        }
    }
    Ok(report)
}

/// An ideal bucket, written as plainly as can be and unlike the real ones.
enum IdealBucket {
    /// Tokens times the period, so that they are whole: `amount` of them
    /// return every microsecond.
    Bucket { level: u128, full: u128, amount: u128, period: u128, at_us: u64 },
    /// Everything admitted in the last two periods.
    Windows { quota: Quota, admitted: VecDeque<(u64, u64)> },
}

impl IdealBucket {
    fn new(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let period = u128::from(quota.period_us());
                let initial = quota.spec().initial.unwrap_or(quota.limit());
                Self::Bucket {
                    level: u128::from(initial) * period,
                    full: u128::from(quota.limit()) * period,
                    amount: u128::from(quota.spec().amount),
                    period,
                    at_us: 0,
                }
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => {
                Self::Windows { quota: *quota, admitted: VecDeque::new() }
            }
        }
    }

    fn admit(&mut self, now_us: u64, cost: u64) -> bool {
        match self {
            Self::Bucket { level, full, amount, period, at_us } => {
                *level = (*level + u128::from(now_us - *at_us) * *amount).min(*full);
                *at_us = now_us;
                let charge = u128::from(cost) * *period;
                if *level < charge {
                    return false;
                }
                *level -= charge;
                true
            }
            Self::Windows { quota, admitted } => {
                let period_us = quota.period_us();
                while admitted.front().is_some_and(|(at_us, _)| at_us + 2 * period_us <= now_us) {
                    admitted.pop_front();
                }
                if !windows_allow(quota, admitted, now_us, cost) {
                    return false;
                }
                admitted.push_back((now_us, cost));
                true
            }
        }
    }
}

fn windows_allow(quota: &Quota, admitted: &VecDeque<(u64, u64)>, now_us: u64, cost: u64) -> bool {
    let period_us = quota.period_us();
    let sum = |from: &dyn Fn(u64) -> bool| -> u128 {
        admitted.iter().filter(|(at_us, _)| from(*at_us)).map(|(_, cost)| u128::from(*cost)).sum()
    };
    let (cost, limit) = (u128::from(cost), u128::from(quota.limit()));
    let window = |at_us: u64| (at_us + EPOCH_UNIX_US) / period_us;
    match quota.algorithm() {
        Algorithm::FixedWindow => sum(&|at_us| window(at_us) == window(now_us)) + cost <= limit,
        Algorithm::SlidingWindow { strict: false } => {
            let current = sum(&|at_us| window(at_us) == window(now_us));
            let previous = sum(&|at_us| window(at_us) + 1 == window(now_us));
            let left_us = period_us - (now_us + EPOCH_UNIX_US) % period_us;
            let (period_us, left_us) = (u128::from(period_us), u128::from(left_us));
            (current + cost) * period_us + previous * left_us <= limit * period_us
        }
        // The strict window is never more permissive than the log.
        Algorithm::SlidingWindow { strict: true }
        | Algorithm::SlidingLog
        | Algorithm::TokenBucket
        | Algorithm::LeakyBucket => sum(&|at_us| at_us + period_us > now_us) + cost <= limit,
    }
}
