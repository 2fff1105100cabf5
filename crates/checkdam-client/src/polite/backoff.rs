//! Delay after a denied call: `Retry-After`, or exponential backoff with full jitter,
//! so that clients that were denied together do not retry together.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Delays after denials.
#[derive(Debug)]
pub(super) struct Backoff {
    base_us: u64,
    max_us: u64,
    /// Denials since a call passed.
    refusals: u32,
    random: u64,
}

impl Backoff {
    /// The first delay is at most `base_us`, and none is longer than `max_us`.
    pub(super) fn new(base_us: u64, max_us: u64) -> Self {
        // Any number but 0; how random it is matters little.
        let seed = RandomState::new().build_hasher().finish() | 1;
        Self::seeded(base_us, max_us, seed)
    }

    pub(super) const fn seeded(base_us: u64, max_us: u64, seed: u64) -> Self {
        Self { base_us, max_us, refusals: 0, random: seed }
    }

    /// Records that a call passed.
    pub(super) const fn passed(&mut self) {
        self.refusals = 0;
    }

    /// Records that a call was denied; returns how long to wait.
    pub(super) fn refused(&mut self, retry_after_us: Option<u64>) -> u64 {
        let most_us = self.base_us.saturating_mul(1 << self.refusals.min(32)).min(self.max_us);
        self.refusals = self.refusals.saturating_add(1);
        match retry_after_us {
            // Exactly what the server demands; if that was too early, others retry at that time
            // too.
            Some(wait_us) if self.refusals == 1 => wait_us,
            Some(wait_us) => wait_us.saturating_add(self.below(most_us)),
            None => self.below(most_us),
        }
    }

    /// A number up to this one (xorshift).
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * (u128::from(most) + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_up_to_twice_as_long_each_time() {
        let mut most = [0; 6];
        for seed in 1..=2_000_u64 {
            let mut backoff = Backoff::seeded(100_000, 1_000_000, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            for most in &mut most {
                *most = backoff.refused(None).max(*most);
            }
        }
        for (longest, bound) in most.iter().zip([100_000, 200_000, 400_000, 800_000, 1_000_000, 1_000_000]) {
            assert!((bound * 9 / 10..=bound).contains(longest), "{longest} of {bound}");
        }
    }

    #[test]
    fn the_servers_word_counts_and_is_never_undercut() {
        let mut backoff = Backoff::new(100_000, 1_000_000);
        assert_eq!(backoff.refused(Some(3_000_000)), 3_000_000);
        for _ in 0..50 {
            assert!((3_000_000..=4_000_000).contains(&backoff.refused(Some(3_000_000))));
        }
        backoff.passed();
        assert_eq!(backoff.refused(Some(0)), 0);
        assert!(backoff.refused(None) <= 200_000);
    }
}
