//! State of token and leaky buckets that were evicted from the table.

use std::collections::HashMap;

use super::bucket_table::STALE_MAX_US;
use super::bucket_word::BucketWord;
use crate::algorithm::token_bucket;
use crate::hash::{RandomState, Tag, TagBits};
use crate::quota::Quota;

/// What a bucket that is not in the table may owe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    /// It is full by then; 0 if no bucket like it was evicted.
    AtMost { full_at_us: u64 },
    /// Its exact state.
    Exactly(BucketWord),
}

impl Evicted {
    /// What a new bucket starts from. A debt that may be another's is no longer
    /// than the bucket's own capacity, and counts only if it is more than what
    /// every new bucket of the quota owes.
    pub(super) fn state(self, quota: &Quota, now_us: u64) -> token_bucket::State {
        match self {
            Self::AtMost { full_at_us } => {
                let owed = full_at_us.saturating_sub(now_us).saturating_mul(quota.ticks_per_us).min(quota.capacity);
                (owed > quota.owed_initially).then(|| now_us * quota.ticks_per_us + owed)
            }
            Self::Exactly(word) => word.state(),
        }
    }

    /// Whether it would start otherwise than a new one.
    pub(super) fn is_owing(self, quota: &Quota, now_us: u64) -> bool {
        match self {
            Self::AtMost { full_at_us } => full_at_us > now_us,
            Self::Exactly(word) => !word.is_new() && word.full_at() + quota.remembered > now_us * quota.ticks_per_us,
        }
    }
}

/// Pinned buckets that were evicted, with their exact state. There are no more of
/// them than keys without attributes in the rules.
#[derive(Debug, Default)]
pub(super) struct PinnedOverflow {
    words: HashMap<Tag, BucketWord, RandomState>,
    purged_at: usize,
}

/// Up to this many are held before those that owe nothing are purged.
const PURGE_MIN: usize = 256;

impl PinnedOverflow {
    pub(super) fn get(&self, tag: Tag) -> Evicted {
        match self.words.get(&tag) {
            Some(word) => Evicted::Exactly(*word),
            None => Evicted::AtMost { full_at_us: 0 },
        }
    }

    /// Replaces an older word, or removes it if it equals a new bucket's.
    pub(super) fn set(&mut self, tag: Tag, word: BucketWord, now_us: u64) {
        if !is_kept(tag, word, now_us) {
            self.words.remove(&tag);
            return;
        }
        self.words.insert(tag, word.state_only());
        if self.words.len() > self.purged_at.max(PURGE_MIN) {
            self.words.retain(|tag, word| is_kept(*tag, *word, now_us));
            self.purged_at = 2 * self.words.len();
        }
    }
}

fn is_kept(tag: Tag, word: BucketWord, now_us: u64) -> bool {
    !word.is_new() && word.full_at_us() + TagBits::of_tag(tag).remembered_us() + STALE_MAX_US > now_us
}
