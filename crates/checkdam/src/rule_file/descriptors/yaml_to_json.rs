//! Converts any YAML to JSON text.

use std::fmt::{self, Write};

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

/// A value as JSON text.
pub(super) struct JsonText {
    pub(super) text: String,
    pub(super) is_object: bool,
}

impl JsonText {
    const fn plain(text: String) -> Self {
        Self { text, is_object: false }
    }
}

impl<'de> de::Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = JsonText;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonText, E> {
        Ok(JsonText::plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonText, E> {
        Ok(JsonText::plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonText, E> {
        Ok(JsonText::plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonText, E> {
        // JSON has neither infinity nor NaN.
        Ok(JsonText::plain(if value.is_finite() { value.to_string() } else { "null".to_owned() }))
    }

    fn visit_unit<E>(self) -> Result<JsonText, E> {
        Ok(JsonText::plain("null".to_owned()))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonText, E> {
        let mut out = String::with_capacity(text.len() + 2);
        write_string(text, &mut out);
        Ok(JsonText::plain(out))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonText, A::Error> {
        let mut out = String::from("[");
        while let Some(JsonText { text, .. }) = list.next_element()? {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&text);
        }
        out.push(']');
        Ok(JsonText::plain(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonText, A::Error> {
        let mut out = String::from("{");
        while let Some((name, value)) = map.next_entry::<String, JsonText>()? {
            if out.len() > 1 {
                out.push(',');
            }
            write_string(&name, &mut out);
            out.push(':');
            out.push_str(&value.text);
        }
        out.push('}');
        Ok(JsonText { text: out, is_object: true })
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            control if control < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
