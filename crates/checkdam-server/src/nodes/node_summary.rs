//! A node's summary of its own status.

use serde::{Deserialize, Serialize};

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeSummary {
    /// Its machine and port.
    pub(crate) node: String,
    /// The program's version.
    pub(crate) version: String,
    /// For how long it has run.
    pub(crate) uptime_s: u64,
    /// `memory` or `redis`.
    pub(crate) store: String,
    /// The version of its rules; 0 for a file.
    pub(crate) rules_version: u64,
    /// Requests a second, over the last ten.
    pub(crate) requests_per_s: f64,
    /// Of these, requests that did not pass.
    pub(crate) limited_per_s: f64,
    /// Whether it is ready.
    pub(crate) ready: bool,
}

#[cfg(test)]
impl NodeSummary {
    /// Some node.
    pub(super) fn example(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            version: "0.1.0".to_owned(),
            uptime_s: 12,
            store: "redis".to_owned(),
            rules_version: 3,
            requests_per_s: 1.5,
            limited_per_s: 0.5,
            ready: true,
        }
    }
}
