//! Lease terms: for how long, and from which demand on, the tokens of a quota are
//! prepaid.

use super::token_cell::TOKENS_MAX;
use crate::quota::{Algorithm, Quota};
use crate::rule::Lease;

/// How long `auto` holds tokens.
const AUTO_US: u64 = 100_000;
/// The longest lease: what a node that vanishes takes with it stays small.
const LONGEST_US: u64 = 60_000_000;
/// Below this a lease does not outlive the call that fetches it.
const SHORTEST_US: u64 = 2_000;
/// However long its leases are, a node requests again after this.
const PAUSE_US_MAX: u64 = 250_000;
/// What a node ends its leases early by, so that clocks may run apart by a
/// sixty-fourth.
const DRIFT_SHARE: u64 = 64;

/// On which terms the tokens of one quota may be prepaid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// How long tokens may be held: T.
    pub length_us: u64,
    /// How many tokens must be requested here within T for a lease to be worth its call.
    pub demand_min: u64,
}

impl LeaseTerms {
    /// None if the quota cannot be leased: only token buckets can, and only if
    /// they hold so much that a lease leaves at least half of the burst.
    #[must_use]
    pub fn of(lease: Lease, quota: &Quota) -> Option<Self> {
        let (asked_us, demand_min) = match lease {
            Lease::Off => return None,
            Lease::For(length_us) => (length_us, 2),
            Lease::Auto => (AUTO_US, 16),
        };
        if quota.algorithm() != Algorithm::TokenBucket {
            return None;
        }
        let fills_in_us = quota.window_us();
        let fits_us = if asked_us.saturating_mul(2) < fills_in_us { asked_us } else { fills_in_us / 4 };
        let length_us = fits_us.min(LONGEST_US);
        (length_us >= SHORTEST_US).then_some(Self { length_us, demand_min })
    }

    /// The warning for a lease that cannot work as it is configured: the problem, and
    /// what to write instead.
    #[must_use]
    pub fn warning(lease: Lease, quota: &Quota) -> Option<String> {
        let asked_us = match lease {
            Lease::Off => return None,
            Lease::For(length_us) => length_us,
            Lease::Auto => AUTO_US,
        };
        let name = quota.algorithm().name();
        if quota.algorithm() != Algorithm::TokenBucket {
            return Some(format!("lease has no effect on {quota} by {name}: only token_bucket can be leased"));
        }
        let burst_for = |length_us: u64| {
            let tokens = u128::from(quota.spec().amount) * (2 * u128::from(length_us) + 1);
            tokens.div_ceil(u128::from(quota.period_us())).max(2)
        };
        let (asked_ms, fills_in_ms) = (asked_us as f64 / 1e3, quota.window_us() as f64 / 1e3);
        match Self::of(lease, quota) {
            None if asked_us < SHORTEST_US => Some(format!(
                "lease {asked_ms}ms has no effect on {quota}: it must be at least {}ms",
                SHORTEST_US / 1_000
            )),
            None => Some(format!(
                "lease has no effect on {quota}: its burst fills in {fills_in_ms}ms, which is too short to prepay for; \
                 a burst of {} could be leased for {asked_ms}ms",
                burst_for(asked_us)
            )),
            Some(terms) if terms.length_us < asked_us && lease != Lease::Auto => Some(format!(
                "lease {asked_ms}ms of {quota} is shortened to {}ms: {}",
                terms.length_us as f64 / 1e3,
                if asked_us > LONGEST_US {
                    "no lease is longer than a minute".to_owned()
                } else {
                    format!(
                        "it must be less than half of the {fills_in_ms}ms in which the burst fills; a burst of {} allows it",
                        burst_for(asked_us)
                    )
                }
            )),
            Some(_) => None,
        }
    }

    /// How long granted tokens may be spent, from before the call.
    #[must_use]
    pub const fn life_us(&self) -> u64 {
        self.length_us - self.length_us / DRIFT_SHARE
    }

    /// Whether one grant can contain this many tokens.
    #[must_use]
    #[inline]
    pub fn can_grant(&self, quota: &Quota, tokens: u64) -> bool {
        let room = quota.capacity.saturating_sub(self.length_us * quota.ticks_per_us);
        tokens <= TOKENS_MAX && tokens.saturating_mul(quota.interval) <= room
    }

    /// The most tokens that one grant can hold.
    #[must_use]
    pub fn grant_max(&self, quota: &Quota) -> u64 {
        let room = quota.capacity.saturating_sub(self.length_us * quota.ticks_per_us);
        room.checked_div(quota.interval).unwrap_or(0).min(TOKENS_MAX)
    }

    /// How long an account waits after a smaller grant than requested: short enough to
    /// lose nothing, long enough for the next grant to be worth its call.
    pub(super) const fn pause_us(&self) -> u64 {
        let quarter_us = self.length_us / 4;
        if quarter_us < PAUSE_US_MAX { quarter_us } else { PAUSE_US_MAX }
    }
}
