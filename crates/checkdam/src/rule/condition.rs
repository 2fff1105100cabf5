//! Conditions: which requests a rule applies to.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::pattern::{Pattern, PatternError};

/// What one attribute must be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Present, and matched by one of these.
    In(Vec<Matcher>),
    /// Matched by none of these; an absent attribute is.
    NotIn(Vec<Matcher>),
    /// Present (true) or absent (false).
    Present(bool),
}

/// What a value is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Matcher {
    /// Exactly this text.
    Exact(String),
    /// A pattern.
    Pattern(Pattern),
    /// An address in this network; an IPv4 address in IPv6 clothes counts as IPv4.
    Network(IpNet),
}

/// What an index can find a matcher by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IndexKey<'a> {
    /// Exactly this text.
    Exact(&'a str),
    /// An address in this network.
    Network(IpNet),
    /// Text that begins so.
    Prefix(&'a str),
}

impl Matcher {
    /// Reads what a rule says: a network in CIDR form, a pattern if it has
    /// braces or stars, else exact text.
    ///
    /// # Errors
    /// Rejects a bad pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(canonical_network(network.trunc())));
        }
        if Pattern::is_pattern(text) {
            return Pattern::new(text).map(Self::Pattern);
        }
        if text.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok()) {
            return Err(PatternError::BadNetwork { text: text.to_owned() });
        }
        Ok(Self::Exact(text.to_owned()))
    }

    /// The key by which an index can find it, if it is selective.
    fn index_key(&self) -> Option<IndexKey<'_>> {
        match self {
            Self::Exact(text) => Some(IndexKey::Exact(text)),
            Self::Pattern(pattern) => Some(pattern.prefix()).filter(|prefix| !prefix.is_empty()).map(IndexKey::Prefix),
            Self::Network(network) => Some(IndexKey::Network(*network)),
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => text == value,
            Self::Pattern(pattern) => pattern.matches(value),
            Self::Network(network) => parse_network(value).is_some_and(|own| network.contains(&own)),
        }
    }
}

/// What a value names: an address, or a network, as Envoy writes masked addresses.
pub(crate) fn parse_network(value: &str) -> Option<IpNet> {
    match value.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address.to_canonical())),
        Err(_) if value.contains('/') => value.parse::<IpNet>().ok().map(|network| canonical_network(network.trunc())),
        Err(_) => None,
    }
}

/// A network of IPv4 addresses in IPv6 clothes as the IPv4 network that it is.
pub(crate) fn canonical_network(network: IpNet) -> IpNet {
    let IpNet::V6(six) = network else { return network };
    let four = six.addr().to_ipv4_mapped().zip(six.prefix_len().checked_sub(96));
    four.and_then(|(address, length)| Ipv4Net::new(address, length).ok()).map_or(network, IpNet::V4)
}

impl std::fmt::Display for Matcher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(text) => out.write_str(text),
            Self::Pattern(pattern) => pattern.fmt(out),
            Self::Network(network) => network.fmt(out),
        }
    }
}

impl Condition {
    /// Exactly this value.
    #[must_use]
    pub fn is(value: impl Into<String>) -> Self {
        Self::In(vec![Matcher::Exact(value.into())])
    }

    /// Whether it holds for a value, or for none.
    #[must_use]
    pub fn holds(&self, value: Option<&str>) -> bool {
        let is_matched =
            |matchers: &[Matcher]| value.is_some_and(|value| matchers.iter().any(|matcher| matcher.matches(value)));
        match self {
            Self::In(matchers) => is_matched(matchers),
            Self::NotIn(matchers) => !is_matched(matchers),
            Self::Present(expected) => value.is_some() == *expected,
        }
    }

    /// What an index can find it by: it holds only for values that one of these
    /// matches. `None` if it may hold for any, or for none.
    pub(crate) fn index_keys(&self) -> Option<Vec<IndexKey<'_>>> {
        let Self::In(matchers) = self else { return None };
        matchers.iter().map(Matcher::index_key).collect()
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |matchers: &[Matcher]| matchers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::In(matchers) if matchers.len() == 1 => write!(out, "is {}", list(matchers)),
            Self::In(matchers) => write!(out, "is one of {}", list(matchers)),
            Self::NotIn(matchers) if matchers.len() == 1 => write!(out, "is not {}", list(matchers)),
            Self::NotIn(matchers) => write!(out, "is none of {}", list(matchers)),
            Self::Present(true) => out.write_str("is present"),
            Self::Present(false) => out.write_str("is absent"),
        }
    }
}
