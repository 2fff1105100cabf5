//! Key patterns such as `user:{user}`: the subject that a request is counted for.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::request::{NAME_MAX, Request, VALUE_MAX, shortened};
use crate::small_buffer::SmallBuffer;
use crate::subject::SubjectPattern;

/// A key pattern: text with attribute names in braces.
///
/// ```
/// use checkdam::{KeyPattern, Request};
/// let key: KeyPattern = "tenant:{tenant}:user:{user}".parse()?;
/// let request = Request::new().with("tenant", "acme")?.with("user", "42")?;
/// assert_eq!(key.render(&request), "tenant:acme:user:42");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(String),
    Attribute(String),
}

/// Why a key pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyPatternError {
    /// Nothing to name a bucket by.
    #[error("the key is empty: write for example \"user:{{user}}\", or \"global\"")]
    Empty,
    /// Beyond 512 bytes.
    #[error("the key pattern is {length} bytes long: at most {VALUE_MAX} fit")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A brace without its partner.
    #[error("the key {text:?} has an unbalanced brace at byte {at}: write attributes as \"{{name}}\"")]
    Unbalanced {
        /// The pattern.
        text: String,
        /// The position of the brace.
        at: usize,
    },
    /// Braces around something that is no attribute name.
    #[error(
        "the key {text:?} names the attribute {name:?}: use letters, digits, '_', '-' and '.', at most {NAME_MAX} bytes"
    )]
    BadName {
        /// The pattern.
        text: String,
        /// The text in the braces.
        name: String,
    },
}

impl FromStr for KeyPattern {
    type Err = KeyPatternError;

    fn from_str(text: &str) -> Result<Self, KeyPatternError> {
        if text.trim().is_empty() {
            return Err(KeyPatternError::Empty);
        }
        if text.len() > VALUE_MAX {
            return Err(KeyPatternError::TooLong { length: text.len() });
        }
        let unbalanced = |at| KeyPatternError::Unbalanced { text: text.to_owned(), at };
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let literal = rest.find(['{', '}']).unwrap_or(rest.len());
            if literal > 0 {
                parts.push(Part::Text(rest[..literal].to_owned()));
                at += literal;
                continue;
            }
            if rest.starts_with('}') {
                return Err(unbalanced(at));
            }
            let length = rest[1..].find(['{', '}']).ok_or_else(|| unbalanced(at))?;
            if rest.as_bytes()[1 + length] == b'{' {
                return Err(unbalanced(at));
            }
            let name = &rest[1..=length];
            if !is_attribute_name(name) {
                return Err(KeyPatternError::BadName { text: text.to_owned(), name: name.to_owned() });
            }
            parts.push(Part::Attribute(name.to_owned()));
            at += length + 2;
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

pub(crate) fn is_attribute_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_allowed)
}

impl KeyPattern {
    /// A pattern without attributes, braces not interpreted.
    pub(crate) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), parts: vec![Part::Text(text.to_owned())] }
    }

    /// The pattern as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The attributes it names.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Attribute(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The pattern filled with the request's attributes, for people to read.
    /// Different subjects may read alike: buckets are never named by this. Long
    /// values are shortened.
    #[must_use]
    pub fn render(&self, request: &Request<'_>) -> String {
        let mut text = String::with_capacity(self.text.len() + 32);
        self.render_into(request, &mut text);
        text
    }

    /// The pattern, filled with the value of each attribute that it names.
    #[must_use]
    pub fn render_with<'a>(&self, value: impl Fn(&str) -> Cow<'a, str>) -> String {
        let mut text = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Attribute(name) => text.push_str(&value(name)),
            }
        }
        text
    }

    /// The same, written behind what `out` holds.
    pub fn render_into(&self, request: &Request<'_>, out: &mut String) {
        for part in &self.parts {
            match part {
                Part::Text(literal) => out.push_str(literal),
                Part::Attribute(name) => out.push_str(&shortened(request.get(name).unwrap_or_default())),
            }
        }
    }

    /// The same with the values given in order: as [`render`](Self::render), in bytes.
    pub(crate) fn write<'a>(&self, mut values: impl Iterator<Item = &'a str>, out: &mut SmallBuffer) {
        for part in &self.parts {
            let text = match part {
                Part::Text(literal) => literal,
                Part::Attribute(_) => values.next().unwrap_or_default(),
            };
            out.push_str(text);
        }
    }

    /// Every subject that it can name.
    pub(crate) fn subject_pattern(&self) -> SubjectPattern {
        SubjectPattern::from_chunks(self.literals().into_iter().map(str::to_owned).collect())
    }

    /// The text before, between and after its attributes: one more than there are
    /// attributes.
    pub(crate) fn literals(&self) -> Vec<&str> {
        let mut texts = vec![""];
        for part in &self.parts {
            match (part, texts.last_mut()) {
                (Part::Text(literal), Some(last)) => *last = literal,
                _ => texts.push(""),
            }
        }
        texts
    }

    /// The kind of subject: the text before the first colon, otherwise the first
    /// attribute's name.
    #[must_use]
    pub(crate) fn scope(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(literal)) => literal.split(':').next().unwrap_or(literal),
            Some(Part::Attribute(name)) => name,
            None => "",
        }
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}
