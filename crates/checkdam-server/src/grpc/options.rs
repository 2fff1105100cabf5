//! How the rate limit service answers.

/// How the rate limit service answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RateLimitOptions {
    /// Whether every request passes; where its descriptors stand is told all
    /// the same. Default false.
    pub(crate) is_shadow: bool,
    /// Whether a request is denied only if all of its descriptors are over their
    /// limits. Default false.
    pub(crate) is_quota: bool,
    /// The headers that Envoy shall add to its client's answer. Default none,
    /// since Envoy can make them itself.
    pub(crate) headers: Option<HeaderNames>,
    /// Whether the answer tells Envoy's other filters what was asked, and the
    /// metadata of the limits that let it pass. Default false.
    pub(crate) has_metadata: bool,
}

/// The names of the three headers, in the order of [`HeaderNames::DEFAULT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderNames {
    /// What the limit is.
    pub(crate) limit: String,
    /// What is left of it.
    pub(crate) remaining: String,
    /// In how many seconds it is whole again, or the next request would pass.
    pub(crate) reset: String,
}

impl HeaderNames {
    /// As envoyproxy/ratelimit calls them.
    pub(crate) const DEFAULT: [&str; 3] = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];

    /// Headers of these names; none if one could not be a header's.
    pub(crate) fn new([limit, remaining, reset]: [&str; 3]) -> Option<Self> {
        let read = |name: &str| axum::http::HeaderName::try_from(name).ok().map(|_| name.to_owned());
        Some(Self { limit: read(limit)?, remaining: read(remaining)?, reset: read(reset)? })
    }
}
