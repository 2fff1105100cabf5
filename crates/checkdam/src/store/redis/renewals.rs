//! Whether a bucket's TTL must be set anew with every take.
//!
//! A key is made with a TTL of twice its bucket's capacity, and the script sets
//! it anew as the bucket needs it. A key that was made for a smaller capacity
//! has too short a TTL for that: so for as long as such a key may be left after
//! a capacity is first seen here, every take sets the TTL.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::store::Tier;

/// Buckets of different names share places: then the TTL is set too often.
const PLACES: usize = 4_096;

/// Which capacities were seen, and until when their TTLs are set anew.
#[derive(Debug)]
pub(super) struct Renewals {
    /// In tests on a clock that is set, time means nothing here.
    always: bool,
    started: Instant,
    seen: Box<[Mutex<Seen>]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    name: u64,
    capacity: u64,
    until_us: u64,
}

impl Renewals {
    pub(super) fn new(always: bool) -> Self {
        Self { always, started: Instant::now(), seen: (0..PLACES).map(|_| Mutex::default()).collect() }
    }

    pub(super) fn is_due(&self, tier: &Tier<'_>) -> bool {
        self.always
            || self.is_due_at(tier.bucket.hash(), tier.quota.capacity, self.started.elapsed().as_micros() as u64)
    }

    fn is_due_at(&self, name: u64, capacity: u64, now_us: u64) -> bool {
        let place = &self.seen[name as usize % PLACES];
        let mut seen = place.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.name != name || seen.capacity != capacity {
            // What was owed under any smaller capacity is paid by then.
            *seen = Seen { name, capacity, until_us: now_us.saturating_add(capacity.saturating_mul(2)) };
        }
        now_us < seen.until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_renewed_for_two_capacities_after_a_change() {
        let renewals = Renewals::new(false);
        assert!(renewals.is_due_at(7, 100, 0) && renewals.is_due_at(7, 100, 199));
        assert!(!renewals.is_due_at(7, 100, 200));
        assert!(renewals.is_due_at(7, 150, 200), "another capacity");
        assert!(!renewals.is_due_at(7, 150, 500));
        let neighbour = 7 + PLACES as u64;
        assert!(renewals.is_due_at(neighbour, 150, 500) && renewals.is_due_at(7, 150, 500), "they share a place");
    }
}
