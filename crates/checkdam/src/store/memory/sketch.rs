//! What evicted buckets owed, in fixed space.
//!
//! Two rows of maxima: an evicted bucket raises one place in each row to the
//! time at which it would have been full. A new bucket starts from the smaller
//! of its two places, which is never less than what it owed itself. Buckets
//! that collide in both rows may start with too little, never with too much.

use crate::hash::{Tag, place};
use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Sketch {
    rows: [Box<[AtomicU64]>; 2],
}

/// Odd constants that mix the tag anew for each row (from the digits of π).
const MIX: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

impl Sketch {
    pub(super) fn new(places: usize) -> Self {
        let row = || (0..places).map(|_| AtomicU64::new(0)).collect();
        Self { rows: [row(), row()] }
    }

    pub(super) fn remember(&self, tag: Tag, full_at_us: u64) {
        for place in self.places(tag) {
            place.fetch_max(full_at_us, Ordering::AcqRel);
        }
    }

    /// When a bucket that was evicted is full again at the latest.
    pub(super) fn full_at_us(&self, tag: Tag) -> u64 {
        let [first, second] = self.places(tag);
        first.load(Ordering::Acquire).min(second.load(Ordering::Acquire))
    }

    fn places(&self, tag: Tag) -> [&AtomicU64; 2] {
        let [first, second] = &self.rows;
        [&first[place(mixed(tag, MIX[0]), first.len())], &second[place(mixed(tag, MIX[1]), second.len())]]
    }
}

fn mixed(tag: Tag, by: u64) -> u64 {
    let wide = u128::from(tag ^ by) * u128::from(by | 1);
    (wide >> 64) as u64 ^ wide as u64
}
