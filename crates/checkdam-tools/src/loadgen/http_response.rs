//! Minimal HTTP/1.1 response parser: status, length and `decided_by`.

use std::io::{Error, ErrorKind};
use std::sync::LazyLock;

use bytes::{Buf, BytesMut};
use checkdam::DecidedBy;
use checkdam_net::{BodyFraming, ResponseFraming, chunk_size};
use memchr::{memchr, memmem};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head, and the longest body that is searched for `decided_by`.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
/// Room for a response of the usual length.
const ROOM: usize = 8 << 10;

static DECIDED_BY: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"decided_by\":\""));

/// A response, as far as it is counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedResponse {
    pub status: u16,
    /// Whether the connection takes another request.
    pub is_kept: bool,
    pub decided_by: Option<DecidedBy>,
    /// Its length, with interim responses and heads.
    pub bytes: usize,
}

/// The responses of a connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct ResponseParser {
    /// What was read from the connection and is not yet used.
    unread: BytesMut,
    /// The bytes used for the current response.
    used: usize,
}

impl ResponseParser {
    /// Reads the next response to its end. `decided_by` is searched for only if it is a
    /// decision.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        has_decision: bool,
    ) -> Result<ParsedResponse, Error> {
        self.used = 0;
        let (status, body, is_kept) = loop {
            let length = self.read_until(stream, b"\r\n\r\n").await?;
            let head = parse_head(&self.unread[..length])?;
            self.advance(length);
            // Interim responses are skipped.
            if head.0 >= 200 {
                break head;
            }
        };
        let mut decided_by = None;
        match body {
            BodyFraming::Length(length) => {
                let length = usize::try_from(length).map_err(|_| invalid("the body is too long"))?;
                if has_decision && length <= HEAD_MAX {
                    while self.unread.len() < length {
                        self.fill(stream).await?;
                    }
                    decided_by = find_decided_by(&self.unread[..length]);
                }
                self.skip(stream, length).await?;
            }
            BodyFraming::Chunked => self.skip_chunks(stream).await?,
            BodyFraming::Closed => self.skip_to_end(stream).await?,
        }
        Ok(ParsedResponse { status, is_kept, decided_by, bytes: self.used })
    }

    /// Whether no unsolicited bytes have arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    fn advance(&mut self, length: usize) {
        self.unread.advance(length);
        self.used += length;
    }

    /// How many bytes there are up to and with the mark.
    async fn read_until(&mut self, stream: &mut (impl AsyncRead + Unpin), mark: &[u8]) -> Result<usize, Error> {
        loop {
            if let Some(place) = memmem::find(&self.unread, mark) {
                return Ok(place + mark.len());
            }
            if self.unread.len() > HEAD_MAX {
                return Err(invalid("the head is too long"));
            }
            self.fill(stream).await?;
        }
    }

    async fn skip(&mut self, stream: &mut (impl AsyncRead + Unpin), mut left: usize) -> Result<(), Error> {
        loop {
            let length = left.min(self.unread.len());
            self.advance(length);
            left -= length;
            if left == 0 {
                return Ok(());
            }
            self.fill(stream).await?;
        }
    }

    async fn skip_chunks(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        loop {
            let line = self.read_until(stream, b"\r\n").await?;
            let size = chunk_size(&self.unread[..line - 2]).and_then(|size| usize::try_from(size).ok());
            let size = size.ok_or_else(|| invalid("a chunk has no length"))?;
            self.advance(line);
            if size == 0 {
                break;
            }
            self.skip(stream, size.saturating_add(2)).await?;
        }
        // Trailers, up to an empty line.
        loop {
            let line = self.read_until(stream, b"\r\n").await?;
            self.advance(line);
            if line == 2 {
                return Ok(());
            }
        }
    }

    async fn skip_to_end(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        loop {
            self.advance(self.unread.len());
            match self.fill(stream).await {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                filled => filled?,
            }
        }
    }

    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        self.unread.reserve(ROOM);
        match stream.read_buf(&mut self.unread).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// The status, the end of the body, and whether the connection is kept.
fn parse_head(text: &[u8]) -> Result<(u16, BodyFraming, bool), Error> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let is_whole = parsed.parse(text).is_ok_and(|status| status.is_complete());
    let status = parsed.code.filter(|_| is_whole).ok_or_else(|| invalid("the answer is not HTTP/1.1"))?;
    let framing = ResponseFraming::parse(&parsed, false).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    Ok((status, framing.body, framing.is_reusable))
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
