//! Hashes: keyed at random for buckets in memory, so that nobody can choose
//! keys that collide; unkeyed only for names that the operator writes.

use std::hash::{BuildHasher, Hasher};

/// A fingerprint of a bucket's key, never 0.
///
/// 64 bits: among a million live buckets the odds that any two share one are
/// 3 in 10^8; two that did would share their limit, so one could be denied
/// early, and never let in too much.
pub(crate) type Tag = u64;

/// Makes fingerprints with a key of its own: of the subject first, which the
/// tiers of a request share, then of both it and the bucket's name.
#[derive(Debug, Clone)]
pub(crate) struct TagMaker {
    subjects: foldhash::fast::RandomState,
    buckets: u64,
}

impl Default for TagMaker {
    fn default() -> Self {
        let buckets = foldhash::quality::RandomState::default().hash_one(0_u64) | 1;
        Self { subjects: foldhash::fast::RandomState::default(), buckets }
    }
}

impl TagMaker {
    #[inline]
    pub(crate) fn tag(&self, bucket: u64, subject: &[u8]) -> Tag {
        self.tag_of(bucket, self.subject(subject))
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
        ((wide >> 64) as u64 ^ wide as u64).max(1)
    }
}

/// The same in every process of one build; for names in configuration only.
pub(crate) fn stable(bytes: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(0x00C4_EC4D_A400).build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// Spreads `tag` over `count` places, by its upper bits.
#[inline]
pub(crate) fn place(tag: Tag, count: usize) -> usize {
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
        for bucket in [0, 1, stable(b"per-user")] {
            let mut counts = vec![0_u64; PLACES];
            for number in 0..SUBJECTS {
                let tag = tags.tag(bucket, format!("user:{number}").as_bytes());
                assert!(seen.insert(tag), "two buckets share a tag");
                counts[place(tag, PLACES)] += 1;
            }
            // The sum of squared deviations is about SUBJECTS, give or take a
            // few hundredths of it, if the places are as good as drawn.
            let spread: u64 = counts.iter().map(|count| count.abs_diff(16).pow(2)).sum();
            assert!((SUBJECTS * 8 / 10..SUBJECTS * 12 / 10).contains(&spread), "{spread} beside {SUBJECTS}");
        }
    }
}
