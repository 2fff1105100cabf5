//! Parses JSON Lines logs: one object per line.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::field_mapping::{FieldMapping, TIMES};
use super::log_chunk::LineValues;
use super::timestamps;

#[derive(Debug)]
pub(super) struct JsonLines {
    mapping: FieldMapping,
}

impl JsonLines {
    pub(super) const fn new(mapping: FieldMapping) -> Self {
        Self { mapping }
    }

    /// Reads one line: the time, the cost, and what it says.
    pub(super) fn read(&self, line: &str, values: &mut LineValues<'_>) -> Result<(u64, u64), String> {
        let mut object: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("it is no JSON object: {error}"))?;
        let time = match &self.mapping.time_field {
            Some(field) => find(&object, field).ok_or_else(|| format!("there is no field {field:?} with the time"))?,
            None => TIMES
                .iter()
                .find_map(|field| object.get(*field))
                .ok_or("there is no field with the time: name it with --time-field")?,
        };
        let time = text(time).ok_or("the time is neither text nor a number")?;
        let at_us = timestamps::parse(&time).ok_or_else(|| format!("{time:?} is no time"))?;
        let cost = match &self.mapping.cost_field {
            Some(field) => {
                let found = find(&object, field).and_then(text);
                super::parse_cost(&found.ok_or_else(|| format!("there is no field {field:?} with the cost"))?)?
            }
            None => 1,
        };
        for (number, attribute) in (0..).zip(&self.mapping.attributes) {
            let found = attribute.fields().find_map(|field| find(&object, field)).and_then(text);
            let found = found.map(|text| Cow::Owned(text.into_owned()));
            values.extend(attribute.normalized_value(found).map(|value| (number, value)));
        }
        object.clear();
        Ok((at_us, cost))
    }
}

/// A field by its name or, with dots, by its path; also among `attributes`, as
/// checks have them.
fn find<'o>(object: &'o Map<String, Value>, name: &str) -> Option<&'o Value> {
    let nested = || {
        let (first, rest) = name.split_once('.')?;
        find(object.get(first)?.as_object()?, rest)
    };
    let attributes = || object.get("attributes")?.as_object()?.get(name);
    object.get(name).or_else(nested).or_else(attributes).filter(|value| !value.is_null())
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
