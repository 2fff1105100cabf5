//! Envoy's rate limit messages in protobuf's JSON mapping: names in either spelling,
//! large numbers also as text, defaults omitted.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::{Map, Value, json};

use super::requests::{JsonObject, malformed_body};
use crate::http::problem::Problem;
use checkdam_envoy_proto::{
    Code, DescriptorStatus, Entry, LimitUnit, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse,
};

pub(in crate::http) fn parse_rate_limit(body: &[u8]) -> Result<RateLimitRequest, Problem> {
    match serde_json::from_slice::<JsonObject<RequestBody>>(body) {
        Ok(JsonObject(body)) => Ok(body.into()),
        Err(error) => Err(malformed_body::<JsonObject<RequestBody>>(body, &error)),
    }
}

pub(in crate::http) fn write_rate_limit(answer: &RateLimitResponse) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("overallCode".to_owned(), code_json(answer.overall_code));
    body.insert("statuses".to_owned(), answer.statuses.iter().map(status_json).collect());
    if !answer.response_headers_to_add.is_empty() {
        let headers = answer.response_headers_to_add.iter();
        let headers = headers.map(|header| json!({"key": header.key, "value": header.value})).collect();
        body.insert("responseHeadersToAdd".to_owned(), headers);
    }
    if let Some(metadata) = &answer.dynamic_metadata {
        body.insert("dynamicMetadata".to_owned(), struct_json(metadata));
    }
    super::json(&body)
}

fn status_json(status: &DescriptorStatus) -> Value {
    let mut fields = json!({ "code": code_json(status.code) });
    if let Some(limit) = &status.current_limit {
        fields["currentLimit"] = limit_json(limit);
    }
    if status.limit_remaining != 0 {
        fields["limitRemaining"] = status.limit_remaining.into();
    }
    if let Some(until) = &status.duration_until_reset {
        fields["durationUntilReset"] = format!("{}s", until.seconds).into();
    }
    fields
}

fn limit_json(limit: &RateLimit) -> Value {
    let mut fields = Map::new();
    if limit.requests_per_unit != 0 {
        fields.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
    }
    let unit = LimitUnit::try_from(limit.unit).unwrap_or_default();
    if unit != LimitUnit::Unknown {
        fields.insert("unit".to_owned(), unit.as_str_name().into());
    }
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), limit.name.as_str().into());
    }
    fields.into()
}

fn code_json(number: i32) -> Value {
    Code::try_from(number).unwrap_or_default().as_str_name().into()
}

fn struct_json(metadata: &prost_types::Struct) -> Value {
    let fields = metadata.fields.iter();
    fields.map(|(name, value)| (name.clone(), value_json(value))).collect::<Map<_, _>>().into()
}

fn value_json(value: &prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
        Some(Kind::StructValue(fields)) => struct_json(fields),
    }
}

/// The request. As in protobuf, null is the same as absent.
#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RequestBody {
    domain: Option<String>,
    descriptors: Option<Vec<JsonObject<DescriptorBody>>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<WholeNumber<u32>>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct DescriptorBody {
    entries: Option<Vec<JsonObject<EntryBody>>>,
    limit: Option<JsonObject<LimitBody>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<WholeNumber<u64>>,
    #[serde(alias = "isNegativeHits")]
    is_negative_hits: Option<bool>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EntryBody {
    key: Option<String>,
    value: Option<String>,
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LimitBody {
    #[serde(alias = "requestsPerUnit")]
    requests_per_unit: Option<WholeNumber<u32>>,
    unit: Option<UnitBody>,
}

impl From<RequestBody> for RateLimitRequest {
    fn from(body: RequestBody) -> Self {
        let descriptors = body.descriptors.unwrap_or_default();
        Self {
            domain: body.domain.unwrap_or_default(),
            descriptors: descriptors.into_iter().map(|JsonObject(descriptor)| descriptor.into()).collect(),
            hits_addend: body.hits_addend.map_or(0, |WholeNumber(count)| count),
        }
    }
}

impl From<DescriptorBody> for RateLimitDescriptor {
    fn from(body: DescriptorBody) -> Self {
        let entry = |JsonObject(entry): JsonObject<EntryBody>| Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.unwrap_or_default().into_bytes(),
        };
        Self {
            entries: body.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: body.limit.map(|JsonObject(limit)| RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(0, |WholeNumber(count)| count),
                unit: limit.unit.map_or(0, |UnitBody(number)| number),
            }),
            hits_addend: body.hits_addend.map(|WholeNumber(count)| count),
            is_negative_hits: body.is_negative_hits.unwrap_or_default(),
        }
    }
}

/// A whole number, or text that is one.
struct WholeNumber<N>(N);

impl<'de, N: TryFrom<u64>> Deserialize<'de> for WholeNumber<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;
        impl Visitor<'_> for WholeVisitor {
            type Value = u64;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<u64, E> {
                Ok(count)
            }

            fn visit_f64<E: Error>(self, count: f64) -> Result<u64, E> {
                // Exact up to there, and more than any limit holds.
                if count.fract() == 0.0 && (0.0..=9e15).contains(&count) {
                    return Ok(count as u64);
                }
                Err(E::invalid_value(serde::de::Unexpected::Float(count), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
                text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        let count = deserializer.deserialize_any(WholeVisitor)?;
        let fitting = N::try_from(count).map_err(|_| D::Error::custom(format!("{count} is too large")))?;
        Ok(Self(fitting))
    }
}

/// A unit by its name or its number.
struct UnitBody(i32);

impl<'de> Deserialize<'de> for UnitBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UnitVisitor;
        impl Visitor<'_> for UnitVisitor {
            type Value = i32;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH and YEAR")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<i32, E> {
                i32::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<i32, E> {
                let unit = LimitUnit::from_str_name(name);
                unit.map(Into::into).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
            }
        }
        deserializer.deserialize_any(UnitVisitor).map(Self)
    }
}
