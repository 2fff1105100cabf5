//! Detects the busiest clients, which are always sampled.
//!
//! Clients that are left out are counted by hash in a fixed number of counters. One that
//! reaches the threshold within a second is sampled from then on. Two that share a counter
//! may make one of them count as busy too early, never too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

/// A client is busy if it makes one in this many of all requests.
pub(super) const SHARE: u64 = 128;
/// The most of them.
const BUSY_MAX: usize = 1_024;
/// A client with fewer requests per second is not busy, however little the total is.
const PER_SECOND_MIN: u64 = 8;
const COUNTERS: usize = 4_096;

/// Hashes of clients, in order.
pub(super) type ClientHashes = Arc<Vec<u64>>;

/// The busiest clients, and counts of those left out.
#[derive(Debug)]
pub(super) struct BusyClients {
    hashes: ArcSwap<Vec<u64>>,
    counters: Box<[AtomicU32]>,
    /// So many requests a second make a client busy.
    threshold: AtomicU32,
}

impl BusyClients {
    pub(super) fn new() -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        Self { hashes: ArcSwap::default(), counters, threshold: AtomicU32::new(PER_SECOND_MIN as u32) }
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.hashes.load().binary_search(&hash).is_ok()
    }

    /// Those that are busy now.
    pub(super) fn hashes(&self) -> ClientHashes {
        self.hashes.load_full()
    }

    /// Records that a request of a client was left out.
    pub(super) fn record_dropped(&self, hash: u64) {
        // Other bits than those of the sampling mask.
        let counter = &self.counters[(hash >> 40) as usize % COUNTERS];
        let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(self.threshold.load(Ordering::Relaxed).max(1)) {
            self.hashes.rcu(|hashes| merged(hashes, [hash]));
        }
    }

    /// Ends a second with this many requests.
    pub(super) fn tick(&self, asked: u64) {
        let threshold = (asked / SHARE).max(PER_SECOND_MIN);
        self.threshold.store(u32::try_from(threshold).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Sets the busy clients, by their share of `total`. Those that were busy stay so
    /// until their share has halved.
    pub(super) fn set_busy(&self, counts: &std::collections::HashMap<u64, u64>, total: u64) -> ClientHashes {
        let count = |hash: &u64| counts.get(hash).copied().unwrap_or(0);
        let stay = self.hashes();
        let stay = stay.iter().copied().filter(|hash| count(hash) * SHARE * 2 >= total);
        let come = counts.iter().filter(|(_, count)| **count * SHARE >= total).map(|(hash, _)| *hash);
        let chosen = Arc::new(merged(&stay.collect::<Vec<_>>(), come));
        self.hashes.store(Arc::clone(&chosen));
        chosen
    }

    /// Clients are no longer left out.
    pub(super) fn clear(&self) {
        self.hashes.store(ClientHashes::default());
    }
}

fn merged(hashes: &[u64], more: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut all = sorted_unique(hashes.iter().copied().chain(more).collect());
    all.truncate(BUSY_MAX);
    all
}

/// The same in order, each once.
pub(super) fn sorted_unique(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}
