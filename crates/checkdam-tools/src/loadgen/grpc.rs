//! gRPC client of the load generator: Envoy's rate limit service, many clients to a
//! connection.

use std::error::Error;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use bytes::{BufMut, Bytes, BytesMut};
use checkdam_envoy_proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::Mutex;

use super::client::{Client, RequestFailure, RequestResult, ServerVerdict};
use super::endpoint::Endpoint;
use super::key_template::KeyTemplate;
use super::target::Target;

/// Before each message: not compressed, and its length in four bytes.
const PREFIX: usize = 5;
/// The maximum size of a response in bytes.
const ANSWER_MAX: usize = 4 << 20;

#[derive(Debug)]
pub struct GrpcRequest {
    uri: Uri,
    domain: String,
    entries: Vec<(String, KeyTemplate)>,
    /// Without it the server's own default: 1.
    cost: Option<u64>,
    /// `authorization`, for a server that needs a token.
    authorization: Option<HeaderValue>,
}

impl GrpcRequest {
    /// Asks the service of `target`.
    pub fn new(
        target: &Target,
        domain: &str,
        entries: &[(String, KeyTemplate)],
        cost: u64,
    ) -> Result<Self, axum::http::uri::InvalidUri> {
        let (scheme, authority) = (if target.is_tls { "https" } else { "http" }, &target.authority);
        let uri = format!("{scheme}://{authority}{SHOULD_RATE_LIMIT}").parse()?;
        let cost = (cost != 1).then_some(cost);
        Ok(Self { uri, domain: domain.to_owned(), entries: entries.to_vec(), cost, authorization: None })
    }

    /// The same with an API token.
    pub fn with_token(self, token: &str) -> Result<Self, axum::http::header::InvalidHeaderValue> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        Ok(Self { authorization: Some(authorization), ..self })
    }

    /// The same, charging nothing.
    pub fn without_cost(self) -> Self {
        Self { cost: Some(0), ..self }
    }

    fn message(&self, key: u64) -> Bytes {
        let mut digits = itoa::Buffer::new();
        let key = digits.format(key);
        let entry =
            |(name, value): &(String, KeyTemplate)| Entry { key: name.clone(), value: value.fill(key).into_bytes() };
        let entries = self.entries.iter().map(entry).collect();
        let descriptor = RateLimitDescriptor { entries, hits_addend: self.cost, ..RateLimitDescriptor::default() };
        let message = RateLimitRequest { domain: self.domain.clone(), descriptors: vec![descriptor], hits_addend: 0 };
        let length = message.encoded_len();
        let mut text = BytesMut::with_capacity(PREFIX + length);
        text.put_u8(0);
        text.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        // Room for all of it was made.
        let _ = message.encode(&mut text);
        text.freeze()
    }
}

/// A connection shared by several clients, replaced when it has ended.
#[derive(Debug)]
pub(super) struct SharedChannel {
    endpoint: Endpoint,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl SharedChannel {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, sender: Mutex::new(None) }
    }

    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, RequestFailure> {
        let mut kept = self.sender.lock().await;
        if let Some(sender) = kept.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = self.endpoint.connect().await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|error| failure_of(&error))?;
        // It ends with its sender, and its error reaches the pending requests.
        tokio::spawn(connection);
        Ok(kept.insert(sender).clone())
    }
}

/// A client's share of a connection.
#[derive(Debug)]
pub(super) struct GrpcClient {
    link: Arc<SharedChannel>,
    request: Arc<GrpcRequest>,
}

impl GrpcClient {
    pub(super) const fn new(link: Arc<SharedChannel>, request: Arc<GrpcRequest>) -> Self {
        Self { link, request }
    }
}

impl Client for GrpcClient {
    async fn connect(&mut self) {
        let _ = self.link.sender().await;
    }

    async fn send(&mut self, key: u64) -> Result<RequestResult, RequestFailure> {
        let mut sender = self.link.sender().await?;
        let message = self.request.message(key);
        let sent_bytes = message.len();
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = axum::http::Method::POST;
        *request.uri_mut() = self.request.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("te", HeaderValue::from_static("trailers"));
        if let Some(authorization) = &self.request.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = sender.send_request(request).await.map_err(|error| failure_of(&error))?;
        if response.status() != 200 {
            return Ok(error_result(response.status().as_u16(), sent_bytes, 0));
        }
        // A response without a message has its status in the headers.
        let early = status(response.headers());
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| failure_of(&*error))?;
        let code = early.or_else(|| status(body.trailers()?)).ok_or(RequestFailure::Reset)?;
        let body = body.to_bytes();
        if code != 0 {
            return Ok(error_result(code, sent_bytes, body.len()));
        }
        let answer = body.get(PREFIX..).and_then(|message| RateLimitResponse::decode(message).ok());
        let answer = answer.ok_or_else(|| RequestFailure::Other("the answer is not one of the service".to_owned()))?;
        let verdict = match answer.overall_code() {
            Code::Ok => ServerVerdict::Allowed,
            Code::OverLimit => ServerVerdict::Limited,
            Code::Unknown => ServerVerdict::Undecided,
        };
        let has_limit = Some(answer.statuses.iter().any(|status| status.current_limit.is_some()));
        Ok(RequestResult { verdict, status: None, decided_by: None, has_limit, sent_bytes, received_bytes: body.len() })
    }
}

fn error_result(status: u16, sent_bytes: usize, received_bytes: usize) -> RequestResult {
    let (verdict, status) = (ServerVerdict::Undecided, Some(status));
    RequestResult { verdict, status, decided_by: None, has_limit: None, sent_bytes, received_bytes }
}

fn status(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The cause of a connection error.
fn failure_of(error: &(dyn Error + 'static)) -> RequestFailure {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    if let Some(error) = causes().find_map(|error| error.downcast_ref::<std::io::Error>()) {
        return std::io::Error::new(error.kind(), error.to_string()).into();
    }
    let is_end = |error: &hyper::Error| error.is_closed() || error.is_canceled();
    if causes().filter_map(|error| error.downcast_ref()).any(is_end) {
        return RequestFailure::Reset;
    }
    RequestFailure::Other(causes().map(ToString::to_string).collect::<Vec<_>>().join(": "))
}
