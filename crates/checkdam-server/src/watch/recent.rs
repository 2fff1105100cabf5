//! What was asked in the last minutes, kept so that a change of the rules can be
//! tried on it. It stays in memory.
//!
//! Where not everything fits, clients are left out, not requests: of each client
//! that is kept the whole sequence is, so that its buckets stand where they would.
//! The first look at a request takes no lock.

mod entry;

pub(crate) use self::entry::{Entry, IDENTITIES};

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::entry::Client;
use super::Seen;

/// How far back requests are kept.
const SECONDS_MAX: u64 = 300;
/// What an entry may take on average; most take a third of it.
const ENTRY_BYTES: usize = 300;
/// One client in so many at least.
const MASK_MAX: u64 = (1 << 16) - 1;
/// The share of what was asked lately by which it is judged whether more fits.
const LATELY_S: u64 = 30;

/// What was asked last.
#[derive(Debug)]
pub(crate) struct Recent {
    entries_max: usize,
    /// Clients are kept whose hash has none of these bits. Keyed at random, so
    /// that nobody can choose to be left out.
    mask: AtomicU64,
    hasher: foldhash::quality::RandomState,
    /// What was asked since the last tick.
    fresh: Mutex<Block>,
    /// Whether that takes no more, so that nobody need wait to be told.
    is_full: AtomicBool,
    kept: Mutex<Kept>,
}

/// Entries of one second.
#[derive(Debug, Clone, Default)]
struct Block {
    bytes: Vec<u8>,
    entries: usize,
    mask: u64,
    /// When it was made, in ticks.
    tick: u64,
    last_us: u64,
    /// Whether there was no room for a request: what follows is another story.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct Kept {
    blocks: VecDeque<Arc<Block>>,
    ticks: u64,
    /// When the share that is kept last changed.
    changed_at: u64,
}

/// What was kept at one instant.
#[derive(Debug)]
pub(crate) struct Sample {
    blocks: Vec<Arc<Block>>,
    mask: u64,
    /// How far it reaches back.
    pub(crate) seconds: u64,
}

impl Recent {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            mask: AtomicU64::new(0),
            hasher: foldhash::quality::RandomState::default(),
            fresh: Mutex::default(),
            is_full: AtomicBool::new(false),
            kept: Mutex::default(),
        }
    }

    /// Requests were decided.
    pub(super) fn note(&self, seen: &Seen<'_, '_>) {
        if self.entries_max == 0 || self.is_full.load(Ordering::Relaxed) {
            return;
        }
        let client = Client::of(seen.requests, &self.hasher);
        let mask = self.mask.load(Ordering::Relaxed);
        let Some(outcome) = seen.outcomes.first().filter(|_| client.hash & mask == 0) else { return };
        let mut fresh = lock(&self.fresh);
        if fresh.entries >= self.entries_max || fresh.bytes.len() >= self.bytes_max() {
            fresh.is_cut = true;
            self.is_full.store(true, Ordering::Relaxed);
            return;
        }
        // What was decided without a store has no time of its own.
        let at_us = if outcome.at_us() == 0 { fresh.last_us } else { outcome.at_us() };
        fresh.last_us = fresh.last_us.max(at_us);
        fresh.entries += 1;
        entry::write(&mut fresh.bytes, client, at_us, seen.requests);
    }

    /// To be called once a second.
    pub(super) fn tick(&self) {
        if self.entries_max == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        kept.ticks += 1;
        let now = kept.ticks;
        // As much room as was needed last, made while nobody waits.
        let bytes = Vec::with_capacity(kept.blocks.back().map_or(0, |last| last.bytes.len()));
        let mut block = {
            let mut fresh = lock(&self.fresh);
            self.is_full.store(false, Ordering::Relaxed);
            let last_us = fresh.last_us;
            std::mem::replace(&mut *fresh, Block { bytes, last_us, ..Block::default() })
        };
        kept.blocks.retain(|block| block.tick + SECONDS_MAX > now);
        if block.entries > 0 {
            block.bytes.shrink_to_fit();
            (block.tick, block.mask) = (now, self.mask.load(Ordering::Relaxed));
            if block.is_cut || kept.blocks.back().is_some_and(|last| last.is_cut) {
                // The sequences before it have a gap.
                kept.blocks.clear();
            }
            kept.blocks.push_back(Arc::new(block));
        }
        self.fit(&mut kept);
        self.widen(&mut kept);
    }

    /// What was kept until now. Copies what is not a second old.
    pub(crate) fn sample(&self) -> Sample {
        let kept = lock(&self.kept);
        let fresh = lock(&self.fresh).clone();
        let mut blocks: Vec<_> = kept.blocks.iter().cloned().collect();
        let seconds = blocks.first().map_or(0, |first| kept.ticks - first.tick) + 1;
        drop(kept);
        if fresh.entries > 0 {
            if fresh.is_cut || blocks.last().is_some_and(|last| last.is_cut) {
                blocks.clear();
            }
            blocks.push(Arc::new(Block { mask: self.mask.load(Ordering::Relaxed), ..fresh }));
        }
        let mask = blocks.iter().map(|block| block.mask).max().unwrap_or(0);
        Sample { seconds: if blocks.is_empty() { 0 } else { seconds }, blocks, mask }
    }

    /// Leaves out half of the clients until what is kept fits. Where one client
    /// asks for most of it, that would leave out all or nothing: then the oldest
    /// goes.
    fn fit(&self, kept: &mut Kept) {
        while kept.entries() > self.entries_max || kept.bytes() > self.bytes_max() || kept.is_cut() {
            let mask = self.mask.load(Ordering::Relaxed) << 1 | 1;
            let thinned: VecDeque<Arc<Block>> = kept.blocks.iter().map(|block| block.thinned(mask)).collect();
            let (before, after) = (kept.entries(), thinned.iter().map(|block| block.entries).sum::<usize>());
            if mask <= MASK_MAX && (before / 8..=before - before / 8).contains(&after) {
                let is_cut = kept.is_cut();
                kept.blocks = thinned;
                kept.changed_at = kept.ticks;
                self.mask.store(mask, Ordering::Relaxed);
                if is_cut {
                    return;
                }
            } else if kept.blocks.len() > 1 {
                kept.blocks.pop_front();
            } else {
                return;
            }
        }
    }

    /// Keeps twice as many clients again once they fit.
    fn widen(&self, kept: &mut Kept) {
        let mask = self.mask.load(Ordering::Relaxed);
        if mask == 0 || kept.ticks < kept.changed_at + LATELY_S {
            return;
        }
        let lately = || kept.blocks.iter().filter(|block| block.tick + LATELY_S > kept.ticks);
        let grown = (SECONDS_MAX / LATELY_S) as usize * 2;
        let entries = lately().map(|block| block.entries).sum::<usize>() * grown;
        let bytes = lately().map(|block| block.bytes.len()).sum::<usize>() * grown;
        if entries < self.entries_max / 5 * 4 && bytes < self.bytes_max() / 5 * 4 {
            self.mask.store(mask >> 1, Ordering::Relaxed);
            kept.changed_at = kept.ticks;
        }
    }

    const fn bytes_max(&self) -> usize {
        self.entries_max * ENTRY_BYTES
    }
}

impl Kept {
    fn entries(&self) -> usize {
        self.blocks.iter().map(|block| block.entries).sum()
    }

    fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes.len()).sum()
    }

    /// Whether a second alone was too much.
    fn is_cut(&self) -> bool {
        self.blocks.back().is_some_and(|last| last.is_cut && last.tick == self.ticks)
    }
}

impl Block {
    /// The same with those clients only that a mask leaves.
    fn thinned(self: &Arc<Self>, mask: u64) -> Arc<Self> {
        if self.mask >= mask {
            return Arc::clone(self);
        }
        let mut thinned = Self { bytes: Vec::new(), entries: 0, mask, ..**self };
        for entry in Entry::all(&self.bytes).filter(|entry| entry.hash() & mask == 0) {
            thinned.bytes.extend_from_slice(entry.bytes());
            thinned.entries += 1;
        }
        Arc::new(thinned)
    }
}

impl Sample {
    /// One client in so many was kept.
    pub(crate) const fn one_in(&self) -> u64 {
        self.mask + 1
    }

    /// What was asked, in the order in which it was decided.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let all = self.blocks.iter().flat_map(|block| Entry::all(&block.bytes));
        let mut entries: Vec<_> = all.filter(|entry| entry.hash() & self.mask == 0).collect();
        entries.sort_by_key(|entry| entry.at_us());
        entries
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
