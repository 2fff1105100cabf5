//! Decoder of chunked transfer coding (RFC 9112, section 7.1).

use std::io::{Error, ErrorKind};

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use bytes::{Buf, Bytes};
use checkdam_net::chunk_size;

use super::connection::Connection;

/// The longest line before a chunk.
const LINE_MAX: usize = 256;
const TRAILERS_MAX: usize = 16 << 10;
const TRAILERS_COUNT: usize = 64;

/// Where in its chunks a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ChunkedDecoder {
    /// Before the line that says how long a chunk is.
    #[default]
    Size,
    /// In a chunk with this many bytes left.
    Data(u64),
    /// Before the end of a chunk's last line.
    End,
    /// Behind the last chunk.
    Trailers,
    Done,
}

#[derive(Debug)]
pub(super) enum ChunkedPart {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// More must be read first.
    Missing,
}

impl ChunkedDecoder {
    /// Decodes the next part of the buffered bytes.
    pub(super) fn next(&mut self, connection: &mut Connection) -> Result<ChunkedPart, Error> {
        loop {
            let unread = &mut connection.unread;
            match *self {
                Self::Size => {
                    let Some(length) = line_length(unread, LINE_MAX)? else { return Ok(ChunkedPart::Missing) };
                    let size =
                        chunk_size(&unread[..length]).ok_or_else(|| malformed("the size of a chunk is no number"))?;
                    unread.advance(length + 2);
                    *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                }
                Self::Data(_) if unread.is_empty() => return Ok(ChunkedPart::Missing),
                Self::Data(left) => {
                    let data = connection.take(left);
                    let left = left - data.len() as u64;
                    *self = if left == 0 { Self::End } else { Self::Data(left) };
                    return Ok(ChunkedPart::Data(data));
                }
                Self::End if unread.len() < 2 => return Ok(ChunkedPart::Missing),
                Self::End => {
                    if !unread.starts_with(b"\r\n") {
                        return Err(malformed("a chunk is longer than it said"));
                    }
                    unread.advance(2);
                    *self = Self::Size;
                }
                Self::Trailers => {
                    let Some((trailers, length)) = trailers(unread)? else { return Ok(ChunkedPart::Missing) };
                    unread.advance(length);
                    *self = Self::Done;
                    if !trailers.is_empty() {
                        return Ok(ChunkedPart::Trailers(trailers));
                    }
                }
                Self::Done => return Ok(ChunkedPart::End),
            }
        }
    }
}

/// The length of the next line, without its end; none if it is incomplete.
fn line_length(bytes: &[u8], length_max: usize) -> Result<Option<usize>, Error> {
    match memchr::memchr2(b'\r', b'\n', bytes) {
        Some(length) if length > length_max => Err(malformed("a line of a chunked body is too long")),
        None if bytes.len() > length_max => Err(malformed("a line of a chunked body is too long")),
        None => Ok(None),
        Some(length) => match bytes[length..] {
            [b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => Ok(Some(length)),
            _ => Err(malformed("a line of a chunked body ends without CR LF")),
        },
    }
}

/// The trailers and how long they are; none if they are not all there yet.
fn trailers(bytes: &[u8]) -> Result<Option<(HeaderMap, usize)>, Error> {
    let mut headers = [httparse::EMPTY_HEADER; TRAILERS_COUNT];
    let (length, headers) = match httparse::parse_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete((length, headers))) if length <= TRAILERS_MAX => (length, headers),
        Ok(httparse::Status::Partial) if bytes.len() < TRAILERS_MAX => return Ok(None),
        Ok(_) => return Err(malformed("the trailers of a body are too long")),
        Err(_) => return Err(malformed("the trailers of a body are malformed")),
    };
    let mut map = HeaderMap::new();
    for header in headers {
        let parts = (HeaderName::from_bytes(header.name.as_bytes()), HeaderValue::from_bytes(header.value));
        let (Ok(name), Ok(value)) = parts else { return Err(malformed("a trailer of a body is malformed")) };
        map.append(name, value);
    }
    Ok(Some((map, length)))
}

fn malformed(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_one_way_only() {
        assert_eq!(line_length(b"5\r\nhello", 9).unwrap(), Some(1));
        for partial in [&b""[..], b"5", b"5\r"] {
            assert_eq!(line_length(partial, 9).unwrap(), None, "{partial:?}");
        }
        for bad in [&b"5\nhello"[..], b"5\rhello", b"5;0123456789", b"5;01234567890\r\n"] {
            assert!(line_length(bad, 9).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_hexadecimal_numbers() {
        for (line, expected) in [("0", 0), ("a", 10), ("1F;x=y", 31), ("5 ", 5), ("ffffffffffffffff", u64::MAX)] {
            assert_eq!(chunk_size(line.as_bytes()), Some(expected), "{line:?}");
        }
        for line in ["", "x", "5x", "-5", "+5", "0x5", " 5", "10000000000000000"] {
            assert_eq!(chunk_size(line.as_bytes()), None, "{line:?}");
        }
    }
}
