//! Demand estimate: how many tokens the requests for a subject take on this node.

/// A moving average of the tokens requested, in thousandths of a token per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Demand {
    pub(super) milli_per_s: u64,
    pub(super) at_us: u64,
}

impl Demand {
    /// The rate of `used` tokens in this time.
    pub(super) fn rate(used: u64, length_us: u64) -> u64 {
        let rate = u128::from(used) * 1_000_000_000 / u128::from(length_us.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Adds that `used` tokens were requested since the last call. Demand older than
    /// `memory_us` weighs less than half.
    pub(super) fn learn(&mut self, used: u64, now_us: u64, memory_us: u64) {
        let since_us = now_us.saturating_sub(self.at_us);
        // A shorter interval gives no reliable rate.
        if since_us < memory_us / 16 + 1 && used == 0 {
            return;
        }
        let rate = u128::from(Self::rate(used, since_us));
        let (since, memory, known) = (u128::from(since_us.max(1)), u128::from(memory_us), u128::from(self.milli_per_s));
        let average = (known * memory + rate * since) / (memory + since);
        *self = Self { milli_per_s: u64::try_from(average).unwrap_or(u64::MAX), at_us: now_us };
    }

    /// The expected demand in this time, rounded up.
    pub(super) fn within(&self, length_us: u64) -> u64 {
        let used = (u128::from(self.milli_per_s) * u128::from(length_us)).div_ceil(1_000_000_000);
        used.try_into().unwrap_or(u64::MAX)
    }
}
