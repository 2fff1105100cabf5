//! Hash table of token and leaky buckets: cache lines of four buckets, lock-free for
//! buckets that exist.
//!
//! A tag determines the home line of its bucket, which is in that line or in one of
//! the next three. A full bucket's slot counts as free, so nothing is ever swept.
//! When all slots are taken, the bucket that owes the smallest share of its capacity
//! is evicted, and the sketch records its debt. Buckets that were denied because of a
//! debt from the sketch are evicted after those, so that they pass when their
//! `retry_after` has elapsed, and those with recorded debt after them, because the sketch
//! holds no more than a capacity. Pinned buckets are evicted last, and their debt is kept
//! exactly.
//!
//! To replace a bucket, a thread locks its word, records its debt, writes the new tag,
//! then the new word. A charge reads tag, word and tag again, then
//! compares and swaps the word: the swap fails if the slot was replaced meanwhile,
//! because every replacement raises the generation in the word. A tag is added only
//! under the lock of its home line, so no bucket exists twice.

use super::bucket_word::BucketWord;
use super::debt_sketch::DebtSketch;
use super::evicted::{Evicted, PinnedOverflow};
use crate::hash::{Tag, TagBits, fast_range};
use crate::sync::{AtomicU64, Backoff, Mutex, Ordering, lock};
use crate::time::SECOND_US;

const SLOTS: usize = 4;
const LINE_BYTES: usize = 64;
/// How many lines are searched for a bucket, from its home line on.
const LINES_SEARCHED: usize = 4;
/// Far more slots than a request has tiers: a request that holds slots must always
/// find another one.
const LINES_MIN: usize = 1_024;
/// How often a slot is searched for before the request starts again.
const CLAIMS_MAX: usize = 100;
/// One cell of the sketch for this many buckets in the table, in each row.
const SLOTS_PER_SKETCH_PLACE: usize = 4;

/// A request adds a bucket at most this long after it decided to.
pub(super) const STALE_MAX_US: u64 = SECOND_US;

/// Of a line: the tags of its buckets, and then their words.
const CELLS: usize = 2 * SLOTS;
type Line = [AtomicU64];

/// The index of a bucket's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position(usize);

impl Position {
    #[inline]
    const fn new(line: usize, slot: usize) -> Self {
        Self(line * SLOTS + slot)
    }

    #[inline]
    const fn line(self) -> usize {
        self.0 / SLOTS
    }

    #[inline]
    const fn slot(self) -> usize {
        self.0 % SLOTS
    }

    /// Its index, for lock order.
    #[inline]
    pub(super) const fn rank(self) -> u64 {
        self.0 as u64
    }
}

/// What became of an insertion.
pub(super) enum InsertResult {
    /// The bucket is in that slot, with this word.
    Done(Position, BucketWord),
    /// The caller added nothing after all.
    Declined,
    /// Another thread has added it, or there was no free slot.
    Lost,
}

#[derive(Debug)]
pub(super) struct BucketTable {
    /// The lines, behind as many words as it takes for them to be cache lines.
    cells: Box<[AtomicU64]>,
    skipped: usize,
    lines: usize,
    inserting: Box<[Mutex<()>]>,
    sketch: DebtSketch,
    pinned: Mutex<PinnedOverflow>,
    evicted: AtomicU64,
}

/// The loss if a bucket is evicted, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It is as good as absent, since this time.
    Nothing(u64),
    /// The same, but its slot records that it owes less than the sketch would let it
    /// start with.
    Shelter(u64),
    /// It owes this share of its capacity.
    Debt(u64),
    /// The same, and its client got a `retry_after`.
    DeniedAtInsert(u64),
    /// It owes more than its capacity, which the sketch would forget.
    RecordedDebt(u64),
    Pinned(u64),
}

impl BucketTable {
    pub(super) fn new(buckets_max: usize) -> Self {
        let lines = buckets_max.div_ceil(SLOTS).max(if cfg!(checkdam_loom) { 1 } else { LINES_MIN });
        let cells = zeroed((lines + 1) * 2 * SLOTS);
        let beyond = cells.as_ptr() as usize % LINE_BYTES;
        Self {
            skipped: (LINE_BYTES - beyond) % LINE_BYTES / size_of::<AtomicU64>(),
            cells,
            lines,
            inserting: (0..lines.min(1_024)).map(|_| Mutex::new(())).collect(),
            sketch: DebtSketch::new((lines * SLOTS / SLOTS_PER_SKETCH_PLACE).max(if cfg!(checkdam_loom) {
                1
            } else {
                64
            })),
            pinned: Mutex::new(PinnedOverflow::default()),
            evicted: AtomicU64::new(0),
        }
    }

    /// Finds a bucket and its word. The word may be locked.
    #[inline]
    pub(super) fn find(&self, tag: Tag) -> Option<(Position, BucketWord)> {
        self.find_at_home(tag).or_else(|| self.find_beyond(fast_range(tag, self.lines), tag))
    }

    /// The same for a bucket in its home line, as nearly all are.
    #[inline]
    pub(super) fn find_at_home(&self, tag: Tag) -> Option<(Position, BucketWord)> {
        let home = fast_range(tag, self.lines);
        let line = self.line(home);
        for slot in 0..SLOTS {
            if line[slot].load(Ordering::Acquire) == tag {
                let word = BucketWord(line[SLOTS + slot].load(Ordering::Acquire));
                if line[slot].load(Ordering::Acquire) == tag {
                    return Some((Position::new(home, slot), word));
                }
            }
        }
        None
    }

    /// Searches the lines after the home line, then all of them again as long as slots
    /// are replaced during the search.
    #[cold]
    fn find_beyond(&self, home: usize, tag: Tag) -> Option<(Position, BucketWord)> {
        'search: loop {
            for index in self.searched(home) {
                let line = self.line(index);
                for slot in 0..SLOTS {
                    if line[slot].load(Ordering::Acquire) != tag {
                        continue;
                    }
                    let word = BucketWord(line[SLOTS + slot].load(Ordering::Acquire));
                    if line[slot].load(Ordering::Acquire) != tag {
                        continue 'search;
                    }
                    return Some((Position::new(index, slot), word));
                }
            }
            return None;
        }
    }

    /// Replaces the word that was seen; fails if anything changed it since.
    #[inline]
    pub(super) fn swap(&self, at: Position, seen: BucketWord, new: BucketWord) -> bool {
        let new = new.replacing(seen);
        self.word(at).compare_exchange(seen.0, new.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Writes a word that the caller has locked, since it read `seen`.
    #[inline]
    pub(super) fn unlock(&self, at: Position, seen: BucketWord, new: BucketWord) {
        self.word(at).store(new.replacing(seen).0, Ordering::Release);
    }

    /// Adds the bucket unless another thread added it meanwhile. `start` gets what an
    /// evicted bucket of that tag may owe; it returns the current time and the first
    /// word, or `None` to add nothing.
    pub(super) fn insert(&self, tag: Tag, start: impl FnOnce(Evicted) -> (u64, Option<BucketWord>)) -> InsertResult {
        let home = fast_range(tag, self.lines);
        let _inserting = lock(&self.inserting[home % self.inserting.len()]);
        if self.find(tag).is_some() {
            return InsertResult::Lost;
        }
        let (now_us, first) = start(self.inherited(tag));
        let Some(first) = first else { return InsertResult::Declined };
        let Some((at, old)) = self.claim(home, now_us) else { return InsertResult::Lost };
        let first = first.succeeding(old);
        self.tag(at).store(tag, Ordering::Release);
        self.word(at).store(first.0, Ordering::Release);
        InsertResult::Done(at, first)
    }

    /// What an evicted bucket of that tag may owe.
    pub(super) fn inherited(&self, tag: Tag) -> Evicted {
        if TagBits::of_tag(tag).is_pinned() {
            lock(&self.pinned).get(tag)
        } else {
            Evicted::AtMost { full_at_us: self.sketch.full_at_us(tag) }
        }
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How many buckets owe something now. Reads the whole table.
    pub(super) fn live(&self, now_us: u64) -> usize {
        let words = (0..self.lines).flat_map(|line| &self.line(line)[SLOTS..]);
        words.filter(|word| !BucketWord(word.load(Ordering::Relaxed)).is_full(now_us)).count()
    }

    /// Locks the word of an unused slot, otherwise of the bucket that has been full for
    /// the longest time, otherwise of the one with the least worth. Gives up if all stay
    /// locked: the caller may hold them itself.
    fn claim(&self, home: usize, now_us: u64) -> Option<(Position, BucketWord)> {
        let mut backoff = Backoff::default();
        for _ in 0..CLAIMS_MAX {
            let victim = self.victim(home, now_us);
            if let Some((at, word)) = victim.filter(|(at, word)| self.swap(*at, *word, word.locked())) {
                self.remember(self.tag(at).load(Ordering::Acquire), word, now_us);
                return Some((at, word));
            }
            backoff.wait();
        }
        None
    }

    /// Records the debt of a bucket that is about to be replaced.
    fn remember(&self, tag: Tag, word: BucketWord, now_us: u64) {
        // A bucket that filled up only now is remembered too: a request that read
        // the clock a moment ago may still see it owing.
        let until_us = word.full_at_us() + STALE_MAX_US;
        if TagBits::of_tag(tag).is_pinned() {
            lock(&self.pinned).set(tag, word, now_us);
        } else if !word.is_new() && until_us > now_us {
            self.sketch.remember(tag, word.full_at_us());
        }
        if !word.is_full(now_us) {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn victim(&self, home: usize, now_us: u64) -> Option<(Position, BucketWord)> {
        let mut least: Option<(EvictionRank, Position, BucketWord)> = None;
        for index in self.searched(home) {
            let line = self.line(index);
            for slot in 0..SLOTS {
                let at = Position::new(index, slot);
                let word = BucketWord(line[SLOTS + slot].load(Ordering::Acquire));
                if word.is_locked() {
                    continue;
                }
                if word.is_new() {
                    return Some((at, word));
                }
                // If the slot is replaced right now, the word will differ too.
                let eviction_rank = self.eviction_rank(line[slot].load(Ordering::Acquire), word, now_us);
                if least.is_none_or(|(other, ..)| eviction_rank < other) {
                    least = Some((eviction_rank, at, word));
                }
            }
        }
        least.map(|(_, at, word)| (at, word))
    }

    fn eviction_rank(&self, tag: Tag, word: BucketWord, now_us: u64) -> EvictionRank {
        let traits = TagBits::of_tag(tag);
        let full_at_us = word.full_at_us();
        match (full_at_us + traits.remembered_us()).checked_sub(now_us) {
            Some(owed_us @ 1..) if traits.is_pinned() => EvictionRank::Pinned(traits.share(owed_us)),
            Some(owed_us @ 1..) if word.is_recorded_debt() => EvictionRank::RecordedDebt(traits.share(owed_us)),
            Some(owed_us @ 1..) if word.is_denied_at_insert() => EvictionRank::DeniedAtInsert(traits.share(owed_us)),
            Some(owed_us @ 1..) => EvictionRank::Debt(traits.share(owed_us)),
            _ if !traits.is_pinned() && self.sketch.is_owing(tag, now_us) => EvictionRank::Shelter(full_at_us),
            _ => EvictionRank::Nothing(full_at_us),
        }
    }

    #[inline]
    fn searched(&self, home: usize) -> impl Iterator<Item = usize> {
        let count = self.lines;
        (home..home + LINES_SEARCHED.min(count)).map(move |line| if line < count { line } else { line - count })
    }

    #[inline]
    fn line(&self, index: usize) -> &Line {
        &self.cells[self.skipped + index * CELLS..][..CELLS]
    }

    #[inline]
    fn tag(&self, at: Position) -> &AtomicU64 {
        &self.line(at.line())[at.slot()]
    }

    #[inline]
    fn word(&self, at: Position) -> &AtomicU64 {
        &self.line(at.line())[SLOTS + at.slot()]
    }
}

/// The system provides zeroed pages lazily, so an empty table costs nothing; but only
/// with the default alignment.
#[cfg(not(checkdam_loom))]
pub(super) fn zeroed(count: usize) -> Box<[AtomicU64]> {
    bytemuck::zeroed_slice_box(count)
}

#[cfg(checkdam_loom)]
pub(super) fn zeroed(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}
