//! A ban: subjects that are always denied, with a reason and an optional end. Plain
//! data.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::request::VALUE_MAX;
#[cfg(feature = "yaml")]
use crate::rule::spec_parts::{SpecError, filled};
use crate::rule::{canonical_network, is_attribute_name};
use crate::subject::SubjectPattern;
use crate::time::{EPOCH_UNIX_US, SECOND_US, UNIX_S_MAX};
#[cfg(feature = "yaml")]
use crate::time::{parse_rfc3339, rfc3339};

/// The longest reason of a ban in bytes.
pub const REASON_MAX: usize = 1_024;

/// Requests whose attribute has a banned value are denied before any rule is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    /// The attribute that is compared.
    pub attribute: String,
    /// Its values that are banned.
    pub value: BannedValue,
    /// When it ends, in seconds since 1970; never if absent.
    pub until_unix_s: Option<u64>,
    /// Why, as shown to operators.
    pub reason: String,
}

/// Which values are banned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BannedValue {
    /// One text or, with `*`, many.
    Text(SubjectPattern),
    /// The addresses of a network, however they are spelled; one address is a
    /// network too.
    Network(IpNet),
}

/// Why a ban's subject is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BanError {
    /// There is no `attribute:` in front.
    #[error("the subject {text:?} names no attribute: write for example \"user:42\" or \"ip:198.51.100.0/24\"")]
    NoAttribute {
        /// The subject.
        text: String,
    },
    /// The text before the colon is not an attribute name.
    #[error("the subject {text:?} names the attribute {name:?}: use letters, digits, '_', '-' and '.'")]
    BadAttribute {
        /// The subject.
        text: String,
        /// The name.
        name: String,
    },
    /// Nothing behind the colon.
    #[error("the subject {text:?} names no value: write \"{text}*\" to ban every value")]
    NoValue {
        /// The subject.
        text: String,
    },
    /// No request can have so long a value.
    #[error("the value is {length} bytes long: at most {VALUE_MAX} fit")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// An address with a length that is none.
    #[error("{text:?} is no network: write for example 198.51.100.0/24 or 2001:db8::/32")]
    BadNetwork {
        /// The text.
        text: String,
    },
}

impl Ban {
    /// A ban for ever, without a reason. The subject is an attribute and its
    /// value: `user:42`, `user:bot-*`, `ip:198.51.100.0/24`.
    ///
    /// # Errors
    /// Rejects subjects that name no attribute or no value.
    pub fn new(subject: &str) -> Result<Self, BanError> {
        let text = || subject.chars().take(80).collect::<String>();
        let (attribute, value) = subject.split_once(':').ok_or_else(|| BanError::NoAttribute { text: text() })?;
        if !is_attribute_name(attribute) {
            return Err(BanError::BadAttribute { text: text(), name: attribute.chars().take(80).collect() });
        }
        if value.is_empty() {
            return Err(BanError::NoValue { text: text() });
        }
        let value = BannedValue::parse(value)?;
        Ok(Self { attribute: attribute.to_owned(), value, until_unix_s: None, reason: String::new() })
    }

    /// The subject as it is written.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{}:{}", self.attribute, self.value)
    }

    /// When it ends in our time; `u64::MAX` if never.
    pub(crate) fn until_us(&self) -> u64 {
        let in_our_time = |unix_s: u64| unix_s.saturating_mul(SECOND_US).saturating_sub(EPOCH_UNIX_US);
        self.until_unix_s.map_or(u64::MAX, in_our_time)
    }

    /// Why it cannot be part of a set.
    pub(crate) fn invalid_reason(&self) -> Option<String> {
        if !is_attribute_name(&self.attribute) {
            return Some("it names no attribute: write for example \"user:42\"".to_owned());
        }
        if BannedValue::parse(&self.value.to_string()).as_ref() != Ok(&self.value) {
            return Some("its value reads like a network, which it is not: no text can tell them apart".to_owned());
        }
        if self.until_unix_s.is_some_and(|until| until > UNIX_S_MAX) {
            return Some("until lies beyond the year 9999: leave it out to ban for ever".to_owned());
        }
        let length = self.reason.len();
        (length > REASON_MAX).then(|| format!("the reason is {length} bytes long: at most {REASON_MAX} fit"))
    }
}

impl BannedValue {
    /// Reads a network in CIDR form, an address, or text with stars.
    ///
    /// # Errors
    /// Rejects networks with bad lengths, and text that is too long.
    pub fn parse(text: &str) -> Result<Self, BanError> {
        if text.len() > VALUE_MAX {
            return Err(BanError::TooLong { length: text.len() });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(canonical_network(address.into())));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(canonical_network(network.trunc())));
        }
        let is_network = |(address, _): (&str, &str)| address.parse::<IpAddr>().is_ok();
        if !text.contains('*') && text.split_once('/').is_some_and(is_network) {
            return Err(BanError::BadNetwork { text: text.to_owned() });
        }
        Ok(Self::Text(SubjectPattern::parse(text)))
    }

    /// Exactly this value of an attribute, wildcards not interpreted.
    #[must_use]
    pub fn exact(value: &str) -> Self {
        match value.parse::<IpAddr>() {
            Ok(address) => Self::Network(canonical_network(address.into())),
            Err(_) => Self::Text(SubjectPattern::exact(value)),
        }
    }
}

impl fmt::Display for BannedValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(out),
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => network.addr().fmt(out),
            Self::Network(network) => network.fmt(out),
        }
    }
}

/// A ban as it is written: in rule files, in the admin API and in databases.
#[cfg(feature = "yaml")]
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(
    as = BanBody,
    description = "A ban.",
    example = json!({"subject": "ip:198.51.100.0/24", "until": "2026-12-01T00:00:00Z", "reason": "scraping"})
))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BanSpec {
    /// An attribute and its value: `user:42`, `user:bot-*`, `ip:198.51.100.0/24`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub subject: Option<String>,
    /// When it ends; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub until: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: Option<String>,
}

#[cfg(feature = "yaml")]
impl TryFrom<BanSpec> for Ban {
    type Error = SpecError;

    fn try_from(spec: BanSpec) -> Result<Self, SpecError> {
        let Some(subject) = spec.subject else {
            return Err(SpecError::new("the ban has no subject: write for example subject: \"user:42\""));
        };
        let named = |error: SpecError| error.about(format!("ban {subject:?}"));
        let mut ban = Self::new(&subject).map_err(|error| named(SpecError::at("subject", error.to_string())))?;
        ban.reason = spec.reason.unwrap_or_default();
        if let Some(until) = spec.until {
            let reason = || format!("until {until:?} is not a time: write for example \"2026-12-01T00:00:00Z\"");
            let unix_s = parse_rfc3339(&until).ok_or_else(|| named(SpecError::at("until", reason())))?;
            ban.until_unix_s = Some(unix_s);
        }
        Ok(ban)
    }
}

#[cfg(feature = "yaml")]
impl From<&Ban> for BanSpec {
    fn from(ban: &Ban) -> Self {
        Self { subject: Some(ban.subject()), until: ban.until_unix_s.map(rfc3339), reason: filled(&ban.reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_bans_are_read_and_written() {
        let table = [
            ("user:42", "user:42"),
            ("user:bot-*", "user:bot-*"),
            ("ip:198.51.100.0/24", "ip:198.51.100.0/24"),
            ("ip:198.51.100.7/24", "ip:198.51.100.0/24"),
            ("ip:198.51.100.7", "ip:198.51.100.7"),
            ("ip:198.51.100.7/32", "ip:198.51.100.7"),
            ("ip:::ffff:198.51.100.7", "ip:198.51.100.7"),
            ("ip:2001:DB8:0:0::/32", "ip:2001:db8::/32"),
            ("api_key:a:b", "api_key:a:b"),
        ];
        for (subject, written) in table {
            let ban = Ban::new(subject).unwrap();
            assert_eq!(ban.subject(), written, "{subject}");
            assert_eq!(Ban::new(written).unwrap(), ban);
        }
        for subject in ["42", "", ":42", "user:", "a b:c", "ip:10.0.0.0/33"] {
            assert!(Ban::new(subject).is_err(), "{subject}");
        }
    }
}
