//! Bearer tokens ([RFC 6750](https://www.rfc-editor.org/rfc/rfc6750)).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderValue};

use super::token_files;

/// A shorter token could be guessed.
const TOKEN_MIN: usize = 16;
const SCHEME: &[u8] = b"Bearer ";

/// Why tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: std::io::Error },
    #[error("the file {path:?} should contain a secret and is empty")]
    EmptyFile { path: String },
    #[error("{what} {reason}: use at least {TOKEN_MIN} printable characters without spaces")]
    Weak { what: String, reason: String },
    #[error(
        "{what} is the same as {other}: give api_token, admin_token and each entry of [[admin_tokens]] a token of its own"
    )]
    Shared { what: String, other: String },
}

/// Tokens of which each is accepted, so that a new one can be introduced before the old
/// one is withdrawn. Those of a file are replaced when the file changes.
pub struct TokenSet {
    /// What the tokens are for, as messages call them.
    what: String,
    active: ArcSwap<Vec<Token>>,
    file: Option<PathBuf>,
    separators: Separators,
}

/// What separates several tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separators {
    /// The ends of lines.
    Lines,
    /// Commas, and the ends of lines.
    CommasAndLines,
}

#[derive(PartialEq, Eq)]
struct Token(String);

impl TokenSet {
    /// The tokens in a text; `what` is what messages call them.
    pub fn parse(what: &str, text: &str, separators: Separators) -> Result<Self, TokenError> {
        let active = ArcSwap::from_pointee(tokens(what, text, separators)?);
        Ok(Self { what: what.to_owned(), active, file: None, separators })
    }

    /// The tokens in a file.
    pub fn from_file(what: &str, path: &Path, separators: Separators) -> Result<Self, TokenError> {
        let text = token_files::read(path)?;
        Ok(Self { file: Some(path.to_owned()), ..Self::parse(what, &text, separators)? })
    }

    /// Whether this is one of the tokens. It takes equally long for every text of a length.
    pub fn contains(&self, given: &[u8]) -> bool {
        let is_equal = |token: &Token| constant_time_eq::constant_time_eq(given, token.0.as_bytes());
        self.active.load().iter().fold(false, |is_found, token| is_found | is_equal(token))
    }

    /// Whether both have a token in common.
    pub fn shares_a_token(&self, other: &Self) -> bool {
        self.active.load().iter().any(|token| other.contains(token.0.as_bytes()))
    }

    /// An error if one of the others has a token of these: nobody could tell whose it is.
    pub fn require_distinct<'a>(&self, mut others: impl Iterator<Item = &'a Arc<Self>>) -> Result<(), TokenError> {
        others.find(|other| self.shares_a_token(other)).map_or(Ok(()), |other| Err(self.shared_with(other)))
    }

    fn shared_with(&self, other: &Self) -> TokenError {
        TokenError::Shared { what: self.what.clone(), other: other.what.clone() }
    }

    /// The file that the tokens come from.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What the tokens are for.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Replaces the tokens by those in a text, unless they are the same or invalid, or one is
    /// among the others'; returns how many there are now, if they were replaced.
    pub(super) fn replace(&self, text: &str, others: &[Arc<Self>]) -> Result<Option<usize>, TokenError> {
        let tokens = tokens(&self.what, text, self.separators)?;
        if tokens == **self.active.load() {
            return Ok(None);
        }
        let is_shared = |other: &&Arc<Self>| tokens.iter().any(|token| other.contains(token.0.as_bytes()));
        if let Some(other) = others.iter().find(is_shared) {
            return Err(self.shared_with(other));
        }
        let count = tokens.len();
        self.active.store(Arc::new(tokens));
        Ok(Some(count))
    }
}

impl fmt::Debug for TokenSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TokenSet(…)")
    }
}

/// The token that a request carries in `Authorization: Bearer`.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)?;
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii_start())
}

fn tokens(what: &str, text: &str, separators: Separators) -> Result<Vec<Token>, TokenError> {
    let weak = |reason: String| TokenError::Weak { what: what.to_owned(), reason };
    let is_separator = |character| {
        character == '\n' || character == '\r' || (character == ',' && separators == Separators::CommasAndLines)
    };
    let mut tokens = Vec::new();
    for token in text.trim_end().split(is_separator).filter(|token| !token.is_empty()) {
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(weak("has a character that no header can carry".to_owned()));
        }
        if token.len() < TOKEN_MIN {
            return Err(weak(format!("has {} characters", token.len())));
        }
        tokens.push(Token(token.to_owned()));
    }
    if tokens.is_empty() { Err(weak("has 0 characters".to_owned())) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "0123456789abcdef";
    const SECOND: &str = "fedcba9876543210";

    fn api(text: &str) -> Result<TokenSet, String> {
        TokenSet::parse("the API token", text, Separators::CommasAndLines).map_err(|error| error.to_string())
    }

    #[test]
    fn several_tokens_are_separated_by_commas_or_lines() {
        for text in [format!("{FIRST},{SECOND}"), format!("{FIRST}\n{SECOND}\n"), format!("{FIRST}\r\n\r\n{SECOND},")] {
            let tokens = api(&text).unwrap();
            assert!(tokens.contains(FIRST.as_bytes()) && tokens.contains(SECOND.as_bytes()), "{text:?}");
            assert!(!tokens.contains(b"") && !tokens.contains(text.as_bytes()), "{text:?}");
            assert!(!tokens.contains(&FIRST.as_bytes()[1..]), "{text:?}");
        }
        let admin = TokenSet::parse("the admin token", "0123456789,abcdef", Separators::Lines).unwrap();
        assert!(admin.contains(b"0123456789,abcdef"), "a comma may be a part of an admin token");
    }

    #[test]
    fn weak_tokens_are_rejected_and_not_shown() {
        for (text, reason) in [
            ("", "0 characters"),
            (",\n", "0 characters"),
            ("short", "5 characters"),
            ("0123456789abcdef,short", "5 characters"),
            ("with spaces in the token", "a character that no header can carry"),
            ("with-a-letter-ä-beyond-ascii", "a character that no header can carry"),
        ] {
            let error = api(text).unwrap_err();
            assert!(error.contains("the API token") && error.contains(reason), "{text:?}: {error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert!(!format!("{:?}", api(FIRST).unwrap()).contains(FIRST));
    }

    #[test]
    fn only_the_scheme_bearer_carries_a_token() {
        let carried = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            bearer(&headers).map(<[u8]>::to_vec)
        };
        for value in ["Bearer abc", "bearer abc", "BEARER  abc"] {
            assert_eq!(carried(value).as_deref(), Some(&b"abc"[..]), "{value}");
        }
        for value in ["Basic abc", "abc", "Bearer", "", "Bearerabc", "Token abc"] {
            assert_eq!(carried(value), None, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn invalid_replacements_leave_the_tokens_as_they_are() {
        let tokens = api(FIRST).unwrap();
        assert_eq!(tokens.replace(&format!("{FIRST}\n"), &[]).unwrap(), None, "the same");
        assert!(tokens.replace("short", &[]).is_err() && tokens.replace("", &[]).is_err());
        assert!(tokens.contains(FIRST.as_bytes()));
        assert_eq!(tokens.replace(&format!("{FIRST}\n{SECOND}"), &[]).unwrap(), Some(2));
        assert_eq!(tokens.replace(SECOND, &[]).unwrap(), Some(1));
        assert!(tokens.contains(SECOND.as_bytes()) && !tokens.contains(FIRST.as_bytes()));
    }
}
