//! What is asked about: a domain, attributes and a cost.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The longest attribute value in bytes, and with it the longest key.
pub const VALUE_MAX: usize = 512;
/// The longest attribute name in bytes.
pub const NAME_MAX: usize = 64;
/// The most attributes a request may have.
pub const ATTRIBUTES_MAX: usize = 64;

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
    cost: u64,
}

type Attribute<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Why a request was refused before it was looked at.
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
        Self { domain: Cow::Borrowed(""), attributes: SmallVec::new(), cost: 1 }
    }

    /// The same request in a domain: only rules of that domain concern it.
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
    /// Refuses empty, long and repeated names and long values.
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
        if name.is_empty() {
            return Err(RequestError::EmptyName);
        }
        if name.len() > NAME_MAX {
            let shown = name.chars().take(32).collect();
            return Err(RequestError::NameTooLong { name: shown, length: name.len() });
        }
        if value.len() > VALUE_MAX {
            return Err(RequestError::ValueTooLong { name: name.into_owned(), length: value.len() });
        }
        if self.get(&name).is_some() {
            return Err(RequestError::Duplicate { name: name.into_owned() });
        }
        if self.attributes.len() == ATTRIBUTES_MAX {
            return Err(RequestError::TooMany);
        }
        self.attributes.push((name, value));
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
