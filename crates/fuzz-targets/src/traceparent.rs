//! Fuzz target: parsing of the header `traceparent` (W3C Trace Context).

use checkdam_service::fuzzing::trace_parent;
use http::{HeaderMap, HeaderValue};

/// A header is a trace context whose text is the same one again, or none.
pub fn traceparent(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", value.clone());
    let read = trace_parent(&headers);
    assert_eq!(read.is_some(), is_valid(data), "{value:?}");
    if let Some((trace, span, is_sampled)) = &read {
        let text = format!("00-{trace}-{span:016x}-{:02x}", u8::from(*is_sampled));
        assert_eq!(data[3..53], text.as_bytes()[3..53], "{value:?}");
        headers.insert("traceparent", HeaderValue::from_str(&text).expect("a trace context is a value"));
        assert_eq!(trace_parent(&headers), read, "{text}");
        headers.append("traceparent", value);
        assert_eq!(trace_parent(&headers), None, "two contradict each other");
    }
}

/// Whether a header is valid by W3C Trace Context, level 1, or by what later levels keep of it.
fn is_valid(data: &[u8]) -> bool {
    let Some((known, rest)) = data.split_at_checked(55) else { return false };
    let fields: Vec<_> = known.split(|byte| *byte == b'-').collect();
    let [version, trace, span, flags] = fields[..] else { return false };
    let is_hexadecimal = |field: &[u8], length: usize| {
        field.len() == length && field.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |field: &[u8]| field.iter().all(|byte| *byte == b'0');
    is_hexadecimal(version, 2)
        && is_hexadecimal(trace, 32)
        && is_hexadecimal(span, 16)
        && is_hexadecimal(flags, 2)
        && !is_zero(trace)
        && !is_zero(span)
        && version != b"ff"
        && (rest.is_empty() || (version != b"00" && rest[0] == b'-'))
}
