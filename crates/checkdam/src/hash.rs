//! Hash functions: randomly keyed for buckets in memory, so that no client can
//! prepare keys that collide; unkeyed only for names that the operator writes.

mod tag_bits;

pub(crate) use tag_bits::{CLASSES, TagBits};

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// foldhash, seeded from the operating system's random source: its own
/// `RandomState` is seeded from addresses and the time, which can be guessed.
#[derive(Debug, Clone)]
pub struct RandomState(SeedableRandomState);

impl Default for RandomState {
    fn default() -> Self {
        static SHARED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(system_random()));
        Self(SeedableRandomState::with_seed(system_random(), &SHARED))
    }
}

impl BuildHasher for RandomState {
    type Hasher = FoldHasher<'static>;

    #[inline(always)]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// 64 unpredictable bits: the operating system seeds the keys of the standard
/// library's hasher, and each instance has different keys.
fn system_random() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(0_u64)
}

/// A fingerprint of a bucket's key, never 0; its low bits encode properties of the
/// bucket's name and quota (see [`TagBits`]).
///
/// 54 bits: among a million live buckets the odds that any two share one are 3 in
/// 10^5; two that did would share their limit, so one could be denied early, but
/// never too much is admitted.
pub(crate) type Tag = u64;

/// Makes fingerprints with a key of its own: of the subject first, which the
/// tiers of a request share, then of both it and the bucket's name.
#[derive(Debug, Clone)]
pub(crate) struct TagMaker {
    subjects: RandomState,
    buckets: u64,
}

impl Default for TagMaker {
    fn default() -> Self {
        Self { subjects: RandomState::default(), buckets: system_random() | 1 }
    }
}

impl TagMaker {
    /// `bucket` must have one of the bits of [`TagBits`], or the tag may be 0.
    #[inline]
    pub(crate) fn tag(&self, bucket: u64, subject: &[u8]) -> Tag {
        self.tag_of(bucket, self.subject(subject))
    }

    /// The tag of the only bucket of a key, of any type.
    #[inline]
    pub(crate) fn key<K: Hash + ?Sized>(&self, bucket: u64, key: &K) -> Tag {
        self.tag_of(bucket, self.subjects.hash_one(key))
    }

    /// What the tags of all buckets of a subject are made of.
    #[inline]
    pub(crate) fn subject(&self, subject: &[u8]) -> u64 {
        let mut hasher = self.subjects.build_hasher();
        hasher.write(subject);
        hasher.finish()
    }

    #[inline]
    pub(crate) fn tag_of(&self, bucket: u64, subject: u64) -> Tag {
        let wide = u128::from(bucket ^ subject) * u128::from(self.buckets);
        ((wide >> 64) as u64 ^ wide as u64) & !TagBits::MASK | bucket & TagBits::MASK
    }
}

/// The same in every process of one build; for names in configuration only.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(0x00C4_EC4D_A400).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Maps `tag` to one of `count` places, by its upper bits.
#[inline]
pub(crate) fn fast_range(tag: Tag, count: usize) -> usize {
    ((u128::from(tag) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tags_of_similar_subjects_are_apart_and_spread_evenly() {
        const PLACES: usize = 1 << 12;
        const SUBJECTS: u64 = 16 * PLACES as u64;
        let tags = TagMaker::default();
        let mut seen = std::collections::HashSet::new();
        for bucket in [1, 2, stable_hash(b"per-user")] {
            let mut counts = vec![0_u64; PLACES];
            for number in 0..SUBJECTS {
                let tag = tags.tag(bucket, format!("user:{number}").as_bytes());
                assert!(seen.insert(tag), "two buckets share a tag");
                counts[fast_range(tag, PLACES)] += 1;
            }
            // The sum of squared deviations is about SUBJECTS, within a few percent, if the
            // places are as good as random.
            let spread: u64 = counts.iter().map(|count| count.abs_diff(16).pow(2)).sum();
            assert!((SUBJECTS * 8 / 10..SUBJECTS * 12 / 10).contains(&spread), "{spread} beside {SUBJECTS}");
        }
    }
}
