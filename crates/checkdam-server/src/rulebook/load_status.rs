//! Load status: whether the active rules are the newest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether the active rules are the newest.
#[derive(Debug)]
pub(crate) struct ReloadStatus {
    loaded_unix_ms: AtomicU64,
    error: Mutex<Option<String>>,
}

impl ReloadStatus {
    /// The first rules are active.
    pub(crate) fn new() -> Self {
        Self { loaded_unix_ms: AtomicU64::new(now_unix_ms()), error: Mutex::default() }
    }

    /// Newer rules are active.
    pub(crate) fn set_loaded(&self) {
        self.loaded_unix_ms.store(now_unix_ms(), Ordering::Relaxed);
        self.set_error(None);
    }

    /// Sets why newer rules are not active, if there may be any.
    pub(crate) fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Since when the rules are active.
    pub(crate) fn loaded_unix_ms(&self) -> u64 {
        self.loaded_unix_ms.load(Ordering::Relaxed)
    }

    /// Why newer rules are not active.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) fn now_unix_ms() -> u64 {
    checkdam::time::unix_us() / 1_000
}
