//! Atomics and locks: those of `std`, or loom's when a model is checked.

#[cfg(checkdam_loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{Mutex, MutexGuard, atomic::AtomicU64},
    thread::yield_now,
};
#[cfg(not(checkdam_loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{Mutex, MutexGuard, atomic::AtomicU64},
    thread::yield_now,
};

pub(crate) use std::sync::atomic::Ordering;

/// Locks; a panic elsewhere while the lock was held changes nothing here,
/// because no guarded value is ever left half written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits a little longer each round: spins, then yields the processor.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn wait(&mut self) {
        if self.0 < 6 && cfg!(not(checkdam_loom)) {
            for _ in 0..1_u32 << self.0 {
                spin_loop();
            }
            self.0 += 1;
        } else {
            yield_now();
        }
    }
}
