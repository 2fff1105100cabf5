//! Framing of HTTP/1 responses (RFC 9112, section 6): where the body ends, and whether
//! the connection carries another request afterwards. Ambiguous framing is an error.

use crate::request_framing::content_length;

/// What the head of a response declares of its body and connection.
#[derive(Debug)]
pub struct ResponseFraming<'a> {
    /// Where the body ends.
    pub body: BodyFraming,
    /// Whether the connection may carry another request afterwards.
    pub is_reusable: bool,
    /// The names that `Connection` lists.
    pub connection_options: Vec<&'a [u8]>,
}

/// The end of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// After so many bytes.
    Length(u64),
    /// By chunked transfer coding.
    Chunked,
    /// The end of the connection.
    Closed,
}

/// Why the framing of a response is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseFramingError {
    /// `Content-Length` is no number, or several differ.
    #[error("its Content-Length is no number, or several")]
    BadLength,
    /// `Transfer-Encoding` is not `chunked`, or is not allowed.
    #[error("its Transfer-Encoding is something else than chunked, once, in HTTP/1.1")]
    BadCoding,
    /// Both headers are present.
    #[error("it has both Content-Length and Transfer-Encoding")]
    TwoLengths,
}

impl<'a> ResponseFraming<'a> {
    /// The framing of a response to a request whose method was HEAD, or another.
    pub fn parse(response: &httparse::Response<'_, 'a>, is_head: bool) -> Result<Self, ResponseFramingError> {
        let is_http11 = response.version == Some(1);
        let (mut length, mut is_chunked, mut closes, mut keeps) = (None, false, false, false);
        let mut connection_options = Vec::new();
        for header in &*response.headers {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("content-length") {
                let given = Some(content_length(value).ok_or(ResponseFramingError::BadLength)?);
                // The same length twice is not ambiguous.
                if length.is_some() && length != given {
                    return Err(ResponseFramingError::BadLength);
                }
                length = given;
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                if is_chunked || !is_http11 || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(ResponseFramingError::BadCoding);
                }
                is_chunked = true;
            } else if header.name.eq_ignore_ascii_case("connection") {
                for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    closes |= token.eq_ignore_ascii_case(b"close");
                    keeps |= token.eq_ignore_ascii_case(b"keep-alive");
                    connection_options.push(token);
                }
            }
        }
        if is_chunked && length.is_some() {
            return Err(ResponseFramingError::TwoLengths);
        }
        let status = response.code.unwrap_or_default();
        let body = match length {
            _ if is_head || matches!(status, 100..=199 | 204 | 304) => BodyFraming::Length(0),
            _ if is_chunked => BodyFraming::Chunked,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Closed,
        };
        // A body may follow although it must not.
        let is_odd = status == 204 && (is_chunked || length.is_some_and(|length| length > 0));
        let is_reusable = !closes && (is_http11 || keeps) && body != BodyFraming::Closed && !is_odd;
        Ok(Self { body, is_reusable, connection_options })
    }
}
