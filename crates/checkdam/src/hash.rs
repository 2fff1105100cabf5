//! Hashes: keyed at random for buckets in memory, so that nobody can choose
//! keys that collide; unkeyed only for names that the operator writes.

use std::hash::{BuildHasher, Hasher};

/// A fingerprint of a bucket's key, never 0.
///
/// 64 bits: among a million live buckets the odds that any two share one are
/// 3 in 10^8; two that did would share their limit, so one could be denied
/// early, and never let in too much.
pub(crate) type Tag = u64;

/// Makes fingerprints with a key of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct TagMaker(foldhash::quality::RandomState);

impl TagMaker {
    #[inline]
    pub(crate) fn tag(&self, bucket: u64, subject: &[u8]) -> Tag {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(bucket);
        hasher.write(subject);
        hasher.finish().max(1)
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
