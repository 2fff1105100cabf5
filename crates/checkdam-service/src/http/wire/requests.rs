//! Reads request bodies, with a maximum size and a timeout, and deserializes requests
//! from them without copying.
//!
//! Malformed JSON or the wrong type is a 400; a well-formed request with an invalid
//! value is a 422. Errors of values are held back until the whole body is parsed, so
//! that a 400 takes precedence.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::HttpBody;
use bytes::{Bytes, BytesMut};
use checkdam::{ATTRIBUTES_MAX, LIMIT_MAX, NAME_MAX, Request, RequestError, VALUE_MAX};
use http_body_util::BodyExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use crate::http::problem::{Problem, ProblemKind, truncated};

/// The largest body in bytes.
pub(in crate::http) const BODY_MAX: usize = 64 << 10;
/// How much of a larger body is read and discarded, so that its sender still receives
/// the response.
const DISCARD_MAX: usize = 1 << 20;
/// How long a body may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a whole document may take.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(60);

pub(in crate::http) async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    read_within(body, BODY_MAX).await
}

/// The whole body, which may be larger and take longer than usual.
pub(in crate::http) async fn read_within<B>(body: B, bytes_max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let limit = if bytes_max > BODY_MAX { DOCUMENT_TIMEOUT } else { TIMEOUT };
    let mut reading = std::pin::pin!(collect(body, bytes_max));
    if let Some(read) = poll_twice(reading.as_mut()).await {
        return read;
    }
    match tokio::time::timeout(limit, reading).await {
        Ok(read) => read,
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", limit.as_secs());
            Err(ProblemKind::Timeout.in_field("body", detail))
        }
    }
}

/// The result of the first or second poll, so that most requests arm no timer: with
/// HTTP/1, hyper reads a body only when it is polled.
async fn poll_twice<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut is_second = false;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_second => Poll::Ready(None),
        Poll::Pending => {
            is_second = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect<B>(mut body: B, bytes_max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let discarded_max = DISCARD_MAX.max(bytes_max);
    let announced = body.size_hint().lower();
    if announced > discarded_max as u64 {
        return Err(too_large(bytes_max));
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::malformed("body", format!("the body could not be read: {}", truncated(&error.to_string())))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > discarded_max {
            break;
        }
        if length > bytes_max {
            continue;
        }
        if length == data.len() {
            first = data;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
    }
    match length {
        _ if length > bytes_max => Err(too_large(bytes_max)),
        _ if joined.is_empty() => Ok(first),
        _ => Ok(joined.freeze()),
    }
}

fn too_large(bytes_max: usize) -> Problem {
    let detail = format!("the body is longer than {bytes_max} bytes: send less at a time");
    ProblemKind::BodyTooLarge.in_field("body", detail)
}

/// The most requests in a batch: 256 bytes each fill the largest body.
pub(in crate::http) const BATCH_MAX: usize = 256;

/// The request to decide.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct CheckBody<'a> {
    /// Only rules of this domain apply to the request; without it, only rules without one.
    #[serde(borrow, default)]
    #[schema(value_type = String, max_length = 512, required = false)]
    domain: Cow<'a, str>,
    /// The attributes of the request.
    #[serde(borrow)]
    #[schema(schema_with = attributes_schema)]
    attributes: Attributes<'a>,
    /// How much to charge.
    #[serde(default)]
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000_000_000_u64, default = 1, required = false)]
    cost: Cost,
}

/// What was used, and by what request.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RecordBody<'a> {
    /// Only rules of this domain apply to the request; without it, only rules without one.
    #[serde(borrow, default)]
    #[schema(value_type = String, max_length = 512, required = false)]
    domain: Cow<'a, str>,
    /// The attributes of the request.
    #[serde(borrow)]
    #[schema(schema_with = attributes_schema)]
    attributes: Attributes<'a>,
    /// How much was used.
    #[serde(default)]
    #[schema(value_type = u64, minimum = 0, maximum = 1_000_000_000_000_u64, default = 1, required = false)]
    cost: Cost,
}

/// Lengths are bounded in bytes, which schemas cannot say: they count characters.
fn attributes_schema() -> Object {
    let text =
        |length_max| ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(length_max));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "The attributes of the request: at most 64, such as user, ip, endpoint, method, plan. A whole number, true and false \
             are taken as their text.",
        ))
        .property_names(Some(text(NAME_MAX)))
        .additional_properties(Some(text(VALUE_MAX)))
        .max_properties(Some(ATTRIBUTES_MAX))
        .build()
}

/// Several requests, each decided on its own, in their order.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BatchBody<'a> {
    /// At most 256.
    #[serde(borrow)]
    #[schema(max_items = 256, value_type = Vec<CheckBody<'_>>)]
    requests: Vec<JsonObject<CheckBody<'a>>>,
}

/// An example of a check, for error messages.
const CHECK_EXAMPLE: &str = r#"{"attributes": {"user": "42"}}"#;
const RECORD_EXAMPLE: &str = r#"{"attributes": {"user": "42"}, "cost": 1500}"#;
const BATCH_EXAMPLE: &str = r#"{"requests": [{"attributes": {"user": "42"}}]}"#;

pub(in crate::http) fn parse(body: &[u8]) -> Result<Request<'_>, Problem> {
    let read = match std::str::from_utf8(body) {
        // Once for all is faster than every text by itself.
        Ok(text) => serde_json::from_str::<JsonObject<CheckBody<'_>>>(text),
        Err(_) => serde_json::from_slice(body),
    };
    match read {
        Ok(JsonObject(body)) => body.into_request(),
        Err(error) => {
            let problem = malformed_body::<JsonObject<CheckBody<'_>>>(body, &error);
            Err(match first_byte(body) {
                Some(b'[') => problem.with_advice("one request is an object; several go to /v1/check/batch"),
                Some(b'{') => problem,
                _ => problem.with_advice(&format!("send JSON, such as {CHECK_EXAMPLE}")),
            })
        }
    }
}

/// The request of a record, which may have used nothing.
pub(in crate::http) fn parse_record(body: &[u8]) -> Result<Request<'_>, Problem> {
    let RecordBody { domain, attributes, cost } = match serde_json::from_slice(body) {
        Ok(JsonObject(body)) => body,
        Err(error) => {
            let problem = malformed_body::<JsonObject<RecordBody<'_>>>(body, &error);
            return Err(match first_byte(body) {
                Some(b'[') => problem.with_advice("one record is an object; send several one after another"),
                Some(b'{') => problem,
                _ => problem.with_advice(&format!("send JSON, such as {RECORD_EXAMPLE}")),
            });
        }
    };
    let cost = if matches!(cost, Cost::Zero) { Cost::Valid(0) } else { cost };
    CheckBody { domain, attributes, cost }.into_request()
}

/// The byte that a body begins with, spaces aside.
fn first_byte(body: &[u8]) -> Option<u8> {
    body.trim_ascii_start().first().copied()
}

/// Reads a batch; one bad request spoils it whole.
pub(in crate::http) fn parse_batch(body: &[u8]) -> Result<Vec<Request<'_>>, Problem> {
    let batch = match serde_json::from_slice::<JsonObject<BatchBody<'_>>>(body) {
        Ok(JsonObject(batch)) => batch,
        Err(error) => {
            let problem = malformed_body::<JsonObject<BatchBody<'_>>>(body, &error);
            return Err(match first_byte(body) {
                Some(b'{') => problem,
                _ => problem.with_advice(&format!("send the requests in an object: {BATCH_EXAMPLE}")),
            });
        }
    };
    if batch.requests.len() > BATCH_MAX {
        let detail = format!("there are {} requests: at most {BATCH_MAX} fit in a batch", batch.requests.len());
        return Err(Problem::invalid("requests", detail));
    }
    let requests = batch.requests.into_iter().enumerate();
    requests
        .map(|(index, JsonObject(body))| {
            body.into_request().map_err(|problem| problem.with_prefix(&format!("requests[{index}]")))
        })
        .collect()
}

impl<'a> CheckBody<'a> {
    fn into_request(self) -> Result<Request<'a>, Problem> {
        let domain = self.domain;
        if domain.len() > VALUE_MAX {
            let detail =
                format!("domain {:?} is {} bytes long: at most {VALUE_MAX} fit", truncated(&domain), domain.len());
            return Err(Problem::invalid("domain", detail));
        }
        let request = match self.attributes {
            Attributes::Valid(request) => request,
            Attributes::Invalid { field, detail } => return Err(Problem::invalid(field, detail)),
        };
        match self.cost {
            Cost::Valid(cost) => Ok(request.in_domain(domain).costing(cost)),
            Cost::Zero => {
                let detail = "cost is 0: it must be at least 1; to ask without charging use /v1/peek";
                Err(Problem::invalid("cost", detail.to_owned()))
            }
            Cost::Invalid(detail) => Err(Problem::invalid("cost", detail)),
        }
    }
}

/// Parses the body again to find the invalid field. Only rejected bodies pay for
/// this.
pub(super) fn malformed_body<'a, T: Deserialize<'a>>(body: &'a [u8], error: &serde_json::Error) -> Problem {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let found = serde_path_to_error::deserialize::<_, T>(&mut reader).err();
    let path =
        found.map(|error| error.path().to_string()).filter(|path| error.is_data() && path != ".").unwrap_or_default();
    let message = error.to_string();
    // Serde names these fields in its message only.
    let named = ["missing field `", "unknown field `", "duplicate field `"]
        .iter()
        .find_map(|opening| message.strip_prefix(opening)?.split('`').next());
    let field = match named {
        Some(name) if path.is_empty() || path == name => truncated(name),
        Some(name) if path.ends_with(&format!(".{name}")) => path,
        Some(name) => format!("{path}.{}", truncated(name)),
        None if path.is_empty() => "body".to_owned(),
        None => path,
    };
    let detail = if body.is_empty() { "the body is empty: send a JSON object".to_owned() } else { shortened(&message) };
    Problem::malformed(truncated(&field), detail)
}

/// Keeps the beginning, which has what was found, and the end, which has what was
/// expected and where.
fn shortened(message: &str) -> String {
    const KEPT: usize = 110;
    let count = message.chars().count();
    if count <= 2 * KEPT {
        return message.to_owned();
    }
    let begin: String = message.chars().take(KEPT).collect();
    let end: String = message.chars().skip(count - KEPT).collect();
    format!("{begin}…{end}")
}

/// A JSON object and nothing else: serde's own code for structs would also take
/// their values as an array.
pub(super) struct JsonObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for JsonObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
            }
        }
        deserializer.deserialize_map(JsonObjectVisitor(PhantomData))
    }
}

/// The name of an attribute, which borrows from the body unless it was escaped.
// Not a newtype to serde: the path in error messages would lack the name.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct AttributeName<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value of an attribute: text, or a whole number, true or false as its text,
/// because identifiers are numbers in many programs.
struct AttributeValue<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for AttributeValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Cow<'de, str>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string, a whole number, true or false")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(number.to_string()))
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Borrowed(if flag { "true" } else { "false" }))
            }
        }
        deserializer.deserialize_any(ValueVisitor).map(AttributeValue)
    }
}

/// The attributes, already in a request, or the first that cannot be used.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one, and a box would allocate")]
pub(in crate::http) enum Attributes<'a> {
    Valid(Request<'a>),
    Invalid { field: String, detail: String },
}

impl<'a> Attributes<'a> {
    fn insert(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        let Self::Valid(request) = self else { return };
        let unusable = if name.is_empty() {
            None
        } else if value.is_empty() {
            Some("is empty: give it a value or leave the attribute out".to_owned())
        } else if value.len() > VALUE_MAX {
            Some(format!("is {} bytes long and begins {:?}: at most {VALUE_MAX} fit", value.len(), truncated(&value)))
        } else {
            None
        };
        if let Some(reason) = unusable {
            let field = format!("attributes.{}", truncated(&name));
            *self = Self::Invalid { detail: format!("the attribute {:?} {reason}", truncated(&name)), field };
            return;
        }
        if let Err(error) = request.insert(name, value) {
            let field = match &error {
                RequestError::NameTooLong { name, .. } => format!("attributes.{name}…"),
                RequestError::Duplicate { name } => format!("attributes.{name}"),
                _ => "attributes".to_owned(),
            };
            *self = Self::Invalid { field, detail: error.to_string() };
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AttributesVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for AttributesVisitor<'a> {
            type Value = Attributes<'a>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object of strings such as {\"user\": \"42\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes<'a>, A::Error> {
                let mut attributes = Attributes::Valid(Request::new());
                while let Some((AttributeName(name), AttributeValue(value))) = map.next_entry()? {
                    attributes.insert(name, value);
                }
                Ok(attributes)
            }
        }
        deserializer.deserialize_map(AttributesVisitor(PhantomData))
    }
}

/// A cost, or why it is none.
pub(in crate::http) enum Cost {
    Valid(u64),
    /// Valid only for a record.
    Zero,
    Invalid(String),
}

impl Default for Cost {
    fn default() -> Self {
        Self::Valid(1)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CostVisitor;
        impl Visitor<'_> for CostVisitor {
            type Value = Cost;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a whole number, at least 1")
            }

            fn visit_u64<E: Error>(self, cost: u64) -> Result<Cost, E> {
                Ok(match cost {
                    0 => Cost::Zero,
                    1..=LIMIT_MAX => Cost::Valid(cost),
                    _ => Cost::Invalid(format!("cost is {cost}: it must be at most {LIMIT_MAX}")),
                })
            }

            fn visit_i64<E: Error>(self, cost: i64) -> Result<Cost, E> {
                Ok(Cost::Invalid(format!("cost is {cost}: it must be at least 1; to give tokens back use /v1/refund")))
            }

            fn visit_f64<E: Error>(self, cost: f64) -> Result<Cost, E> {
                // Some languages know no other numbers and send 5 as 5.0. Up to
                // the largest cost they are exact.
                if cost.fract() == 0.0 && (1.0..=LIMIT_MAX as f64).contains(&cost) {
                    return Ok(Cost::Valid(cost as u64));
                }
                if cost == 0.0 && cost.is_sign_positive() {
                    return Ok(Cost::Zero);
                }
                Ok(Cost::Invalid(format!("cost is {cost:?}: it must be a whole number, 1 to {LIMIT_MAX}")))
            }
        }
        deserializer.deserialize_any(CostVisitor)
    }
}
