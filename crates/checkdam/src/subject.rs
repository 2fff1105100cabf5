//! Subject patterns: one subject, or many with the wildcard `*`.

use std::fmt;

/// Text in which `*` stands for any run of characters and `\*` for a star; a
/// backslash before anything else is itself.
///
/// ```
/// use checkdam::SubjectPattern;
/// let bots = SubjectPattern::parse("user:bot-*");
/// assert!(bots.matches("user:bot-7") && !bots.matches("user:7"));
/// // A name that a client chose must never become a wildcard.
/// let star = SubjectPattern::exact("user:*");
/// assert!(star.matches("user:*") && !star.matches("user:7"));
/// assert_eq!(star.text(), r"user:\*");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SubjectPattern {
    text: String,
    /// The text between the stars, in order; a single one if there are no stars.
    chunks: Vec<String>,
}

impl SubjectPattern {
    /// Reads text with stars.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut chunks = vec![String::new()];
        let mut rest = text;
        while let Some(star) = rest.find('*') {
            let (before, after) = (&rest[..star], &rest[star + 1..]);
            let literal = before.strip_suffix('\\');
            if let Some(chunk) = chunks.last_mut() {
                chunk.push_str(literal.unwrap_or(before));
                if literal.is_some() {
                    chunk.push('*');
                }
            }
            if literal.is_none() {
                chunks.push(String::new());
            }
            rest = after;
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.push_str(rest);
        }
        Self { text: text.to_owned(), chunks }
    }

    /// Exactly this text, wildcards not interpreted.
    #[must_use]
    pub fn exact(text: &str) -> Self {
        Self::from_chunks(vec![text.to_owned()])
    }

    /// Any run of characters between each of these and the next.
    pub(crate) fn from_chunks(chunks: Vec<String>) -> Self {
        let escaped: Vec<String> = chunks.iter().map(|chunk| chunk.replace('*', "\\*")).collect();
        Self { text: escaped.join("*"), chunks }
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The one text that it matches, if it has no wildcard.
    #[must_use]
    pub fn as_exact(&self) -> Option<&str> {
        match self.chunks.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether `value` is meant.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        self.matches_bytes(value.as_bytes())
    }

    /// Chunks are whole characters, so bytes match where characters do.
    pub(crate) fn matches_bytes(&self, value: &[u8]) -> bool {
        let Some((first, rest)) = self.chunks.split_first() else { return value.is_empty() };
        let Some((last, middle)) = rest.split_last() else { return first.as_bytes() == value };
        let Some(mut value) = value.strip_prefix(first.as_bytes()) else { return false };
        for chunk in middle.iter().filter(|chunk| !chunk.is_empty()) {
            let Some(at) = value.windows(chunk.len()).position(|window| window == chunk.as_bytes()) else {
                return false;
            };
            value = &value[at + chunk.len()..];
        }
        value.ends_with(last.as_bytes())
    }

    /// The pattern taken apart at the texts between a key's attributes: for each way
    /// to do so, what each attribute must be. So no attribute can hold what is meant
    /// for another. Where such a text is missing, the star in its place stands for
    /// the end of one attribute and the beginning of the next. Empty if the pattern
    /// cannot be taken apart: then it is compared as a whole. `None` if there are more
    /// than [`SPLITS_MAX`] ways.
    pub(crate) fn split(&self, texts: &[&str]) -> Option<Vec<Vec<Self>>> {
        let mut found = Vec::new();
        let [first, others @ ..] = texts else { return Some(found) };
        if others.iter().rev().skip(1).any(|text| text.is_empty()) {
            return Some(found);
        }
        // No way ends well if the pattern does not end as the key does.
        if !others.last().zip(self.chunks.last()).is_some_and(|(text, chunk)| chunk.ends_with(text)) {
            return Some(found);
        }
        let (mut chunks, mut steps) = (self.chunks.clone(), STEPS_MAX);
        if let Some(rest) = chunks.first().and_then(|chunk| chunk.strip_prefix(first)).map(str::to_owned) {
            chunks[0] = rest;
            split(&chunks, others, &mut Vec::new(), &mut found, &mut steps);
        }
        (steps > 0 && found.len() <= SPLITS_MAX).then_some(found)
    }

    /// The number of literal bytes: the more, the more specific.
    pub(crate) fn literal_length(&self) -> usize {
        self.chunks.iter().map(String::len).sum()
    }

    /// The text that every match begins with.
    pub(crate) fn prefix(&self) -> &str {
        self.chunks.first().map_or("", String::as_str)
    }
}

/// The most ways in which one pattern is taken apart.
pub(crate) const SPLITS_MAX: usize = 64;

/// The maximum number of positions tried.
const STEPS_MAX: usize = 10_000;

/// Finds the ways to take the rest of a pattern apart at the texts that follow the
/// attributes in `taken`, in so many steps.
fn split(
    chunks: &[String],
    texts: &[&str],
    taken: &mut Vec<SubjectPattern>,
    found: &mut Vec<Vec<SubjectPattern>>,
    steps: &mut usize,
) {
    let [text, others @ ..] = texts else { return };
    let Some((last, before)) = chunks.split_last().filter(|_| found.len() <= SPLITS_MAX && *steps > 0) else { return };
    *steps -= 1;
    if others.is_empty() {
        if let Some(last) = last.strip_suffix(text) {
            let whole = [before, &[last.to_owned()]].concat();
            found.push(taken.iter().cloned().chain([SubjectPattern::from_chunks(whole)]).collect());
        }
        return;
    }
    let count = found.len();
    for (place, chunk) in chunks.iter().enumerate() {
        for (at, _) in chunk.match_indices(text) {
            taken.push(SubjectPattern::from_chunks([&chunks[..place], &[chunk[..at].to_owned()]].concat()));
            let rest = [&[chunk[at + text.len()..].to_owned()], &chunks[place + 1..]].concat();
            split(&rest, others, taken, found, steps);
            taken.pop();
        }
    }
    if found.len() > count || before.is_empty() {
        return;
    }
    // The star stands for the text too.
    taken.push(SubjectPattern::from_chunks(vec![chunks[0].clone(), String::new()]));
    split(&[&[String::new()], &chunks[1..]].concat(), others, taken, found, steps);
    taken.pop();
}

impl fmt::Debug for SubjectPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SubjectPattern({:?})", self.text)
    }
}

impl fmt::Display for SubjectPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_match_what_they_say() {
        let table = [
            ("user:42", "user:42", true),
            ("user:42", "user:421", false),
            ("user:*", "user:", true),
            ("user:*", "users:1", false),
            ("*", "", true),
            ("*:vip", "user:7:vip", true),
            ("a*b*a", "aba", true),
            ("a*b*a", "aa", false),
            ("a*ab", "ab", false),
            ("a**b", "ab", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            (r"a\b", r"a\b", true),
            (r"corp\bob-*", r"corp\bob-1", true),
            ("é*", "éa", true),
            ("{x}", "{x}", true),
            ("{x}", "y", false),
        ];
        for (pattern, value, expected) in table {
            assert_eq!(SubjectPattern::parse(pattern).matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn a_pattern_that_fits_a_key_in_no_way_is_found_out_soon() {
        let slashes = SubjectPattern::parse(&("/".repeat(500) + "*"));
        assert_eq!(slashes.split(&["", "/", "/", "/", "x"]), Some(Vec::new()));
        assert_eq!(slashes.split(&["", "/", "/", "/", ""]), None);
    }

    #[test]
    fn patterns_are_taken_apart_at_the_texts_between_attributes() {
        type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a [&'a str]]);
        let table: [Case<'_>; 11] = [
            ("user:bot-*", &["user:", ""], &[&["bot-*"]]),
            ("*/admin", &["", "/", ""], &[&["*", "admin"]]),
            ("acme/*", &["", "/", ""], &[&["acme", "*"]]),
            ("x/*", &["", "/", "/", ""], &[&["x", "*", "*"]]),
            ("user:*", &["user:", ":ip:", ""], &[&["*", "*"]]),
            ("*admin", &["", "/", ""], &[&["*", "*admin"]]),
            ("a*b", &["", "/", ""], &[&["a*", "*b"]]),
            ("1:2:*:/x", &["", ":", ""], &[&["1", "2:*:/x"], &["1:2", "*:/x"], &["1:2:*", "/x"]]),
            ("*-end", &["", "-end"], &[&["*"]]),
            // Compared as a whole.
            ("us*:42", &["user:", ""], &[]),
            ("a*", &["", "", ""], &[]),
        ];
        for (pattern, texts, expected) in table {
            let found = SubjectPattern::parse(pattern).split(texts).unwrap();
            let found: Vec<Vec<&str>> =
                found.iter().map(|way| way.iter().map(SubjectPattern::text).collect()).collect();
            assert_eq!(found, expected, "{pattern}");
        }
        for (slashes, ways) in [(64, Some(64)), (65, None)] {
            let found = SubjectPattern::parse(&("/".repeat(slashes) + "*")).split(&["", "/", ""]);
            assert_eq!(found.map(|found| found.len()), ways);
        }
    }

    #[test]
    fn an_exact_text_stays_exact_when_it_is_written_and_read() {
        for text in ["user:42", "*", "a*b", "", "\\x"] {
            let exact = SubjectPattern::exact(text);
            assert_eq!(exact.as_exact(), Some(text));
            assert_eq!(SubjectPattern::parse(exact.text()), exact);
        }
    }
}
