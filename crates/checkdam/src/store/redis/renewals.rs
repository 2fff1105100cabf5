//! Which keys are known to have a long enough TTL.
//!
//! A key is made with a TTL of twice its bucket's capacity, and the script sets
//! it anew as the bucket needs it. A key that was made for a smaller capacity
//! has too short a TTL for that: so the first take of a key here sets the TTL
//! anew, and is remembered. What is forgotten costs a command, nothing else; so
//! everything is when rules change, since another node may meanwhile have made
//! the key anew for the capacity of others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Four mebibytes of remembered keys, of which only what is used is ever touched.
const PLACES: usize = 1 << 20;
/// So many places a key may stand in, side by side in one cache line.
const WAYS: usize = 4;

/// Keys whose TTL was set for the capacity that they have.
#[derive(Debug)]
pub(super) struct Renewals {
    hasher: foldhash::fast::RandomState,
    /// How often everything was forgotten: a part of every mark.
    era: AtomicU64,
    places: Box<[AtomicU32]>,
}

/// A key and its capacity, as they are remembered. That another one is mistaken
/// for it has a probability of 1 in 10^9, and matters only to a key that was made
/// for a smaller capacity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    first: usize,
    /// Zero marks an empty place.
    tag: u32,
}

impl Renewals {
    pub(super) fn new() -> Self {
        let (hasher, era) = (foldhash::fast::RandomState::default(), AtomicU64::new(0));
        Self { hasher, era, places: bytemuck::zeroed_slice_box(PLACES) }
    }

    /// Forgets every key.
    pub(super) fn forget(&self) {
        self.era.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn mark(&self, key: &[u8], capacity: u64) -> Mark {
        use std::hash::BuildHasher;
        let hash = self.hasher.hash_one((key, capacity, self.era.load(Ordering::Relaxed)));
        Mark { first: (hash >> 32) as usize % (PLACES / WAYS) * WAYS, tag: hash as u32 | 1 }
    }

    /// Whether a take must set the key's TTL.
    pub(super) fn is_due(&self, mark: Mark) -> bool {
        !self.ways(mark).iter().any(|place| place.load(Ordering::Relaxed) == mark.tag)
    }

    /// A take of the key has passed, and with it the TTL was set.
    pub(super) fn renewed(&self, mark: Mark) {
        if !self.is_due(mark) {
            return;
        }
        let ways = self.ways(mark);
        let empty = ways.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        // Else whichever: what is forgotten costs a command.
        if let Some(place) = empty.or_else(|| ways.get(mark.tag as usize / 2 % WAYS)) {
            place.store(mark.tag, Ordering::Relaxed);
        }
    }

    fn ways(&self, mark: Mark) -> &[AtomicU32] {
        &self.places[mark.first..mark.first + WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_due_until_it_was_renewed_for_its_capacity() {
        let renewals = Renewals::new();
        let is_due = |key, capacity| renewals.is_due(renewals.mark(key, capacity));
        assert!(is_due(b"a", 100));
        renewals.renewed(renewals.mark(b"a", 100));
        assert!(!is_due(b"a", 100));
        assert!(is_due(b"a", 200), "another capacity");
        assert!(is_due(b"b", 100), "another key");
        renewals.forget();
        assert!(is_due(b"a", 100), "other rules");
    }

    #[test]
    fn hardly_one_of_many_keys_is_forgotten() {
        let renewals = Renewals::new();
        let marks: Vec<Mark> = (0..300_000_u32).map(|key| renewals.mark(&key.to_le_bytes(), 100)).collect();
        marks.iter().for_each(|mark| renewals.renewed(*mark));
        let forgotten = marks.iter().filter(|mark| renewals.is_due(**mark)).count();
        assert!(forgotten < 3_000, "{forgotten} of 300,000");
    }
}
