//! Slots that denied recently: they are called first, so that a request that will be
//! denied reserves nothing in other slots.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Slots share entries; a wrong guess costs only a reservation.
const PLACES: usize = 1_024;

/// Until when slots deny, as far as is known.
#[derive(Debug)]
pub(super) struct RecentDenials {
    started: Instant,
    until_us: Box<[AtomicU64]>,
}

impl RecentDenials {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), until_us: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn denied(&self, slot: u16, wait_us: u64) {
        self.place(slot).store(self.now_us().saturating_add(wait_us), Ordering::Relaxed);
    }

    /// How much longer the slot denies; 0 if it is not known to.
    pub(super) fn wait_us(&self, slot: u16) -> u64 {
        self.place(slot).load(Ordering::Relaxed).saturating_sub(self.now_us())
    }

    fn place(&self, slot: u16) -> &AtomicU64 {
        &self.until_us[usize::from(slot) % PLACES]
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}
