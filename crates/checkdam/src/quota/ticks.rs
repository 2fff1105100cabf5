//! The unit of time in which a token bucket counts, so that its arithmetic is exact.

use super::{EXACT_MAX, HORIZON_US, LIMIT_MAX, LOSS_SHARE, QuotaError, TICKS_MAX, period_text};

/// The unit in which a bucket counts: chosen so that one token takes a whole
/// number of ticks, if any of 1…16 ticks a microsecond makes that possible.
pub(super) struct Ticks {
    pub(super) per_us: u64,
    pub(super) interval: u64,
}

impl Ticks {
    pub(super) fn choose(amount: u64, period_us: u64, burst: u64) -> Result<Self, QuotaError> {
        let mut best: Option<(Self, u128, u128)> = None;
        let mut any_fits = false;
        for per_us in 1..=TICKS_MAX {
            let whole = period_us * per_us;
            let interval = whole.div_ceil(amount);
            if !Self::fits(per_us, interval, burst) {
                continue;
            }
            any_fits = true;
            // The charged time over the true time is spent / whole, at least 1.
            let (spent, whole) = (u128::from(interval) * u128::from(amount), u128::from(whole));
            if best.as_ref().is_none_or(|(_, best_spent, best_whole)| spent * best_whole < best_spent * whole) {
                best = Some((Self { per_us, interval }, spent, whole));
            }
        }
        match best {
            Some((ticks, spent, whole)) if (spent - whole) * LOSS_SHARE <= whole => Ok(ticks),
            _ if any_fits => {
                let (below, above) = Self::nearest(amount, period_us, burst);
                Err(QuotaError::TooFine { amount, period: period_text(period_us), below, above })
            }
            _ => Err(QuotaError::SpanTooLong {
                burst,
                amount,
                period: period_text(period_us),
                fits: Self::longest_burst(amount, period_us),
            }),
        }
    }

    /// Whether every intermediate of a decision stays below 2^53 until 2043.
    fn fits(per_us: u64, interval: u64, burst: u64) -> bool {
        let most = u128::from(per_us * HORIZON_US) + 2 * u128::from(burst) * u128::from(interval);
        most < u128::from(EXACT_MAX)
    }

    fn is_exact_enough(amount: u64, period_us: u64, burst: u64) -> bool {
        (1..=TICKS_MAX).any(|per_us| {
            let whole = period_us * per_us;
            let interval = whole.div_ceil(amount);
            let (spent, whole) = (u128::from(interval) * u128::from(amount), u128::from(whole));
            Self::fits(per_us, interval, burst) && (spent - whole) * LOSS_SHARE <= whole
        })
    }

    /// The nearest amounts below and above that can be counted, for the message.
    fn nearest(amount: u64, period_us: u64, burst: u64) -> (Option<u64>, Option<u64>) {
        let fits = |near: &u64| (1..=LIMIT_MAX).contains(near) && Self::is_exact_enough(*near, period_us, burst);
        let ticks = || (1..=TICKS_MAX).map(|per_us| period_us * per_us);
        let below = ticks().map(|whole| whole / whole.div_ceil(amount)).filter(fits).max();
        let above = ticks().filter_map(|whole| whole.checked_div(whole / amount)).filter(fits).min();
        (below, above)
    }

    fn longest_burst(amount: u64, period_us: u64) -> u64 {
        let room = u128::from(EXACT_MAX - HORIZON_US) / 2;
        (room / u128::from(period_us.div_ceil(amount))).min(u128::from(LIMIT_MAX)) as u64
    }
}
