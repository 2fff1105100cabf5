//! What was asked last.

use super::Seen;

/// What was asked last.
#[derive(Debug)]
pub(crate) struct Recent {
    requests_max: usize,
}

impl Recent {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { requests_max }
    }

    /// Requests were decided.
    pub(super) fn note(&self, _seen: &Seen<'_, '_>) {}

    /// To be called once a second.
    pub(super) fn tick(&self) {}
}
