//! Key distributions (uniform, Zipf, one key), reproducible by seed.

/// How often each key is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyDistribution {
    /// All keys are equally frequent
    Uniform,
    /// Zipf: the n-th key is drawn 1/n as often as the first
    Zipf,
    /// Always the same key
    One,
}

impl KeyDistribution {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::One => "one",
        }
    }
}

/// An endless row of keys below `count`.
#[derive(Debug)]
pub(super) struct KeyGenerator {
    spread: KeyDistribution,
    count: u64,
    /// Of a SplitMix64 generator.
    state: u64,
    /// The bounds of the area under 1/x that represents all keys.
    area: (f64, f64),
}

impl KeyGenerator {
    /// The keys of one client: no two clients draw the same sequence.
    pub(super) fn new(spread: KeyDistribution, count: u64, seed: u64, client: u64) -> Self {
        let count = count.max(1);
        let area = (1.5_f64.ln() - 1.0, (count as f64 + 0.5).ln());
        let mut keys = Self { spread, count, state: seed, area };
        // Seeds and client numbers are small: they are far apart only once mixed.
        keys.state = keys.number() ^ client.wrapping_mul(0xd1b5_4a32_d192_ed03);
        keys
    }

    pub(super) fn next_key(&mut self) -> u64 {
        match self.spread {
            KeyDistribution::One => 0,
            KeyDistribution::Uniform => ((u128::from(self.number()) * u128::from(self.count)) >> 64) as u64,
            KeyDistribution::Zipf => self.zipf() - 1,
        }
    }

    /// From 1, by rejection-inversion (Hörmann and Derflinger, 1996) with the exponent 1:
    /// a point under 1/x is drawn, and rounded to the rank of the bar that contains it;
    /// outside all bars it is drawn again, which is rare.
    fn zipf(&mut self) -> u64 {
        let (low, high) = self.area;
        loop {
            let at = low + self.fraction() * (high - low);
            let rank = at.exp().round().clamp(1.0, self.count as f64);
            if at >= (rank + 0.5).ln() - 1.0 / rank {
                return rank as u64;
            }
        }
    }

    /// In [0, 1).
    fn fraction(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        (self.number() >> 11) as f64 / STEPS
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 200_000;

    fn counts(spread: KeyDistribution, count: u64) -> Vec<u64> {
        let mut keys = KeyGenerator::new(spread, count, 7, 0);
        let mut counts = vec![0; count as usize];
        for _ in 0..DRAWN {
            counts[keys.next_key() as usize] += 1;
        }
        counts
    }

    #[test]
    fn each_spread_draws_as_often_as_it_says() {
        assert_eq!(counts(KeyDistribution::One, 5), [DRAWN as u64, 0, 0, 0, 0]);
        let fair = DRAWN as f64 / 100.0;
        for (key, count) in counts(KeyDistribution::Uniform, 100).into_iter().enumerate() {
            assert!((count as f64 - fair).abs() < 6.0 * fair.sqrt(), "key {key} came {count} times");
        }
        let harmonic: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
        for (key, count) in counts(KeyDistribution::Zipf, 1_000).into_iter().enumerate() {
            let expected = DRAWN as f64 / harmonic / (key + 1) as f64;
            assert!((count as f64 - expected).abs() < 6.0 * expected.sqrt(), "key {key}: {count}, expected {expected}");
        }
    }

    #[test]
    fn a_seed_repeats_its_keys_and_clients_differ() {
        let row = |seed, client| {
            let mut keys = KeyGenerator::new(KeyDistribution::Uniform, u64::MAX, seed, client);
            [(); 8].map(|()| keys.next_key())
        };
        assert_eq!(row(1, 0), row(1, 0));
        assert_ne!(row(1, 0), row(2, 0));
        assert_ne!(row(1, 0), row(1, 1));
        assert_eq!(KeyGenerator::new(KeyDistribution::Zipf, 1, 1, 1).next_key(), 0);
    }
}
