//! Which keys are known to have a long enough TTL.
//!
//! A key is made with a TTL of twice its bucket's capacity, and the script sets
//! it anew as the bucket needs it. A key that was made for a smaller capacity
//! has too short a TTL for that: so the first take of a key here sets the TTL
//! anew, and is remembered. What is forgotten costs a command, nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

/// One mebibyte of remembered keys.
const PLACES: usize = 1 << 17;

/// Keys whose TTL was set for the capacity that they have.
#[derive(Debug)]
pub(super) struct Renewals {
    hasher: foldhash::fast::RandomState,
    places: Box<[AtomicU64]>,
}

impl Renewals {
    pub(super) fn new() -> Self {
        Self {
            hasher: foldhash::fast::RandomState::default(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether a take must set the key's TTL.
    pub(super) fn is_due(&self, key: &[u8], capacity: u64) -> bool {
        let (place, mark) = self.place(key, capacity);
        place.load(Ordering::Relaxed) != mark
    }

    /// A take of the key has passed, and with it the TTL was set.
    pub(super) fn renewed(&self, key: &[u8], capacity: u64) {
        let (place, mark) = self.place(key, capacity);
        if place.load(Ordering::Relaxed) != mark {
            place.store(mark, Ordering::Relaxed);
        }
    }

    fn place(&self, key: &[u8], capacity: u64) -> (&AtomicU64, u64) {
        use std::hash::BuildHasher;
        // Zero marks an empty place.
        let mark = self.hasher.hash_one((key, capacity)) | 1;
        (&self.places[(mark >> 1) as usize % PLACES], mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_due_until_it_was_renewed_for_its_capacity() {
        let renewals = Renewals::new();
        assert!(renewals.is_due(b"a", 100));
        renewals.renewed(b"a", 100);
        assert!(!renewals.is_due(b"a", 100));
        assert!(renewals.is_due(b"a", 200), "another capacity");
        assert!(renewals.is_due(b"b", 100), "another key");
    }
}
