//! Who asks and who is limited most.

use super::Seen;

/// Who asks and who is limited most.
#[derive(Debug)]
pub(crate) struct Top {}

impl Top {
    pub(super) fn new() -> Self {
        Self {}
    }

    /// Requests were decided.
    pub(super) fn note(&self, _seen: &Seen<'_, '_>) {}

    /// To be called once a second.
    pub(super) fn tick(&self) {}
}
