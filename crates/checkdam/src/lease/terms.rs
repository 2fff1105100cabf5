//! On which terms tokens are prepaid.

use super::purse::TOKENS_MAX;
use crate::quota::{Algorithm, Quota};
use crate::rule::Lease;

/// How long `auto` holds tokens.
const AUTO_US: u64 = 100_000;
/// The longest lease: what a node that vanishes takes with it stays small.
const LONGEST_US: u64 = 60_000_000;
/// Below this a lease does not outlive the call that fetches it.
const SHORTEST_US: u64 = 2_000;
/// What a node ends its leases early by, so that clocks may run apart by a
/// sixty-fourth.
const DRIFT_SHARE: u64 = 64;

/// On which terms the tokens of one quota may be prepaid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long tokens may be held: T.
    pub length_us: u64,
    /// How many tokens must be asked for here within T for a lease to be worth
    /// its call.
    pub worth: u64,
}

impl Terms {
    /// None if the quota cannot be leased: only token buckets can, and only if
    /// they hold so much that a lease leaves at least half of the burst.
    #[must_use]
    pub fn of(lease: Lease, quota: &Quota) -> Option<Self> {
        let (asked_us, worth) = match lease {
            Lease::Off => return None,
            Lease::For(length_us) => (length_us, 2),
            Lease::Auto => (AUTO_US, 16),
        };
        if quota.algorithm() != Algorithm::TokenBucket {
            return None;
        }
        let fills_in_us = quota.window_us();
        let fits_us = if 2 * asked_us < fills_in_us { asked_us } else { fills_in_us / 4 };
        let length_us = fits_us.min(LONGEST_US);
        (length_us >= SHORTEST_US).then_some(Self { length_us, worth })
    }

    /// How long what was granted may be spent, from before it was asked for.
    #[must_use]
    pub const fn life_us(&self) -> u64 {
        self.length_us - self.length_us / DRIFT_SHARE
    }

    /// Whether one grant can hold so many tokens.
    #[must_use]
    #[inline]
    pub fn can_grant(&self, quota: &Quota, tokens: u64) -> bool {
        let room = quota.capacity.saturating_sub(self.length_us * quota.ticks_per_us);
        tokens <= TOKENS_MAX && tokens.saturating_mul(quota.interval) <= room
    }

    /// The most tokens that one grant can hold.
    #[must_use]
    pub fn most(&self, quota: &Quota) -> u64 {
        let room = quota.capacity.saturating_sub(self.length_us * quota.ticks_per_us);
        room.checked_div(quota.interval).unwrap_or(0).min(TOKENS_MAX)
    }

    /// How long an account waits that was granted less than it wanted: short
    /// enough to lose nothing, long enough to be granted more than crumbs.
    pub(super) const fn pause_us(&self) -> u64 {
        self.length_us / 4
    }
}
