//! Entry points of the fuzz targets: responses of upstreams, and requests to them.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Request};
use bytes::Buf;
use checkdam::normalize::PathNormalization;
use checkdam_net::BodyFraming;

use super::chunked_decoder::{ChunkedDecoder, ChunkedPart};
use super::connection::Connection;
use super::request_writer::RequestWriter;
use super::response_head::ResponseHead;
use super::stream::Stream;
use crate::forwarded_headers::{ForwardedFor, ForwardedHead, host};
use crate::request_body::LentBody;

/// Names and values of headers, in order.
pub type HeaderList = Vec<(String, Vec<u8>)>;

/// What was read of a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadResponse {
    /// The status and the headers, once the head is complete.
    pub head: Option<(u16, HeaderList)>,
    /// The declared end of the body.
    pub framing: Option<BodyFraming>,
    /// The length of the head in bytes.
    pub head_bytes: usize,
    /// Whether the connection may be reused afterwards.
    pub is_lasting: bool,
    /// The body so far.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: HeaderMap,
    /// Whether the body has ended.
    pub is_ended: bool,
    /// The bytes behind the body.
    pub rest: Vec<u8>,
    /// Why it is invalid.
    pub error: Option<String>,
}

/// Reads a response that arrives in these parts.
pub fn read_response<'a>(parts: impl IntoIterator<Item = &'a [u8]>, method: &Method, may_switch: bool) -> ReadResponse {
    let mut connection = Connection::new(Stream::None, None);
    let (mut read, mut body) = (ReadResponse::default(), Remaining::Head);
    for part in parts {
        connection.unread.extend_from_slice(part);
        if let Err(error) = body.advance(&mut connection, &mut read, method, may_switch) {
            read.error = Some(error);
            return read;
        }
    }
    read.rest = connection.unread.to_vec();
    read
}

/// What of a response is still to be read.
enum Remaining {
    Head,
    Length(u64),
    Chunks(ChunkedDecoder),
    Closed,
    Nothing,
}

impl Remaining {
    /// Reads as much as there is.
    fn advance(
        &mut self,
        connection: &mut Connection,
        read: &mut ReadResponse,
        method: &Method,
        may_switch: bool,
    ) -> Result<(), String> {
        loop {
            match self {
                Self::Head => {
                    let parsed = ResponseHead::parse(&connection.unread, method, may_switch);
                    let Some((head, length)) = parsed.map_err(|error| error.to_string())? else { return Ok(()) };
                    connection.unread.advance(length);
                    let headers =
                        head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
                    read.head = Some((head.status.as_u16(), headers.collect()));
                    (read.head_bytes, read.is_lasting) = (length, head.is_lasting);
                    read.framing = Some(head.framing);
                    *self = match head.framing {
                        BodyFraming::Length(length) => Self::Length(length),
                        BodyFraming::Chunked => Self::Chunks(ChunkedDecoder::default()),
                        BodyFraming::Closed => Self::Closed,
                    };
                }
                Self::Length(0) => {
                    read.is_ended = true;
                    *self = Self::Nothing;
                }
                Self::Length(_) | Self::Closed if connection.unread.is_empty() => return Ok(()),
                Self::Length(left) => {
                    let data = connection.take(*left);
                    *left -= data.len() as u64;
                    read.body.extend_from_slice(&data);
                }
                Self::Closed => read.body.extend_from_slice(&connection.take(u64::MAX)),
                Self::Chunks(chunks) => match chunks.next(connection).map_err(|error| error.to_string())? {
                    ChunkedPart::Data(data) => read.body.extend_from_slice(&data),
                    ChunkedPart::Trailers(trailers) => read.trailers = trailers,
                    ChunkedPart::End => {
                        read.is_ended = true;
                        *self = Self::Nothing;
                    }
                    ChunkedPart::Missing => return Ok(()),
                },
                Self::Nothing => return Ok(()),
            }
        }
    }
}

/// The head of a request without a body, as it is written to an upstream.
///
/// # Errors
/// If the request is rejected because of its host.
pub fn write_request(
    mut request: Request<()>,
    peer: IpAddr,
    is_trusted: bool,
    paths: &PathNormalization,
) -> Result<Vec<u8>, String> {
    let host = host(&request).map_err(|error| error.to_string())?;
    let head = ForwardedHead::new(&mut request, host, ForwardedFor { peer, is_trusted, is_tls: false }, paths);
    Ok(RequestWriter::new(&head, &LentBody::empty(), "upstream.example:8080", Vec::new()).into_outbox())
}
