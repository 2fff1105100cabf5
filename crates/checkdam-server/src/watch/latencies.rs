//! How long decisions took.

use super::Seen;

/// How long decisions took.
#[derive(Debug)]
pub(crate) struct Latencies {
    exemplars: bool,
}

impl Latencies {
    pub(super) fn new(exemplars: bool) -> Self {
        Self { exemplars }
    }

    /// Requests were decided.
    pub(super) fn note(&self, _seen: &Seen<'_, '_>) {}

    /// To be called once a second.
    pub(super) fn tick(&self) {}
}
