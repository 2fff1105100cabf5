//! Sample of the requests of the last minutes, in memory, on which a change of the
//! rules can be previewed.
//!
//! When the space is full, the oldest requests are dropped, down to one minute. Then whole
//! clients are left out, not single requests: every request of a kept client is kept, so
//! that its buckets fill as in reality. The busiest clients are never left out. The first
//! test of a request takes no lock.

mod busy_clients;
mod encoding;

pub(crate) use self::encoding::{EncodedEntry, IDENTITIES};

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::busy_clients::{BusyClients, ClientHashes};
use self::encoding::HashedClient;
use super::Observation;
use crate::lock;

/// How far back requests are kept.
const SECONDS_MAX: u64 = 300;
/// Clients are left out only if less than this would be kept of all.
const SECONDS_MIN: u64 = 60;
/// The minimum number of sampled clients besides the busy ones; rather than fewer,
/// less time is kept.
const CLIENTS_MIN: usize = 50;
/// What an entry may take on average; most take a third of it.
const ENTRY_BYTES: usize = 300;
/// At least one client in this many is sampled.
const MASK_MAX: u64 = (1 << 16) - 1;
/// The recent period by which it is decided whether more fits.
const LATELY_S: u64 = 30;

/// A sample of recent requests.
#[derive(Debug)]
pub(super) struct RecentRequests {
    entries_max: usize,
    /// Clients are sampled if their hash has none of these bits. Keyed at random, so that
    /// no client can choose to be left out.
    mask: AtomicU64,
    hasher: foldhash::quality::RandomState,
    /// Clients that are sampled whatever their hash is.
    busy: BusyClients,
    /// Requests since the last tick.
    fresh: Mutex<SecondOfRequests>,
    /// Whether that is full, so that nothing waits to find out.
    is_full: AtomicBool,
    kept: Mutex<RecentState>,
}

/// Entries of one second.
#[derive(Debug, Clone, Default)]
struct SecondOfRequests {
    bytes: Vec<u8>,
    entries: usize,
    mask: u64,
    /// When it was made, in ticks.
    tick: u64,
    last_us: u64,
    /// Whether a request was dropped for lack of room: the sequence is incomplete.
    is_cut: bool,
    /// Clients that were sampled whatever their hash is.
    busy: ClientHashes,
    live: DecidedTotals,
}

/// How many requests passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = PassedAnswer)]
pub struct DecidedTotals {
    /// Those that passed.
    pub allowed: u64,
    /// Those that did not.
    pub limited: u64,
}

#[derive(Debug, Default)]
struct RecentState {
    blocks: VecDeque<Arc<SecondOfRequests>>,
    ticks: u64,
    /// When the share that is kept last changed.
    changed_at: u64,
    /// All that was decided until the last tick.
    decided: DecidedTotals,
}

/// What was kept at one instant.
#[derive(Debug)]
pub struct RequestSample {
    blocks: Vec<Arc<SecondOfRequests>>,
    mask: u64,
    /// How far it reaches back.
    pub seconds: u64,
    /// What was decided in that time, of all clients.
    pub live: DecidedTotals,
}

/// An entry of a sample.
#[derive(Debug, Clone, Copy)]
pub struct SampledRequest<'a> {
    pub entry: EncodedEntry<'a>,
    /// Whether its client is a busy one, which is always sampled and represents only
    /// itself.
    pub is_busy_client: bool,
}

impl RecentRequests {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            mask: AtomicU64::new(0),
            hasher: foldhash::quality::RandomState::default(),
            busy: BusyClients::new(),
            fresh: Mutex::default(),
            is_full: AtomicBool::new(false),
            kept: Mutex::default(),
        }
    }

    pub(super) fn record(&self, seen: &Observation<'_, '_>) {
        if self.entries_max == 0 || self.is_full.load(Ordering::Relaxed) {
            return;
        }
        let client = HashedClient::from_requests(seen.requests, &self.hasher);
        let mask = self.mask.load(Ordering::Relaxed);
        let Some(outcome) = seen.outcomes.first() else { return };
        if client.hash & mask != 0 && !self.busy.contains(client.hash) {
            self.busy.record_dropped(client.hash);
            return;
        }
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
        encoding::encode(&mut fresh.bytes, client, at_us, seen.requests);
    }

    /// To be called once a second, with all that was decided until now.
    pub(super) fn tick(&self, decided: DecidedTotals) {
        if self.entries_max == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        kept.ticks += 1;
        let now = kept.ticks;
        let live = decided.since(kept.decided);
        kept.decided = decided;
        // As much capacity as was needed last, allocated before it is needed.
        let bytes = Vec::with_capacity(kept.blocks.back().map_or(0, |last| last.bytes.len()));
        let mut second = {
            let mut fresh = lock(&self.fresh);
            self.is_full.store(false, Ordering::Relaxed);
            let last_us = fresh.last_us;
            std::mem::replace(&mut *fresh, SecondOfRequests { bytes, last_us, ..SecondOfRequests::default() })
        };
        kept.blocks.retain(|second| second.tick + SECONDS_MAX > now);
        if second.entries > 0 || live != DecidedTotals::default() {
            second.bytes.shrink_to_fit();
            (second.tick, second.mask) = (now, self.mask.load(Ordering::Relaxed));
            (second.busy, second.live) = (self.busy.hashes(), live);
            if second.is_cut || kept.blocks.back().is_some_and(|last| last.is_cut) {
                // The sequences before it have a gap.
                kept.blocks.clear();
            }
            kept.blocks.push_back(Arc::new(second));
        }
        self.busy.tick(live.sum());
        self.evict_to_fit(&mut kept);
        self.keep_more_clients(&mut kept);
    }

    /// The sample until now, with the totals decided. Copies what is not a second old.
    pub(super) fn sample(&self, decided: DecidedTotals) -> RequestSample {
        let kept = lock(&self.kept);
        let live = decided.since(kept.decided);
        let fresh = lock(&self.fresh).clone();
        let mut blocks: Vec<_> = kept.blocks.iter().cloned().collect();
        let seconds = blocks.first().map_or(0, |first| kept.ticks - first.tick) + 1;
        drop(kept);
        if fresh.entries > 0 {
            if fresh.is_cut || blocks.last().is_some_and(|last| last.is_cut) {
                blocks.clear();
            }
            let (mask, busy) = (self.mask.load(Ordering::Relaxed), self.busy.hashes());
            blocks.push(Arc::new(SecondOfRequests { mask, busy, live, ..fresh }));
        }
        let mask = blocks.iter().map(|second| second.mask).max().unwrap_or(0);
        let live = blocks.iter().fold(DecidedTotals::default(), |sum, second| sum.plus(second.live));
        RequestSample { seconds: if blocks.is_empty() { 0 } else { seconds }, blocks, mask, live }
    }

    /// Drops the oldest down to a minute, then leaves out half of the clients, until it
    /// fits. If few clients make most of the requests, the oldest is dropped all the
    /// same.
    fn evict_to_fit(&self, kept: &mut RecentState) {
        while kept.entries() > self.entries_max || kept.bytes() > self.bytes_max() || kept.is_truncated() {
            let mask = self.mask.load(Ordering::Relaxed) << 1 | 1;
            let is_long = kept.blocks.front().is_some_and(|first| first.tick + SECONDS_MIN <= kept.ticks);
            if is_long && !kept.is_truncated() || !self.drop_clients(kept, mask) {
                if kept.blocks.len() < 2 {
                    return;
                }
                kept.blocks.pop_front();
            } else if kept.is_truncated() {
                return;
            }
        }
    }

    /// Leaves out the clients that a mask excludes, except the busiest; not if too few
    /// would be left to represent the others.
    fn drop_clients(&self, kept: &mut RecentState, mask: u64) -> bool {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for entry in kept.blocks.iter().flat_map(|second| EncodedEntry::decode_all(&second.bytes)) {
            *counts.entry(entry.hash()).or_default() += 1;
        }
        let asked = kept.blocks.iter().map(|second| second.live.sum()).sum::<u64>().max(kept.entries() as u64);
        let busy = self.busy.set_busy(&counts, asked);
        let is_left = |hash: &&u64| **hash & mask == 0 && busy.binary_search(hash).is_err();
        if mask > MASK_MAX || counts.keys().filter(is_left).count() < CLIENTS_MIN {
            return false;
        }
        for second in &mut kept.blocks {
            *second = second.without_clients(mask, &busy);
        }
        kept.changed_at = kept.ticks;
        self.mask.store(mask, Ordering::Relaxed);
        true
    }

    /// Keeps twice as many clients again once they fit.
    fn keep_more_clients(&self, kept: &mut RecentState) {
        let mask = self.mask.load(Ordering::Relaxed);
        if mask == 0 || kept.ticks < kept.changed_at + LATELY_S {
            return;
        }
        let lately = || kept.blocks.iter().filter(|second| second.tick + LATELY_S > kept.ticks);
        let grown = (SECONDS_MIN / LATELY_S) as usize * 2;
        let entries = lately().map(|second| second.entries).sum::<usize>() * grown;
        let bytes = lately().map(|second| second.bytes.len()).sum::<usize>() * grown;
        if entries < self.entries_max / 5 * 4 && bytes < self.bytes_max() / 5 * 4 {
            self.mask.store(mask >> 1, Ordering::Relaxed);
            kept.changed_at = kept.ticks;
            if mask == 1 {
                self.busy.clear();
            }
        }
    }

    const fn bytes_max(&self) -> usize {
        self.entries_max * ENTRY_BYTES
    }
}

impl RecentState {
    fn entries(&self) -> usize {
        self.blocks.iter().map(|second| second.entries).sum()
    }

    fn bytes(&self) -> usize {
        self.blocks.iter().map(|second| second.bytes.len()).sum()
    }

    /// Whether a second alone was too much.
    fn is_truncated(&self) -> bool {
        self.blocks.back().is_some_and(|last| last.is_cut && last.tick == self.ticks)
    }
}

impl DecidedTotals {
    pub const fn sum(self) -> u64 {
        self.allowed + self.limited
    }

    const fn plus(self, other: Self) -> Self {
        Self { allowed: self.allowed + other.allowed, limited: self.limited + other.limited }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            limited: self.limited.saturating_sub(before.limited),
        }
    }
}

impl SecondOfRequests {
    /// The same with only the clients that a mask includes, and the busy ones.
    fn without_clients(&self, mask: u64, busy: &ClientHashes) -> Arc<Self> {
        let busy: Vec<u64> = busy.iter().chain(self.busy.iter()).copied().collect();
        let busy = busy_clients::sorted_unique(busy);
        let mut thinned = Self {
            bytes: Vec::new(),
            entries: 0,
            mask: self.mask.max(mask),
            busy: Arc::new(busy),
            tick: self.tick,
            last_us: self.last_us,
            is_cut: self.is_cut,
            live: self.live,
        };
        for entry in EncodedEntry::decode_all(&self.bytes) {
            if entry.hash() & mask == 0 || thinned.is_busy(entry) {
                thinned.bytes.extend_from_slice(entry.bytes());
                thinned.entries += 1;
            }
        }
        Arc::new(thinned)
    }

    fn is_busy(&self, entry: EncodedEntry<'_>) -> bool {
        self.busy.binary_search(&entry.hash()).is_ok()
    }
}

impl RequestSample {
    /// Of clients that are not busy, one in this many was sampled.
    pub const fn sampling_ratio(&self) -> u64 {
        self.mask + 1
    }

    /// The requests, in the order in which they were decided.
    pub fn entries(&self) -> Vec<SampledRequest<'_>> {
        let all = self.blocks.iter().flat_map(|second| {
            let sampled = |entry| SampledRequest { entry, is_busy_client: self.mask == 0 || second.is_busy(entry) };
            EncodedEntry::decode_all(&second.bytes).map(sampled)
        });
        let mut entries: Vec<_> = all.filter(|one| one.is_busy_client || one.entry.hash() & self.mask == 0).collect();
        self.mark_busy(&mut entries);
        entries.sort_by_key(|one| one.entry.at_us());
        entries
    }

    /// A busy client that was sampled by its hash represents only itself too.
    fn mark_busy(&self, entries: &mut [SampledRequest<'_>]) {
        if self.mask == 0 {
            return;
        }
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for one in entries.iter().filter(|one| !one.is_busy_client) {
            *counts.entry(one.entry.hash()).or_default() += 1;
        }
        let total = self.live.sum().max(entries.len() as u64);
        counts.retain(|_, count| *count * busy_clients::SHARE >= total);
        for one in entries.iter_mut() {
            one.is_busy_client |= counts.contains_key(&one.entry.hash());
        }
    }
}

#[cfg(test)]
mod tests;
