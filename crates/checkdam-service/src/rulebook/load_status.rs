//! Load status: whether the active rules are the newest.

use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the active rules are the newest.
#[derive(Debug)]
pub struct ReloadStatus {
    loaded_unix_ms: AtomicU64,
    error: Mutex<Option<String>>,
}

impl ReloadStatus {
    /// The first rules are active.
    pub fn new() -> Self {
        Self { loaded_unix_ms: AtomicU64::new(now_unix_ms()), error: Mutex::default() }
    }

    /// Newer rules are active.
    pub fn set_loaded(&self) {
        self.loaded_unix_ms.store(now_unix_ms(), Ordering::Relaxed);
        self.set_error(None);
    }

    /// Sets why newer rules are not active, if there may be any.
    pub fn set_error(&self, error: Option<String>) {
        *lock(&self.error) = error;
    }

    /// Since when the rules are active.
    pub fn loaded_unix_ms(&self) -> u64 {
        self.loaded_unix_ms.load(Ordering::Relaxed)
    }

    /// Why newer rules are not active.
    pub fn error(&self) -> Option<String> {
        lock(&self.error).clone()
    }
}

pub(super) fn now_unix_ms() -> u64 {
    checkdam::time::unix_us() / 1_000
}
