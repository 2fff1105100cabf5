//! Latency histograms of decisions, by result and by store.
//!
//! Recording adds to two numbers and takes no lock. Exemplars, where enabled, are
//! skipped rather than waited for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::{DECISIONS, STORES};
use super::{Observation, Representative};
use crate::lock;
use crate::traceparent::TraceId;

/// The upper bounds of the buckets in nanoseconds, and as metrics write them: the
/// same in every format, so that a scraper sees one series in either.
pub(crate) const BOUNDS: [(u64, &str); 16] = [
    (1_000, "1e-06"),
    (2_500, "2.5e-06"),
    (5_000, "5e-06"),
    (10_000, "1e-05"),
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (100_000_000, "0.1"),
    (1_000_000_000, "1.0"),
];
/// One more for what took longer.
const BUCKETS: usize = BOUNDS.len() + 1;

/// How long decisions took.
#[derive(Debug)]
pub struct Latencies {
    by_decision: [[LatencySeries; STORES.len()]; DECISIONS.len()],
    /// One per bucket of every series, in that order; none if exemplars are disabled.
    exemplars: Option<Box<[Mutex<Option<Exemplar>>]>>,
}

#[derive(Debug, Default)]
struct LatencySeries {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// A decision that represents others of similar latency.
#[derive(Debug, Clone, Copy)]
pub struct Exemplar {
    pub trace: TraceId,
    pub latency_ns: u64,
    pub at_unix_ms: u64,
}

/// What one series holds.
#[derive(Debug)]
pub struct LatencyCounts {
    pub decision: &'static str,
    pub store: &'static str,
    /// How many in each bucket, not summed up; the last took longer than any bound.
    pub buckets: [u64; BUCKETS],
    pub sum_ns: u64,
    pub exemplars: [Option<Exemplar>; BUCKETS],
}

impl Latencies {
    pub(super) fn new(exemplars: bool) -> Self {
        let places = DECISIONS.len() * STORES.len() * BUCKETS;
        Self {
            by_decision: Default::default(),
            exemplars: exemplars.then(|| (0..places).map(|_| Mutex::default()).collect()),
        }
    }

    pub(super) fn record(&self, seen: &Observation<'_, '_>) {
        let Some(Representative { decision, store, .. }) = seen.representative else { return };
        let (series, latency_ns) = (&self.by_decision[decision][store], latency_ns(seen));
        series.buckets[bucket_index(latency_ns)].fetch_add(1, Ordering::Relaxed);
        series.sum_ns.fetch_add(latency_ns, Ordering::Relaxed);
    }

    pub(super) fn set_trace(&self, seen: &Observation<'_, '_>, trace: TraceId) {
        let (Some(exemplars), Some(Representative { decision, store, .. })) = (&self.exemplars, seen.representative)
        else {
            return;
        };
        let latency_ns = latency_ns(seen);
        let place = first_exemplar_index(decision, store) + bucket_index(latency_ns);
        if let Ok(mut exemplar) = exemplars[place].try_lock() {
            let at_unix_ms = checkdam::time::unix_us() / 1_000;
            *exemplar = Some(Exemplar { trace, latency_ns, at_unix_ms });
        }
    }

    /// Every series that holds something.
    pub fn all(&self) -> Vec<LatencyCounts> {
        let places = (0..DECISIONS.len()).flat_map(|decision| (0..STORES.len()).map(move |store| (decision, store)));
        let counts = places.map(|(decision, store)| {
            let series = &self.by_decision[decision][store];
            LatencyCounts {
                decision: DECISIONS[decision],
                store: STORES[store],
                sum_ns: series.sum_ns.load(Ordering::Relaxed),
                buckets: std::array::from_fn(|bucket| series.buckets[bucket].load(Ordering::Relaxed)),
                exemplars: std::array::from_fn(|bucket| self.exemplar(first_exemplar_index(decision, store) + bucket)),
            }
        });
        counts.filter(|counts| counts.buckets.iter().any(|count| *count > 0)).collect()
    }

    fn exemplar(&self, place: usize) -> Option<Exemplar> {
        *lock(self.exemplars.as_ref()?.get(place)?)
    }
}

/// Where the exemplars of a series begin.
const fn first_exemplar_index(decision: usize, store: usize) -> usize {
    (decision * STORES.len() + store) * BUCKETS
}

fn bucket_index(latency_ns: u64) -> usize {
    BOUNDS.partition_point(|(bound_ns, _)| *bound_ns < latency_ns)
}

fn latency_ns(seen: &Observation<'_, '_>) -> u64 {
    u64::try_from(seen.latency.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        assert_eq!([0, 1_000, 1_001, 2_500].map(bucket_index), [0, 0, 1, 1]);
        assert_eq!(bucket_index(1_000_000_000), BOUNDS.len() - 1);
        assert_eq!(bucket_index(u64::MAX), BOUNDS.len());
    }

    #[test]
    fn bounds_rise_and_are_written_as_they_are() {
        assert!(BOUNDS.is_sorted());
        for (bound_ns, text) in BOUNDS {
            let seconds: f64 = text.parse().unwrap();
            assert!((seconds * 1e9 - bound_ns as f64).abs() < 1e-3, "{text}");
        }
    }
}
