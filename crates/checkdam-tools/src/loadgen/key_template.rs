//! Text templates in which `{key}` is replaced by the key of each request.

use std::str::FromStr;

const PLACE: &str = "{key}";

/// The text between the keys: always one piece more than there are keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    pieces: Vec<String>,
}

impl KeyTemplate {
    /// Text without a key.
    pub fn literal(text: impl Into<String>) -> Self {
        Self { pieces: vec![text.into()] }
    }

    pub fn push_text(mut self, text: &str) -> Self {
        if let Some(last) = self.pieces.last_mut() {
            last.push_str(text);
        }
        self
    }

    pub fn push_template(mut self, other: &Self) -> Self {
        for (place, piece) in other.pieces.iter().enumerate() {
            if place > 0 {
                self.pieces.push(String::new());
            }
            self = self.push_text(piece);
        }
        self
    }

    /// The same with each piece of text rewritten. A key is digits, which need
    /// no rewriting anywhere.
    pub fn map_text(&self, rewrite: impl Fn(&str) -> String) -> Self {
        Self { pieces: self.pieces.iter().map(|piece| rewrite(piece)).collect() }
    }

    /// Whether requests differ by their key.
    pub fn has_key(&self) -> bool {
        self.pieces.len() > 1
    }

    /// Whether some piece has such a character.
    pub fn contains(&self, is_found: impl Fn(char) -> bool) -> bool {
        self.pieces.iter().any(|piece| piece.contains(&is_found))
    }

    pub fn length(&self, key_length: usize) -> usize {
        self.pieces.iter().map(String::len).sum::<usize>() + (self.pieces.len() - 1) * key_length
    }

    pub fn write(&self, key: &str, out: &mut Vec<u8>) {
        for (place, piece) in self.pieces.iter().enumerate() {
            if place > 0 {
                out.extend_from_slice(key.as_bytes());
            }
            out.extend_from_slice(piece.as_bytes());
        }
    }

    /// The same as text.
    pub fn fill(&self, key: &str) -> String {
        self.pieces.join(key)
    }
}

impl FromStr for KeyTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pieces: Vec<String> = text.split(PLACE).map(ToOwned::to_owned).collect();
        if pieces.iter().any(|piece| piece.contains(['{', '}'])) {
            return Err(format!("{text:?} has braces around something else than key: only {PLACE} is replaced"));
        }
        Ok(Self { pieces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_put_in_their_places() {
        for (text, filled) in [("", ""), ("free", "free"), ("{key}", "42"), ("a{key}b{key}", "a42b42")] {
            let template: KeyTemplate = text.parse().unwrap();
            let mut written = Vec::new();
            template.write("42", &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), filled);
            assert_eq!((template.fill("42").as_str(), template.length(2)), (filled, filled.len()));
            assert_eq!(template.has_key(), text.contains("key"));
        }
        let joined = KeyTemplate::literal("<")
            .push_template(&"a{key}".parse().unwrap())
            .push_text(">")
            .push_template(&"{key}".parse().unwrap());
        assert_eq!(joined.map_text(str::to_uppercase).fill("1"), "<A1>1");
        for text in ["{user}", "{key", "key}", "{{key}}", "{}"] {
            assert!(text.parse::<KeyTemplate>().unwrap_err().contains(text), "{text}");
        }
    }
}
