//! Parses the counted parts of HTTP/1.1 responses.

use std::io::{Error, ErrorKind};
use std::sync::LazyLock;

use checkdam::DecidedBy;
use checkdam_net::content_length;
use memchr::{memchr, memmem};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head, and the longest body that is searched for `decided_by`.
const HEAD_MAX: usize = 64 << 10;
/// The most headers in a head.
const HEADERS_MAX: usize = 64;
/// Room for an answer of the usual length.
const ROOM: usize = 8 << 10;

static DECIDED_BY: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"decided_by\":\""));

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedResponse {
    pub(crate) status: u16,
    /// Whether the connection takes another request.
    pub(crate) is_kept: bool,
    pub(crate) decided_by: Option<DecidedBy>,
    /// Its length with its head.
    pub(crate) bytes: usize,
}

/// The answers of a connection, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct ResponseParser {
    buffer: Vec<u8>,
    /// What of the buffer is read from the connection and not yet used.
    start: usize,
    end: usize,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFraming {
    Length(usize),
    Chunked,
    /// With the connection.
    Close,
}

#[derive(Debug, PartialEq, Eq)]
struct ParsedHead {
    status: u16,
    body: BodyFraming,
    is_kept: bool,
}

impl ResponseParser {
    /// Reads the next response to its end. `decided_by` is searched for only if it is a
    /// decision.
    pub(crate) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        has_decision: bool,
    ) -> Result<ParsedResponse, Error> {
        let mut bytes = 0;
        let head = loop {
            let length = self.read_until(stream, b"\r\n\r\n").await?;
            let head = ParsedHead::parse(&self.unread()[..length])?;
            self.start += length;
            bytes += length;
            // Answers that only announce one are passed over.
            if head.status >= 200 {
                break head;
            }
        };
        let mut decided_by = None;
        let mut is_kept = head.is_kept;
        bytes += match head.body {
            BodyFraming::Length(length) => {
                if has_decision && length <= HEAD_MAX {
                    self.fill_to(stream, length).await?;
                    decided_by = find_decided_by(&self.unread()[..length]);
                }
                self.skip(stream, length).await?
            }
            BodyFraming::Chunked => self.skip_chunks(stream).await?,
            BodyFraming::Close => {
                is_kept = false;
                self.skip_to_end(stream).await?
            }
        };
        Ok(ParsedResponse { status: head.status, is_kept, decided_by, bytes })
    }

    /// Whether nothing has come that no answer was read from.
    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// How many bytes there are up to and with the mark.
    async fn read_until(&mut self, stream: &mut (impl AsyncRead + Unpin), mark: &[u8]) -> Result<usize, Error> {
        loop {
            if let Some(place) = memmem::find(self.unread(), mark) {
                return Ok(place + mark.len());
            }
            if self.unread().len() > HEAD_MAX {
                return Err(invalid("the head is too long"));
            }
            self.fill(stream).await?;
        }
    }

    /// Reads until so many bytes are in the buffer.
    async fn fill_to(&mut self, stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<(), Error> {
        while self.unread().len() < length {
            self.fill(stream).await?;
        }
        Ok(())
    }

    /// Passes over so many bytes without keeping them.
    async fn skip(&mut self, stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<usize, Error> {
        let mut left = length;
        loop {
            let used = left.min(self.unread().len());
            self.start += used;
            left -= used;
            if left == 0 {
                return Ok(length);
            }
            self.fill(stream).await?;
        }
    }

    async fn skip_chunks(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, Error> {
        let mut bytes = 0;
        loop {
            let line = self.read_until(stream, b"\r\n").await?;
            let digits = self.unread()[..line].split(|byte| matches!(byte, b';' | b'\r' | b' ')).next();
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            let length = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
            let length = length.ok_or_else(|| invalid("a chunk has no length"))?;
            bytes += self.skip(stream, line).await?;
            if length == 0 {
                break;
            }
            bytes += self.skip(stream, length.saturating_add(2)).await?;
        }
        // Trailers, up to an empty line.
        loop {
            let line = self.read_until(stream, b"\r\n").await?;
            bytes += self.skip(stream, line).await?;
            if line == 2 {
                return Ok(bytes);
            }
        }
    }

    async fn skip_to_end(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, Error> {
        let mut bytes = 0;
        loop {
            bytes += self.unread().len();
            self.start = self.end;
            match self.fill(stream).await {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(bytes),
                filled => filled?,
            }
        }
    }

    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < ROOM / 2 {
            self.buffer.resize(self.end + ROOM, 0);
        }
        match stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

impl ParsedHead {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let is_whole = parsed.parse(text).is_ok_and(|status| status.is_complete());
        let status = parsed.code.filter(|_| is_whole).ok_or_else(|| invalid("the answer is not HTTP/1.1"))?;
        let mut head = Self { status, body: BodyFraming::Close, is_kept: parsed.version == Some(1) };
        for header in parsed.headers.iter() {
            let (name, value) = (header.name, header.value.trim_ascii());
            if name.eq_ignore_ascii_case("transfer-encoding") {
                head.body = BodyFraming::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                head.is_kept = !value.eq_ignore_ascii_case(b"close");
            } else if name.eq_ignore_ascii_case("content-length") && head.body != BodyFraming::Chunked {
                let length = content_length(value).and_then(|length| usize::try_from(length).ok());
                let length = length.ok_or_else(|| invalid("the length of the answer is no number"))?;
                head.body = BodyFraming::Length(length);
            }
        }
        if status < 200 || matches!(status, 204 | 304) {
            head.body = BodyFraming::Length(0);
        }
        Ok(head)
    }
}

fn find_decided_by(body: &[u8]) -> Option<DecidedBy> {
    let word = &body[DECIDED_BY.find(body)? + DECIDED_BY.needle().len()..];
    let word = &word[..memchr(b'"', word)?];
    DecidedBy::ALL.into_iter().find(|decided_by| decided_by.name().as_bytes() == word)
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests;
