//! Sketch of the debt of evicted buckets, in fixed space.
//!
//! Two rows of maxima for each class of capacities: an evicted bucket raises one cell
//! in each row to the time at which it would have been full. A new bucket starts from
//! the smaller of its two cells, which is never less than its own debt. Buckets that
//! collide in both rows may start with too few tokens, never with too many. Buckets
//! of different classes share no cells, so that a quota of a second never inherits
//! the debt of a day.

use std::sync::OnceLock;

use super::bucket_table::zeroed;
use crate::hash::{CLASSES, Tag, TagBits, fast_range};
use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct DebtSketch {
    /// Made when the first bucket of the class is evicted.
    classes: Box<[OnceLock<SketchRows>]>,
    places: usize,
}

#[derive(Debug)]
struct SketchRows {
    /// No cell is later than this.
    latest_us: AtomicU64,
    rows: [Box<[AtomicU64]>; 2],
}

/// Odd constants that mix the tag anew for each row (from the digits of π).
const MIX: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

impl DebtSketch {
    /// A sketch that takes 16 bytes for each cell and class that is used.
    pub(super) fn new(places: usize) -> Self {
        Self { classes: (0..CLASSES).map(|_| OnceLock::new()).collect(), places }
    }

    pub(super) fn remember(&self, tag: Tag, full_at_us: u64) {
        let rows = self.classes[TagBits::of_tag(tag).class()].get_or_init(|| SketchRows::new(self.places));
        rows.latest_us.fetch_max(full_at_us, Ordering::AcqRel);
        for place in rows.places(tag) {
            place.fetch_max(full_at_us, Ordering::AcqRel);
        }
    }

    /// When a bucket that was evicted is full again at the latest; 0 if none was.
    pub(super) fn full_at_us(&self, tag: Tag) -> u64 {
        self.classes[TagBits::of_tag(tag).class()].get().map_or(0, |rows| rows.full_at_us(tag))
    }

    /// Whether a new bucket of that tag would start with a debt.
    pub(super) fn is_owing(&self, tag: Tag, now_us: u64) -> bool {
        self.classes[TagBits::of_tag(tag).class()]
            .get()
            .is_some_and(|rows| rows.latest_us.load(Ordering::Acquire) > now_us && rows.full_at_us(tag) > now_us)
    }
}

impl SketchRows {
    fn new(places: usize) -> Self {
        Self { latest_us: AtomicU64::new(0), rows: [zeroed(places), zeroed(places)] }
    }

    fn full_at_us(&self, tag: Tag) -> u64 {
        let [first, second] = self.places(tag);
        first.load(Ordering::Acquire).min(second.load(Ordering::Acquire))
    }

    fn places(&self, tag: Tag) -> [&AtomicU64; 2] {
        let [first, second] = &self.rows;
        [&first[fast_range(mixed(tag, MIX[0]), first.len())], &second[fast_range(mixed(tag, MIX[1]), second.len())]]
    }
}

fn mixed(tag: Tag, by: u64) -> u64 {
    let wide = u128::from(tag ^ by) * u128::from(by | 1);
    (wide >> 64) as u64 ^ wide as u64
}
