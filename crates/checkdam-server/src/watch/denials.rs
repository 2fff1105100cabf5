//! Logs some of the denials.

use super::Seen;

/// Logs some of the denials.
#[derive(Debug)]
pub(crate) struct Denials {
    log_denials: u32,
}

impl Denials {
    pub(super) fn new(log_denials: u32) -> Self {
        Self { log_denials }
    }

    /// Requests were decided.
    pub(super) fn note(&self, _seen: &Seen<'_, '_>) {}

    /// To be called once a second.
    pub(super) fn tick(&self) {}
}
