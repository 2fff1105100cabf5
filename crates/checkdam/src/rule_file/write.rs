//! Definitions as YAML.
//!
//! The YAML library's own serializer would write lists and maps over several lines
//! and limits such as `10/s burst 50` without quotes. Files that were exported before
//! would differ from those exported now, so the format is kept: one line per field of a
//! rule, one line per override and ban. It is a custom formatter of serde_json.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use crate::ban::BanSpec;
use crate::definitions::Definitions;
use crate::overrides::OverrideSpec;
use crate::rule::RuleSpec;

/// The definitions as a rule file: what [`parse_definitions`](super::parse_definitions)
/// reads from it are the same again. (A rule whose limits are of several
/// algorithms has no text: the first one's is written.)
///
/// ```
/// use checkdam::rule_file;
/// let text = "rules:\n  - name: a\n    key: \"user:{user}\"\n    limits: [\"10/s burst 50\"]\n";
/// assert_eq!(rule_file::write(&rule_file::parse_definitions(text)?), text);
/// # Ok::<(), checkdam::rule_file::RuleFileError>(())
/// ```
#[must_use]
pub fn write(definitions: &Definitions) -> String {
    let Definitions { rules, overrides, bans, trees: _ } = definitions;
    let mut out = Vec::new();
    if rules.is_empty() {
        out.extend_from_slice(b"rules: []\n");
    }
    list("rules", rules.iter().map(RuleSpec::from), true, &mut out);
    list("overrides", overrides.iter().map(OverrideSpec::from), false, &mut out);
    list("bans", bans.iter().map(BanSpec::from), false, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// A list with a line for every item, or for every field of one.
fn list<T: Serialize>(name: &str, items: impl ExactSizeIterator<Item = T>, by_field: bool, out: &mut Vec<u8>) {
    if items.len() == 0 {
        return;
    }
    // Writing to memory cannot fail, and nothing that is written lacks a form in JSON.
    let _ = writeln!(out, "{name}:");
    for item in items {
        let formatter = YamlFormatter { by_field, ..YamlFormatter::default() };
        let _ = item.serialize(&mut Serializer::with_formatter(&mut *out, formatter));
        out.push(b'\n');
    }
}

/// Writes one item of a list: lists and maps in it stand on one line.
#[derive(Default)]
struct YamlFormatter {
    /// Whether each field of the item has a line of its own.
    by_field: bool,
    /// How many maps are open.
    depth: usize,
    /// Whether the innermost map has no entry yet.
    is_empty: bool,
    /// The string that is being written.
    text: String,
}

impl YamlFormatter {
    const fn is_block(&self) -> bool {
        self.by_field && self.depth == 1
    }
}

impl Formatter for YamlFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.is_empty = true;
        match (self.is_block(), self.depth) {
            (true, _) => out.write_all(b"  - "),
            (false, 1) => out.write_all(b"  - {"),
            (false, _) => out.write_all(b"{"),
        }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.is_empty = false;
        match (self.is_block(), first) {
            (true, true) => Ok(()),
            (true, false) => out.write_all(b"\n    "),
            (false, true) => out.write_all(b" "),
            (false, false) => out.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        let (is_block, is_empty) = (self.is_block(), std::mem::take(&mut self.is_empty));
        self.depth -= 1;
        match (is_block, is_empty) {
            (true, _) => Ok(()),
            (false, true) => out.write_all(b"}"),
            (false, false) => out.write_all(b" }"),
        }
    }

    fn begin_string<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.clear();
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, _: &mut W, fragment: &str) -> io::Result<()> {
        self.text.push_str(fragment);
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, _: &mut W, escape: CharEscape) -> io::Result<()> {
        self.text.push(match escape {
            CharEscape::Quote => '"',
            CharEscape::ReverseSolidus => '\\',
            CharEscape::Solidus => '/',
            CharEscape::Backspace => '\u{8}',
            CharEscape::FormFeed => '\u{c}',
            CharEscape::LineFeed => '\n',
            CharEscape::CarriageReturn => '\r',
            CharEscape::Tab => '\t',
            CharEscape::AsciiControl(byte) => char::from(byte),
        });
        Ok(())
    }

    fn end_string<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        write_text(&self.text, out)
    }
}

/// Words that YAML, or an older YAML, takes for something else than text.
const TAKEN: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

/// Text that nobody can take for anything else is written as it is; all other
/// is quoted, and whatever does not print is escaped.
fn write_text<W: ?Sized + Write>(text: &str, out: &mut W) -> io::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'.');
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    if begins_well && text.bytes().all(is_plain) && !TAKEN.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        return out.write_all(text.as_bytes());
    }
    out.write_all(b"\"")?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(out, "\\{character}")?,
            '\n' => out.write_all(b"\\n")?,
            ' '..='~' => write!(out, "{character}")?,
            other if other.is_alphanumeric() => write!(out, "{other}")?,
            other if u32::from(other) <= 0xFFFF => write!(out, "\\u{:04X}", u32::from(other))?,
            other => write!(out, "\\U{:08X}", u32::from(other))?,
        }
    }
    out.write_all(b"\"")
}
