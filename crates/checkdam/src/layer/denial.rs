//! Responses to denied requests.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::decision::Verdict;
use crate::headers::retry_after_us;
use crate::outcome::Outcome;
use crate::render;

const GRPC: &str = "application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// A request that does not pass, and why.
#[derive(Debug)]
pub struct Denial<'a> {
    parts: &'a Parts,
    cost: u64,
    outcome: &'a Outcome,
}

impl<'a> Denial<'a> {
    pub(super) const fn new(parts: &'a Parts, cost: u64, outcome: &'a Outcome) -> Self {
        Self { parts, cost, outcome }
    }

    /// The head of the request.
    #[must_use]
    pub const fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// What was decided.
    pub const fn outcome(&self) -> &'a Outcome {
        self.outcome
    }

    /// 429 if it must wait, 422 if it can never pass, 403 if it is banned, 503 if the
    /// store did not reply and the rule denies what it cannot decide.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self.outcome.verdict() {
            Verdict::CostExceedsBurst => StatusCode::UNPROCESSABLE_ENTITY,
            Verdict::Banned => StatusCode::FORBIDDEN,
            Verdict::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Verdict::Denied | Verdict::Allowed => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// The rule that denies it, and when to retry.
    #[must_use]
    pub fn detail(&self) -> String {
        match (self.outcome.ban(), self.outcome.violated()) {
            // The banned subject and the reason are shown to operators only.
            (Some(_), _) => "the request is banned".to_owned(),
            (None, Some(tier)) => render::tier_detail(&tier, self.cost),
            (None, None) => String::new(),
        }
    }

    /// Whether the request is a gRPC call.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.content_type().is_some()
    }

    /// The layer's default response: problem details, or for gRPC a status without a
    /// body.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        match self.content_type() {
            Some(content_type) => self.grpc(content_type.clone()),
            None => self.problem(),
        }
    }

    fn content_type(&self) -> Option<&'a HeaderValue> {
        self.parts.headers.get(CONTENT_TYPE).filter(|value| value.as_bytes().starts_with(GRPC.as_bytes()))
    }

    fn problem(&self) -> Response<Bytes> {
        let mut body = String::with_capacity(512);
        render::write_layer_denial(&mut body, self.outcome, self.status().as_u16(), &self.detail());
        problem_response(self.status(), body)
    }

    /// A response of headers only, which is how gRPC fails a call at once.
    fn grpc(&self, content_type: HeaderValue) -> Response<Bytes> {
        // From the list of gRPC's status codes, by name: RESOURCE_EXHAUSTED,
        // INVALID_ARGUMENT, PERMISSION_DENIED, UNAVAILABLE.
        let code = match self.outcome.verdict() {
            Verdict::Denied | Verdict::Allowed => 8_u16,
            Verdict::CostExceedsBurst => 3,
            Verdict::Banned => 7,
            Verdict::Unavailable => 14,
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(GRPC_STATUS, HeaderValue::from(code));
        if let Ok(message) = HeaderValue::from_str(&percent_encoded(&self.detail())) {
            headers.insert(GRPC_MESSAGE, message);
        }
        // Clients with a retry policy wait for this long, or not at all.
        let wait_us = retry_after_us(self.outcome);
        if wait_us > 0 {
            headers.insert(GRPC_PUSHBACK, HeaderValue::from(wait_us.div_ceil(1_000)));
        }
        response
    }
}

/// The response to an ambiguous request.
pub(super) fn bad_request(detail: &str) -> Response<Bytes> {
    let (kind, title) = ("urn:checkdam:problem:bad_request", "The request cannot be understood");
    let mut body = String::with_capacity(512);
    render::write_problem(&mut body, kind, title, StatusCode::BAD_REQUEST.as_u16(), detail);
    problem_response(StatusCode::BAD_REQUEST, body)
}

fn problem_response(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// Text as `grpc-message` holds it.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
