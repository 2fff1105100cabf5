//! What passed in the last minutes and hours, by rule.

use super::Counters;

/// What passed in the last minutes and hours, by rule.
#[derive(Debug)]
pub(crate) struct Traffic {}

impl Traffic {
    pub(super) fn new() -> Self {
        Self {}
    }

    /// To be called once a second.
    pub(super) fn tick(&self, _counters: &Counters) {}
}
