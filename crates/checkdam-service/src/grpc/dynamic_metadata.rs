//! Dynamic metadata for Envoy's other filters: the request, and the metadata of the
//! limits that are not exhausted. Quota-based routing selects a service by it.
//!
//! The format is that of envoyproxy/ratelimit: `domain`, `descriptors` with their
//! entries as `key=value`, `hitsAddend`, and `metadata`, merged from the limits;
//! where two conflict, the first descriptor's value is used.

use checkdam::Outcome;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::{Map, Value as Json, json};

use super::response::is_unlimited;
use checkdam_envoy_proto::{Entry, LimitUnit, RateLimitDescriptor, RateLimitRequest};

pub(super) fn build(asked: &RateLimitRequest, outcomes: &[&Outcome]) -> Struct {
    let mut fields = Map::new();
    fields.insert("domain".to_owned(), asked.domain.as_str().into());
    fields.insert("descriptors".to_owned(), asked.descriptors.iter().map(descriptor_json).collect());
    if asked.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), asked.hits_addend.into());
    }
    let mut metadata = Map::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.is_allowed() && !is_unlimited(outcome)) {
        let written = outcome.descriptor().map_or("", |descriptor| &descriptor.metadata);
        // Validated when the rules were loaded; empty where there is none.
        if let Ok(Json::Object(more)) = serde_json::from_str(written) {
            merge(&mut metadata, more);
        }
    }
    if !metadata.is_empty() {
        fields.insert("metadata".to_owned(), metadata.into());
    }
    to_struct(fields)
}

fn descriptor_json(descriptor: &RateLimitDescriptor) -> Json {
    let entry = |entry: &Entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value));
    let entries: Vec<_> = descriptor.entries.iter().map(entry).collect();
    let mut fields = json!({ "entries": entries });
    if let Some(limit) = &descriptor.limit {
        let unit = LimitUnit::try_from(limit.unit).unwrap_or_default().as_str_name();
        fields["limit"] = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit).into();
    }
    if let Some(hits) = descriptor.hits_addend {
        fields["hitsAddend"] = hits.into();
    }
    fields
}

/// Adds what is not there yet, at every depth.
fn merge(into: &mut Map<String, Json>, more: Map<String, Json>) {
    for (name, value) in more {
        match (into.get_mut(&name), value) {
            (Some(Json::Object(known)), Json::Object(value)) => merge(known, value),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(name, value);
            }
        }
    }
}

fn to_struct(fields: Map<String, Json>) -> Struct {
    Struct { fields: fields.into_iter().map(|(name, value)| (name, to_value(value))).collect() }
}

fn to_value(value: Json) -> Value {
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(truth) => Kind::BoolValue(truth),
        // Its numbers are all doubles.
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(values) => Kind::ListValue(ListValue { values: values.into_iter().map(to_value).collect() }),
        Json::Object(fields) => Kind::StructValue(to_struct(fields)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_first_counts_at_every_depth() {
        let object = |value: Json| if let Json::Object(fields) = value { fields } else { Map::new() };
        let mut into = object(json!({"a": 1, "b": {"c": [1], "d": 2}}));
        merge(&mut into, object(json!({"a": {"x": 1}, "b": {"c": [2], "e": 3}, "f": null})));
        assert_eq!(Json::Object(into), json!({"a": 1, "b": {"c": [1], "d": 2, "e": 3}, "f": null}));
    }
}
