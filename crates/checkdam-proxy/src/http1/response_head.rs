//! Parses the head of an upstream's response.

use std::mem::MaybeUninit;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use checkdam_net::{BodyFraming, ResponseFraming, ResponseFramingError};

/// The longest head in bytes.
pub(super) const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
/// Capacity for the headers that the proxy adds.
const HEADERS_MORE: usize = 8;

#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    /// Without hop-by-hop headers; of a response that switches protocols Upgrade is kept.
    pub(super) headers: HeaderMap,
    pub(super) framing: BodyFraming,
    /// Whether the connection may carry another request afterwards.
    pub(super) is_lasting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplyError {
    #[error("its head is malformed: {0}")]
    Malformed(httparse::Error),
    #[error("its head is longer than {HEAD_MAX} bytes")]
    TooLong,
    #[error(transparent)]
    Framing(#[from] ResponseFramingError),
    #[error("it switches protocols without an Upgrade request")]
    Switched,
}

impl ResponseHead {
    /// Reads a head, and how long it is; none if it is not all there yet.
    pub(super) fn parse(bytes: &[u8], method: &Method, may_switch: bool) -> Result<Option<(Self, usize)>, ReplyError> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let status = config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut headers);
        let length = match status.map_err(ReplyError::Malformed)? {
            httparse::Status::Complete(length) if length <= HEAD_MAX => length,
            httparse::Status::Partial if bytes.len() < HEAD_MAX => return Ok(None),
            _ => return Err(ReplyError::TooLong),
        };
        let malformed = ReplyError::Malformed(httparse::Error::Status);
        let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(malformed)?;
        let framing = ResponseFraming::parse(&parsed, *method == Method::HEAD)?;
        let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switch && !may_switch {
            return Err(ReplyError::Switched);
        }
        let headers = forwarded_headers(&bytes[..length], parsed.headers, &framing.connection_options, is_switch)?;
        Ok(Some((Self { status, headers, framing: framing.body, is_lasting: framing.is_reusable }, length)))
    }
}

fn forwarded_headers(
    head: &[u8],
    headers: &[httparse::Header<'_>],
    connection_options: &[&[u8]],
    is_switch: bool,
) -> Result<HeaderMap, ReplyError> {
    let mut map = HeaderMap::with_capacity(headers.len() + HEADERS_MORE);
    // The values share one copy of the head.
    let shared = Bytes::copy_from_slice(head);
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| ReplyError::Malformed(httparse::Error::HeaderName))?;
        match name.as_str() {
            "connection" | "te" | "transfer-encoding" | "keep-alive" | "proxy-connection" | "http2-settings" => {
                continue;
            }
            "upgrade" if !is_switch => continue,
            "content-length" if map.contains_key(&name) => continue,
            "content-length" | "upgrade" => {}
            _ if connection_options.iter().any(|listed| listed.eq_ignore_ascii_case(name.as_ref())) => continue,
            _ => {}
        }
        let start = header.value.as_ptr().addr() - head.as_ptr().addr();
        let value = HeaderValue::from_maybe_shared(shared.slice(start..start + header.value.len()));
        map.append(name, value.map_err(|_| ReplyError::Malformed(httparse::Error::HeaderValue))?);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Result<Option<(ResponseHead, usize)>, ReplyError> {
        ResponseHead::parse(head.as_bytes(), &Method::GET, false)
    }

    fn whole(lines: &str) -> ResponseHead {
        read(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).unwrap().unwrap().0
    }

    #[test]
    fn the_end_of_a_body_is_where_the_head_says() {
        for (lines, framing, is_lasting) in [
            ("Content-Length: 5\r\n", BodyFraming::Length(5), true),
            ("content-length: 5\r\nContent-Length: 5\r\n", BodyFraming::Length(5), true),
            ("Transfer-Encoding: Chunked\r\n", BodyFraming::Chunked, true),
            ("Transfer-Encoding: chunked\r\nConnection: x, Close\r\n", BodyFraming::Chunked, false),
            ("X: y\r\n", BodyFraming::Closed, false),
        ] {
            let reply = whole(lines);
            assert_eq!((reply.framing, reply.is_lasting), (framing, is_lasting), "{lines:?}");
        }
        let old = |lines: &str| read(&format!("HTTP/1.0 200 OK\r\n{lines}\r\n")).unwrap().unwrap().0.is_lasting;
        assert!(old("Content-Length: 1\r\nConnection: keep-alive\r\n") && !old("Content-Length: 1\r\n"));
    }

    #[test]
    fn answers_without_a_body_have_none_whatever_they_say() {
        let of = |method: &Method, line: &str| {
            let head = format!("HTTP/1.1 {line}\r\n\r\n");
            let (reply, _) = ResponseHead::parse(head.as_bytes(), method, true).unwrap().unwrap();
            (reply.framing, reply.is_lasting)
        };
        let none = BodyFraming::Length(0);
        assert_eq!(of(&Method::HEAD, "200 OK\r\nContent-Length: 9"), (none, true));
        assert_eq!(of(&Method::GET, "304 Not Modified\r\nContent-Length: 9"), (none, true));
        assert_eq!(of(&Method::GET, "204 No Content\r\nContent-Length: 0"), (none, true));
        assert_eq!(of(&Method::GET, "204 No Content\r\nContent-Length: 9"), (none, false), "it may come");
        assert_eq!(of(&Method::GET, "103 Early Hints"), (none, true));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_read_in_none() {
        for (head, error) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::TwoLengths),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::BadLength),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", ReplyError::Framing(ResponseFramingError::BadLength)),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", ReplyError::Framing(ResponseFramingError::BadLength)),
            ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", ReplyError::Framing(ResponseFramingError::BadLength)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::BadLength),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::BadCoding),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::BadCoding),
            ),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                ReplyError::Framing(ResponseFramingError::BadCoding),
            ),
            ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", ReplyError::Switched),
            ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", ReplyError::Malformed(httparse::Error::HeaderName)),
            ("HTTP/1.1 200 OK\r\nX : a\r\n\r\n", ReplyError::Malformed(httparse::Error::HeaderName)),
            ("HTTP/2.0 200 OK\r\n\r\n", ReplyError::Malformed(httparse::Error::Version)),
        ] {
            assert_eq!(read(head).map(|_| ()), Err(error), "{head:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_MAX));
        assert_eq!(read(&long).map(|_| ()), Err(ReplyError::TooLong));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(read(&many).map(|_| ()), Err(ReplyError::Malformed(httparse::Error::TooManyHeaders)));
        assert!(read("HTTP/1.1 200 OK\r\nX: y\r\n").unwrap().is_none());
    }

    #[test]
    fn what_concerns_one_connection_is_left_out() {
        let reply = whole(
            "Connection: X-Hop, close\r\nKeep-Alive: timeout=5\r\nX-Hop: goes\r\nUpgrade: h2c\r\nX-Own:  a b \r\n\
             Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
        );
        let headers: Vec<_> =
            reply.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        let expected = [("x-own", "a b"), ("set-cookie", "a"), ("set-cookie", "b"), ("content-length", "5")];
        assert_eq!(headers, expected);
    }
}
