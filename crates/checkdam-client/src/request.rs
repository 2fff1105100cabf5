//! A request to check: attributes and a cost.

use std::collections::BTreeMap;

use serde::Serialize;

/// A request to the limiter: attributes and a cost. The server validates it; the
/// client sends it as it is.
///
/// ```
/// use checkdam_client::Request;
/// let request = Request::new().with("user", "42").with("plan", "free").costing(3);
/// # drop(request);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    #[serde(skip_serializing_if = "String::is_empty")]
    domain: String,
    attributes: BTreeMap<String, String>,
    cost: u64,
}

impl Request {
    /// A request without attributes, of cost 1, in no domain.
    #[must_use]
    pub const fn new() -> Self {
        Self { domain: String::new(), attributes: BTreeMap::new(), cost: 1 }
    }

    /// The same request with an attribute, which replaces one of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// The same request with another cost.
    #[must_use]
    pub const fn costing(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The same request in a domain: only rules of that domain apply to it.
    #[must_use]
    pub fn in_domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = domain.into();
        self
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}
