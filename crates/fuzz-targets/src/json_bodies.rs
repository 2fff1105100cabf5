//! Fuzz targets: parsing of the HTTP API's bodies, compared with serde_json's `Value`.

use checkdam::{ATTRIBUTES_MAX, LIMIT_MAX, NAME_MAX, Request, VALUE_MAX};
use checkdam_envoy_proto::{Entry, LimitUnit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use checkdam_service::fuzzing::http::{read_batch, read_check, read_rate_limit, read_record};
use serde_json::{Map, Value};

/// A body is a check that means the same to serde_json, or a problem.
pub fn check_body(data: &[u8]) {
    match read_check(data) {
        Ok(request) => {
            let value: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
            assert_eq!(CheckReading::from_json(&value), Some(CheckReading::from_request(&request)), "{value}");
        }
        Err(problem) => check_problem(&problem),
    }
    // `Value` keeps the last of several members with one name, so its text has none of them.
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let text = value.to_string();
    let read = read_check(text.as_bytes()).ok().map(|request| CheckReading::from_request(&request));
    assert_eq!(read, CheckReading::from_json(&value), "{text}");
    check_record(&value, read.as_ref());
}

/// A record is the same as the check, and may also cost nothing.
fn check_record(value: &Value, checked: Option<&CheckReading>) {
    let text = value.to_string();
    let read = read_record(text.as_bytes());
    if let Err(problem) = &read {
        check_problem(problem);
    }
    let recorded = read.ok().map(|request| CheckReading::from_request(&request));
    let is_zero = |cost: f64| cost == 0.0 && cost.is_sign_positive();
    if !value.get("cost").and_then(Value::as_f64).is_some_and(is_zero) {
        assert_eq!(recorded.as_ref(), checked, "{text}");
        return;
    }
    let mut costing = value.clone();
    costing["cost"] = 1.into();
    let expected = CheckReading::from_json(&costing).map(|reading| CheckReading { cost: 0, ..reading });
    assert_eq!(recorded, expected, "{text}");
}

/// A body is a batch of checks that each mean the same by themselves, or a problem.
pub fn batch_body(data: &[u8]) {
    match read_batch(data) {
        Ok(requests) => {
            let value: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
            let items = value["requests"].as_array().expect("a batch has a list");
            assert!(value.as_object().is_some_and(|batch| batch.len() == 1) && items.len() <= 256, "{value}");
            let read: Vec<_> = requests.iter().map(|request| Some(CheckReading::from_request(request))).collect();
            assert_eq!(items.iter().map(CheckReading::from_json).collect::<Vec<_>>(), read, "{value}");
            for item in items {
                assert!(read_check(item.to_string().as_bytes()).is_ok(), "{item}");
            }
        }
        Err(problem) => check_problem(&problem),
    }
}

/// A body is a rate limit request that means the same to serde_json by protobuf's JSON mapping, or
/// a problem.
pub fn rate_limit_json(data: &[u8]) {
    match read_rate_limit(data) {
        Ok(message) => {
            let value: Value = serde_json::from_slice(data).expect("what is accepted is JSON");
            assert_eq!(message_from_json(&value).as_ref(), Some(&message), "{value}");
            let text = message_to_json(&message).to_string();
            assert_eq!(read_rate_limit(text.as_bytes()).as_ref(), Ok(&message), "{text}");
        }
        Err(problem) => check_problem(&problem),
    }
}

/// Problem details (RFC 9457) that say what is wrong, and where.
fn check_problem(problem: &str) {
    let problem: Value = serde_json::from_str(problem).expect("a problem is JSON");
    let is_text = |name: &str| problem[name].as_str().is_some_and(|text| !text.is_empty());
    // The field is named as the client names it, which may be with no letter.
    assert!(["type", "title", "detail"].into_iter().all(is_text) && problem["field"].is_string(), "{problem}");
    assert!(matches!(problem["status"].as_u64(), Some(400 | 422)), "{problem}");
    // Texts of clients are cut.
    assert!(problem.to_string().len() < 8_192, "{problem}");
}

/// A check as it is understood.
#[derive(Debug, PartialEq, Eq)]
struct CheckReading {
    domain: String,
    attributes: Vec<(String, String)>,
    cost: u64,
}

impl CheckReading {
    fn from_request(request: &Request<'_>) -> Self {
        let attributes = request.attributes().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut attributes: Vec<_> = attributes.collect();
        attributes.sort_unstable();
        Self { domain: request.domain().to_owned(), attributes, cost: request.cost() }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let body = value.as_object()?;
        let is_known = |name: &String| matches!(name.as_str(), "domain" | "attributes" | "cost");
        let given = body.get("attributes")?.as_object()?;
        if !body.keys().all(is_known) || given.len() > ATTRIBUTES_MAX {
            return None;
        }
        let domain = body.get("domain").map_or(Some(""), Value::as_str).filter(|domain| domain.len() <= VALUE_MAX)?;
        let attribute = |(name, value): (&String, &Value)| {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) if !number.is_f64() => number.to_string(),
                _ => return None,
            };
            let is_valid = (1..=NAME_MAX).contains(&name.len()) && (1..=VALUE_MAX).contains(&value.len());
            is_valid.then(|| (name.clone(), value))
        };
        let mut attributes = given.iter().map(attribute).collect::<Option<Vec<_>>>()?;
        attributes.sort_unstable();
        let cost = body.get("cost").map_or(Some(1.0), Value::as_f64)?;
        let is_cost = cost.fract() == 0.0 && (1.0..=LIMIT_MAX as f64).contains(&cost);
        is_cost.then(|| Self { domain: domain.to_owned(), attributes, cost: cost as u64 })
    }
}

/// The value of a member in either spelling; null is the same as absent.
fn member<'v>(object: &'v Map<String, Value>, names: [&str; 2]) -> Option<&'v Value> {
    names.iter().find_map(|name| object.get(*name)).filter(|value| !value.is_null())
}

fn text_member(object: &Map<String, Value>, name: &str) -> Option<String> {
    member(object, [name, name]).map_or(Some(String::new()), |value| value.as_str().map(ToOwned::to_owned))
}

fn list_member<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v [Value]> {
    member(object, [name, name]).map_or(Some(&[]), |value| value.as_array().map(Vec::as_slice))
}

/// A number, or text that is one.
fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => {
            let of_float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=9e15).contains(float));
            number.as_u64().or(of_float.map(|float| float as u64))
        }
        _ => None,
    }
}

fn message_from_json(value: &Value) -> Option<RateLimitRequest> {
    let body = value.as_object()?;
    let hits = member(body, ["hits_addend", "hitsAddend"]).map_or(Some(0), whole_number)?;
    let descriptors = list_member(body, "descriptors")?.iter().map(descriptor_from_json).collect::<Option<_>>()?;
    Some(RateLimitRequest { domain: text_member(body, "domain")?, descriptors, hits_addend: u32::try_from(hits).ok()? })
}

fn descriptor_from_json(value: &Value) -> Option<RateLimitDescriptor> {
    let body = value.as_object()?;
    let entry = |entry: &Value| {
        let entry = entry.as_object()?;
        Some(Entry { key: text_member(entry, "key")?, value: text_member(entry, "value")?.into_bytes() })
    };
    let limit = match member(body, ["limit", "limit"]) {
        Some(limit) => {
            let limit = limit.as_object()?;
            let count = member(limit, ["requests_per_unit", "requestsPerUnit"]).map_or(Some(0), whole_number)?;
            let unit = match limit.get("unit") {
                None | Some(Value::Null) => 0,
                Some(Value::String(name)) => LimitUnit::from_str_name(name)?.into(),
                Some(number) => i32::try_from(number.as_u64()?).ok()?,
            };
            Some(RateLimitOverride { requests_per_unit: u32::try_from(count).ok()?, unit })
        }
        None => None,
    };
    let hits_addend = match member(body, ["hits_addend", "hitsAddend"]) {
        Some(count) => Some(whole_number(count)?),
        None => None,
    };
    let is_negative_hits = member(body, ["is_negative_hits", "isNegativeHits"]).map_or(Some(false), Value::as_bool)?;
    let entries = list_member(body, "entries")?.iter().map(entry).collect::<Option<_>>()?;
    Some(RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits })
}

/// A message in protobuf's JSON mapping: large numbers are text.
fn message_to_json(message: &RateLimitRequest) -> Value {
    let descriptor = |descriptor: &RateLimitDescriptor| {
        let entry = |entry: &Entry| serde_json::json!({"key": entry.key, "value": std::str::from_utf8(&entry.value).unwrap_or_default()});
        let limit = descriptor.limit.as_ref();
        let limit =
            limit.map(|limit| serde_json::json!({"requestsPerUnit": limit.requests_per_unit, "unit": limit.unit}));
        serde_json::json!({
            "entries": descriptor.entries.iter().map(entry).collect::<Vec<_>>(),
            "limit": limit,
            "hitsAddend": descriptor.hits_addend.map(|hits| hits.to_string()),
            "isNegativeHits": descriptor.is_negative_hits,
        })
    };
    serde_json::json!({
        "domain": message.domain,
        "descriptors": message.descriptors.iter().map(descriptor).collect::<Vec<_>>(),
        "hitsAddend": message.hits_addend,
    })
}
