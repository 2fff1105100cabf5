//! Fuzz targets: one function of bytes for each parser of untrusted input.
//!
//! A target panics if the code under test violates an invariant. Two drivers run them:
//! libFuzzer (`fuzz/`, nightly), and `tests/fuzz.rs` (stable), which runs every seed once, or
//! mutates them for some seconds without coverage. The seeds are in `fuzz/seeds/TARGET/`.
//!
//! Inputs are text where possible, so that seeds can be written by hand. Where a target needs
//! more than the bytes to parse, the first lines of the input have it.

#![allow(clippy::panic, clippy::expect_used, reason = "a target fails by a panic")]

mod access_log;
mod client_identity;
mod forwarded_request;
mod grpc_request;
mod in_memory_http;
mod json_bodies;
mod node_message;
mod polite_headers;
mod redis_reply;
mod rendered_response;
mod request_framing;
mod rules;
mod strict_http;
mod traceparent;
mod upstream_response;

pub use access_log::access_log;
pub use client_identity::client_identity;
pub use forwarded_request::forwarded_request;
pub use grpc_request::grpc_request;
pub use json_bodies::{batch_body, check_body, rate_limit_json};
pub use node_message::node_message;
pub use polite_headers::polite_headers;
pub use redis_reply::redis_reply;
pub use rendered_response::rendered_response;
pub use request_framing::request_framing;
pub use rules::{quota, rule_file};
pub use traceparent::traceparent;
pub use upstream_response::upstream_response;

/// A target: its name, and the function that runs an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 16] = [
    ("access_log", access_log),
    ("batch_body", batch_body),
    ("check_body", check_body),
    ("client_identity", client_identity),
    ("forwarded_request", forwarded_request),
    ("grpc_request", grpc_request),
    ("node_message", node_message),
    ("polite_headers", polite_headers),
    ("quota", quota),
    ("rate_limit_json", rate_limit_json),
    ("redis_reply", redis_reply),
    ("rendered_response", rendered_response),
    ("request_framing", request_framing),
    ("rule_file", rule_file),
    ("traceparent", traceparent),
    ("upstream_response", upstream_response),
];

/// The first line, without its line feed, and what follows it.
fn split_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[]),
    }
}

/// The lines of an input as text. Invalid UTF-8 is replaced.
fn text_lines(data: &[u8]) -> Vec<String> {
    data.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// A list of headers, one for each line `name: value`; lines that are no header are left out.
fn header_lines<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> http::HeaderMap {
    let header = |line: &'a [u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = http::HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
        Some((name, http::HeaderValue::from_bytes(value).ok()?))
    };
    let mut headers = http::HeaderMap::new();
    // More than a server would accept.
    for (name, value) in lines.into_iter().filter_map(header).take(200) {
        headers.append(name, value);
    }
    headers
}
