//! What a node says of itself.

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
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
    /// Whether it wants requests.
    pub(crate) ready: bool,
}
