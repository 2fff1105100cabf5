//! Patterns for paths and other text: `/users/{id}`, `/static/*`, `bot-*`.

use std::fmt;

/// A pattern: `{name}` matches one whole path segment, `*` any run of characters,
/// slashes included.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: String,
    /// The text between the stars, in order.
    chunks: Vec<Chunk>,
}

/// A run of text and whole segments: from where it begins, where it ends is
/// determined, and a later beginning never ends earlier. So the leftmost match
/// of each chunk is always the right one, and matching needs no backtracking.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Chunk(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Piece {
    Text(String),
    Segment,
}

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A brace without its partner.
    #[error("the pattern {text:?} has an unbalanced brace: write a path segment as \"{{name}}\"")]
    Unbalanced {
        /// The pattern.
        text: String,
    },
    /// An address with a length that is none.
    #[error("{text:?} is no network: write for example 10.0.0.0/8 or fd00::/8, or compare it as text with equals")]
    BadNetwork {
        /// The text.
        text: String,
    },
    /// Braces that do not fill a segment.
    #[error("in the pattern {text:?} braces must fill a whole path segment, as in \"/users/{{id}}/posts\"")]
    PartialSegment {
        /// The pattern.
        text: String,
    },
}

impl Pattern {
    /// Whether text is meant as a pattern.
    #[must_use]
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['{', '}', '*'])
    }

    /// Compiles a pattern.
    ///
    /// # Errors
    /// Rejects unbalanced braces and braces that do not fill a segment.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut chunks = Vec::new();
        let mut begin = 0;
        for chunk in text.split('*') {
            let before = text[..begin].chars().next_back();
            let after = text[begin + chunk.len()..].chars().next();
            chunks.push(Chunk::new(text, chunk, before, after)?);
            begin += chunk.len() + 1;
        }
        Ok(Self { text: text.to_owned(), chunks })
    }

    /// Whether `value` matches.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        let Some((first, rest)) = self.chunks.split_first() else { return value.is_empty() };
        let Some(mut at) = first.end(value, 0) else { return false };
        let Some((last, middle)) = rest.split_last() else { return at == value.len() };
        for chunk in middle {
            let Some(end) = value_positions(value, at).find_map(|from| chunk.end(value, from)) else { return false };
            at = end;
        }
        last.0.is_empty() || value_positions(value, at).any(|from| last.end(value, from) == Some(value.len()))
    }

    /// The text that every match begins with.
    #[must_use]
    pub(crate) fn prefix(&self) -> &str {
        match self.chunks.first().and_then(|chunk| chunk.0.first()) {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Chunk {
    fn new(text: &str, chunk: &str, before: Option<char>, after: Option<char>) -> Result<Self, PatternError> {
        let unbalanced = || PatternError::Unbalanced { text: text.to_owned() };
        let mut pieces = Vec::new();
        let mut rest = chunk;
        let mut previous = before;
        while !rest.is_empty() {
            let literal = rest.find(['{', '}']).unwrap_or(rest.len());
            if literal > 0 {
                previous = rest[..literal].chars().next_back();
                pieces.push(Piece::Text(rest[..literal].to_owned()));
                rest = &rest[literal..];
                continue;
            }
            let length = rest.strip_prefix('{').and_then(|inner| inner.find(['{', '}'])).ok_or_else(unbalanced)?;
            if length == 0 || rest.as_bytes()[1 + length] == b'{' {
                return Err(unbalanced());
            }
            rest = &rest[length + 2..];
            let next = rest.chars().next().or(after);
            if previous.is_some_and(|c| c != '/') || next.is_some_and(|c| c != '/') {
                return Err(PatternError::PartialSegment { text: text.to_owned() });
            }
            previous = Some('}');
            pieces.push(Piece::Segment);
        }
        Ok(Self(pieces))
    }

    /// Where the chunk ends in `value` if it begins at `from`.
    fn end(&self, value: &str, from: usize) -> Option<usize> {
        self.0.iter().try_fold(from, |at, piece| match piece {
            Piece::Text(text) => value[at..].starts_with(text.as_str()).then(|| at + text.len()),
            Piece::Segment => {
                let length = value[at..].find('/').unwrap_or(value.len() - at);
                (length > 0).then_some(at + length)
            }
        })
    }
}

fn value_positions(value: &str, from: usize) -> impl Iterator<Item = usize> {
    (from..=value.len()).filter(|at| value.is_char_boundary(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        let table = [
            ("/users/{id}", "/users/42", true),
            ("/users/{id}", "/users/", false),
            ("/users/{id}", "/users/42/posts", false),
            ("/users/{id}/posts", "/users/42/posts", true),
            ("/users/{id}/posts", "/users/posts", false),
            ("/static/*", "/static/", true),
            ("/static/*", "/static/a/b.css", true),
            ("/static/*", "/statics", false),
            ("*", "", true),
            ("*", "anything", true),
            ("bot-*", "bot-7", true),
            ("*.png", "/a/b.png", true),
            ("*.png", "/a/b.png.txt", false),
            ("*.png*", "/a/b.png.txt", true),
            ("a*b*a", "aba", true),
            ("a*b*a", "aa", false),
            ("a*ab", "aab", true),
            ("a*ab", "ab", false),
            ("/v1/*/items/{id}", "/v1/x/y/items/7", true),
            ("/v1/*/items/{id}", "/v1/items/items/7", true),
            ("/v1/*/items/{id}", "/v1/items/7", false),
            ("*é", "aé", true),
            ("{a}", "one", true),
            ("{a}", "one/two", false),
        ];
        for (pattern, value, expected) in table {
            assert_eq!(Pattern::new(pattern).unwrap().matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for text in ["/users/{id", "/users/id}", "/users/{}", "/users/{{id}}", "/v{n}/x", "/{a}{b}", "/{a}*", "*{a}"] {
            let error = Pattern::new(text).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
