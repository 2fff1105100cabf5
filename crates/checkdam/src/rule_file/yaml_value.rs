//! A value of a rule file to be written, as YAML or as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A value in a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum YamlValue {
    Text(String),
    Truth(bool),
    Number(i64),
    /// A number with up to three decimals, in thousandths.
    Decimal(u64),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl YamlValue {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn texts(texts: &[String]) -> Self {
        Self::List(texts.iter().map(|text| Self::text(text)).collect())
    }

    pub(super) fn map(name: &str, value: Self) -> Self {
        Self::Map(vec![(name.to_owned(), value)])
    }

    /// The value as YAML on one line.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => write_text(text, out),
            Self::Truth(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Number(number) => out.push_str(itoa::Buffer::new().format(*number)),
            Self::Decimal(thousandths) => {
                out.push_str(itoa::Buffer::new().format(thousandths / 1_000));
                let decimals = format!(".{:03}", thousandths % 1_000);
                out.push_str(decimals.trim_end_matches('0').trim_end_matches('.'));
            }
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    out.push_str(if place == 0 { "" } else { ", " });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (place, (name, value)) in entries.iter().enumerate() {
                    out.push_str(if place == 0 { " " } else { ", " });
                    write_text(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push_str(if entries.is_empty() { "}" } else { " }" });
            }
        }
    }
}

/// Words that YAML, or an older YAML, takes for something else than text.
const TAKEN: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

/// Text is written plain if it cannot be read as anything else; otherwise it is
/// quoted, and unprintable characters are escaped.
fn write_text(text: &str, out: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'.');
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    if begins_well && text.bytes().all(is_plain) && !TAKEN.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            ' '..='~' => out.push(character),
            other if other.is_alphanumeric() => out.push(other),
            other if u32::from(other) <= 0xFFFF => out.push_str(&format!("\\u{:04X}", u32::from(other))),
            other => out.push_str(&format!("\\U{:08X}", u32::from(other))),
        }
    }
    out.push('"');
}

impl Serialize for YamlValue {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => out.serialize_str(text),
            Self::Truth(truth) => out.serialize_bool(*truth),
            Self::Number(number) => out.serialize_i64(*number),
            Self::Decimal(thousandths) if thousandths.is_multiple_of(1_000) => out.serialize_u64(thousandths / 1_000),
            // Twelve digits: a double represents them exactly as written.
            Self::Decimal(thousandths) => out.serialize_f64(*thousandths as f64 / 1_000.0),
            Self::List(items) => out.collect_seq(items),
            Self::Map(entries) => {
                let mut map = out.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}
