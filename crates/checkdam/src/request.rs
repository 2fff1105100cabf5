//! A request to decide: a domain, attributes and a cost.

mod limit;

pub use limit::{RequestLimit, Unit};

use std::borrow::Cow;

use smallvec::SmallVec;

/// The longest attribute value in bytes, and with it the longest key.
pub const VALUE_MAX: usize = 512;
/// The longest attribute name in bytes.
pub const NAME_MAX: usize = 64;
/// The most attributes a request may have.
pub const ATTRIBUTES_MAX: usize = 64;
/// The attribute that holds the names of a path.
const PATH_NAMES: &str = "descriptor";

/// A request, borrowed from whatever it arrived in.
///
/// ```
/// use checkdam::Request;
/// let request = Request::new().with("user", "42")?.with("plan", "free")?.costing(3);
/// assert_eq!(request.get("user"), Some("42"));
/// # Ok::<(), checkdam::RequestError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    domain: Cow<'a, str>,
    attributes: SmallVec<[Attribute<'a>; 8]>,
    /// How many of the last attributes are no part of the path.
    added: usize,
    cost: u64,
    given: Option<RequestLimit>,
    is_quota_mode: bool,
    is_metered: bool,
}

type Attribute<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Why a request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// An attribute without a name.
    #[error("an attribute has an empty name: give it one, such as \"user\"")]
    EmptyName,
    /// A name beyond 64 bytes.
    #[error("the attribute name {name:?}… is {length} bytes long: at most {NAME_MAX} fit")]
    NameTooLong {
        /// How the name begins.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// A value beyond 512 bytes.
    #[error("the attribute {name:?} is {length} bytes long: at most {VALUE_MAX} fit")]
    ValueTooLong {
        /// The attribute.
        name: String,
        /// Its value's length in bytes.
        length: usize,
    },
    /// The same name twice.
    #[error("the attribute {name:?} is given twice: give it once")]
    Duplicate {
        /// The attribute.
        name: String,
    },
    /// More than 64 attributes.
    #[error("the request has more than {ATTRIBUTES_MAX} attributes: leave out what no rule needs")]
    TooMany,
}

impl<'a> Request<'a> {
    /// A request without attributes, of cost 1, in no domain.
    #[must_use]
    pub fn new() -> Self {
        Self {
            domain: Cow::Borrowed(""),
            attributes: SmallVec::new(),
            added: 0,
            cost: 1,
            given: None,
            is_quota_mode: false,
            is_metered: false,
        }
    }

    /// A request described by an ordered path of entries, as Envoy does. Names
    /// may repeat, values may be empty, and both may be of any length: a long value
    /// must not make a request unlimited.
    ///
    /// Rules see the entries as attributes, the first of a name if it repeats,
    /// and one more, `descriptor`: the names of the path, joined by commas.
    ///
    /// # Errors
    /// Rejects empty names and more than 63 entries.
    pub fn from_entries<N, V>(
        domain: impl Into<Cow<'a, str>>,
        entries: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, RequestError>
    where
        N: Into<Cow<'a, str>>,
        V: Into<Cow<'a, str>>,
    {
        let mut request = Self::new().in_domain(domain);
        for (name, value) in entries {
            let name = name.into();
            if name.is_empty() {
                return Err(RequestError::EmptyName);
            }
            if request.attributes.len() + 1 == ATTRIBUTES_MAX {
                return Err(RequestError::TooMany);
            }
            request.attributes.push((name, value.into()));
        }
        let names: Vec<&str> = request.path().map(|(name, _)| name).collect();
        let names = names.join(",");
        request.attributes.push((Cow::Borrowed(PATH_NAMES), Cow::Owned(names)));
        request.added = 1;
        Ok(request)
    }

    /// The same request with a limit of its own, which counts instead of the
    /// one that a descriptor tree has for it. Rules do not mind it.
    #[must_use]
    pub const fn with_limit(mut self, limit: RequestLimit) -> Self {
        self.given = Some(limit);
        self
    }

    /// The same request, whose descriptor limits deny only together with those of all
    /// other requests so marked in the same call: each counts as if it were in quota
    /// mode. Rules and bans deny individually.
    #[must_use]
    pub const fn in_quota_mode(mut self) -> Self {
        self.is_quota_mode = true;
        self
    }

    /// The same request, whose cost was used already when it is checked, as that of a
    /// descriptor with its own `hits_addend` (Envoy): a check decides as ever, and charges the
    /// cost whether it fits or not.
    #[must_use]
    pub const fn metered(mut self) -> Self {
        self.is_metered = true;
        self
    }

    /// The same request in a domain: only rules of that domain apply to it.
    #[must_use]
    pub fn in_domain(mut self, domain: impl Into<Cow<'a, str>>) -> Self {
        self.domain = domain.into();
        self
    }

    /// The same request with another cost.
    #[must_use]
    pub const fn costing(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The same request with one attribute more.
    ///
    /// # Errors
    /// Rejects empty, long and repeated names and long values.
    pub fn with(mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Result<Self, RequestError> {
        self.insert(name, value)?;
        Ok(self)
    }

    /// Adds an attribute.
    ///
    /// # Errors
    /// As [`with`](Self::with); the request is then unchanged.
    pub fn insert(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Result<(), RequestError> {
        let (name, value) = (name.into(), value.into());
        if value.len() > VALUE_MAX {
            return Err(RequestError::ValueTooLong { name: name.into_owned(), length: value.len() });
        }
        self.insert_unbounded(name, value)
    }

    /// Adds an attribute whose value may be of any length. For listeners whose
    /// clients choose it: a long value must not make a request unlimited.
    ///
    /// # Errors
    /// As [`with`](Self::with), but for the value's length.
    pub fn insert_unbounded(
        &mut self,
        name: impl Into<Cow<'a, str>>,
        value: impl Into<Cow<'a, str>>,
    ) -> Result<(), RequestError> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() {
            return Err(RequestError::EmptyName);
        }
        if name.len() > NAME_MAX {
            let shown = name.chars().take(32).collect();
            return Err(RequestError::NameTooLong { name: shown, length: name.len() });
        }
        if self.get(&name).is_some() {
            return Err(RequestError::Duplicate { name: name.into_owned() });
        }
        if self.attributes.len() == ATTRIBUTES_MAX {
            return Err(RequestError::TooMany);
        }
        self.attributes.push((name, value));
        if self.added > 0 {
            self.added += 1;
        }
        Ok(())
    }

    /// The domain; empty if there is none.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// How much to charge.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// An attribute's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Its request limit.
    #[must_use]
    pub const fn request_limit(&self) -> Option<RequestLimit> {
        self.given
    }

    /// Whether its descriptor limits deny only together with others.
    #[must_use]
    pub const fn is_quota_mode(&self) -> bool {
        self.is_quota_mode
    }

    /// Whether its cost is charged even if it does not fit.
    #[must_use]
    pub const fn is_metered(&self) -> bool {
        self.is_metered
    }

    /// The path for descriptor trees: every attribute in order, except the one that
    /// [`from_entries`](Self::from_entries) adds.
    pub fn path(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        let length = self.attributes.len() - self.added;
        self.attributes[..length].iter().map(|(name, value)| (&**name, &**value))
    }

    /// Names and values in the order they were added.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Text for people and records, of at most [`VALUE_MAX`] bytes: what is longer
/// keeps its beginning, and ends with a hash of the whole.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    shortened_to(text, VALUE_MAX)
}

/// The same with at most `bytes_max` bytes, which should be 64 or more.
#[must_use]
pub fn shortened_to(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const DIGITS: usize = 32;
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let room = bytes_max.saturating_sub(1 + DIGITS);
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let kept = &text[..end];
    let hash = blake3::hash(text.as_bytes()).to_hex();
    Cow::Owned(format!("{kept}~{}", &hash[..DIGITS]))
}

/// The keyed hash of a secret for records: it reveals only whether two are equal.
/// With an empty `key` a guess of the text can be verified.
#[must_use]
pub fn hashed(text: &str, key: &str) -> String {
    const DIGITS: usize = 16;
    let key = blake3::derive_key("checkdam 2026-11 attributes in records", key.as_bytes());
    let hash = blake3::keyed_hash(&key, text.as_bytes()).to_hex();
    format!("#{}", &hash[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_the_same_from_the_other_and_goes_by_its_key() {
        let hash = hashed("sk_live_42", "");
        assert!(hash.len() == 17 && hash.starts_with('#') && hash == hashed("sk_live_42", ""), "{hash}");
        assert!(hash != hashed("sk_live_43", "") && hash != hashed("sk_live_42", "another key of 16 bytes"));
    }

    #[test]
    fn long_text_is_shortened_and_stays_apart() {
        let (one, other) = (format!("{}a", "é".repeat(300)), format!("{}b", "é".repeat(300)));
        let (short, other) = (shortened(&one), shortened(&other));
        assert!(short.len() <= VALUE_MAX && short.starts_with("ééé"), "{short}");
        assert_ne!(short, other);
        assert!(shortened_to(&one, 128).len() <= 128 && shortened_to("short", 128) == "short");
        let fits = "x".repeat(VALUE_MAX);
        assert_eq!(shortened(&fits), fits);
    }
}
