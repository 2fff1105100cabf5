//! Errors as problem details (RFC 9457): always JSON, with the field, the value and
//! the remedy. A rejected request has charged nothing.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::client_identity::is_misplaced_authority;

/// The media type of every error.
pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Texts of clients are cut to this many characters in messages.
const SHOWN_MAX: usize = 80;

/// Why a request was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "type": "urn:checkdam:problem:invalid_value",
    "title": "A value is not acceptable",
    "status": 422,
    "detail": "cost is 0: it must be at least 1; to ask without charging use /v1/peek",
    "field": "cost",
})))]
pub struct Problem {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    kind: Cow<'static, str>,
    /// The same, for people.
    title: &'static str,
    /// The HTTP status again.
    #[serde(serialize_with = "status_number")]
    #[schema(value_type = u16)]
    status: StatusCode,
    /// What is wrong with this request, and what to do.
    detail: String,
    /// Where the cause stands: in the body, such as `attributes.user`, or the header or parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// The problems that have a type of their own.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProblemKind {
    BadRequest,
    BodyTooLarge,
    Busy,
    Changed,
    DatabaseUnavailable,
    Exists,
    InvalidValue,
    MalformedBody,
    MalformedHeader,
    NotFound,
    NotInShadow,
    Overloaded,
    Privileged,
    RulesFromFile,
    Timeout,
    Undecided,
}

impl ProblemKind {
    /// The status, the end of the type's URN, and the title.
    const fn description(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BadRequest => (StatusCode::BAD_REQUEST, "bad_request", "The request cannot be understood"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", "There is no room for one more"),
            Self::Changed => (StatusCode::PRECONDITION_FAILED, "changed", "Somebody has changed it meanwhile"),
            Self::DatabaseUnavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "database_unavailable", "The database does not answer")
            }
            Self::Exists => (StatusCode::CONFLICT, "exists", "It exists already"),
            Self::InvalidValue => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", "A value is not acceptable"),
            Self::MalformedBody => {
                (StatusCode::BAD_REQUEST, "malformed_body", "The body does not have the expected form")
            }
            Self::MalformedHeader => {
                (StatusCode::BAD_REQUEST, "malformed_header", "A header does not have the expected form")
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "What is named does not exist"),
            Self::NotInShadow => (StatusCode::CONFLICT, "not_in_shadow", "The rule is not in shadow"),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "The server has too much to do"),
            Self::Privileged => (StatusCode::FORBIDDEN, "privileged", "Privileged requests are not accepted here"),
            Self::RulesFromFile => (StatusCode::CONFLICT, "rules_from_file", "The rules come from a file"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "timeout", "The request took too long"),
            Self::Undecided => (StatusCode::INTERNAL_SERVER_ERROR, "undecided", "Nothing could be decided"),
        }
    }

    /// A problem of this kind without a field.
    pub(super) fn problem(self, detail: impl Into<String>) -> Problem {
        let (status, end, title) = self.description();
        let kind = format!("urn:checkdam:problem:{end}").into();
        Problem { kind, title, status, detail: detail.into(), field: None }
    }

    /// A problem of this kind whose cause is in this field.
    pub(super) fn in_field(self, field: impl Into<String>, detail: impl Into<String>) -> Problem {
        Problem { field: Some(field.into()), ..self.problem(detail) }
    }
}

fn status_number<S: serde::Serializer>(status: &StatusCode, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u16(status.as_u16())
}

impl Problem {
    pub const fn new(kind: &'static str, title: &'static str, status: StatusCode, detail: String) -> Self {
        Self { kind: Cow::Borrowed(kind), title, status, detail, field: None }
    }

    /// A problem that its status alone describes.
    pub(super) fn of_status(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new("about:blank", status.canonical_reason().unwrap_or_default(), status, detail.into())
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The body is not the JSON that is expected.
    pub(super) fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Self {
        ProblemKind::MalformedBody.in_field(field, detail)
    }

    pub(super) fn malformed_header(header: &str, detail: impl Into<String>) -> Self {
        ProblemKind::MalformedHeader.in_field(header, detail)
    }

    /// The body is understood, and a value in it cannot be used.
    pub(super) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        ProblemKind::InvalidValue.in_field(field, detail)
    }

    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::of_status(StatusCode::FORBIDDEN, detail)
    }

    pub(super) fn busy(detail: impl Into<String>) -> Self {
        ProblemKind::Busy.problem(detail)
    }

    /// The token is missing or wrong.
    pub(super) fn unauthorized(what: &str, header: &str) -> Self {
        Self::of_status(StatusCode::UNAUTHORIZED, format!("send {what} as {header}"))
    }

    pub(super) fn overloaded() -> Self {
        let detail = "nothing was read or charged: try again after a second, or ask another node";
        ProblemKind::Overloaded.problem(detail)
    }

    /// What is to be changed is not what was read.
    pub(super) fn precondition_failed(detail: &str) -> Self {
        ProblemKind::Changed.problem(format!("{detail}; read it anew"))
    }

    /// The same with what to do.
    pub(super) fn with_advice(mut self, advice: &str) -> Self {
        self.detail = format!("{}: {advice}", self.detail);
        self
    }

    /// The same with the field that is its cause.
    pub(super) fn with_field(self, field: &str) -> Self {
        Self { field: Some(field.to_owned()), ..self }
    }

    /// The same problem inside a list.
    pub(super) fn with_prefix(mut self, place: &str) -> Self {
        self.field = self.field.map(|field| format!("{place}.{field}"));
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(super::wire::json(&self)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        if self.status == StatusCode::UNAUTHORIZED {
            // RFC 9110, 15.5.2.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Answers requests for paths that the listener for decisions does not have.
pub(super) async fn not_found(method: Method, uri: Uri) -> Problem {
    let is_admin = uri.path() == "/admin" || uri.path().starts_with("/admin/");
    let advice = "the admin API is on a listener of its own, by default http://127.0.0.1:8082 (--admin-listen)";
    not_found_problem(&method, &uri, is_admin.then_some(advice))
}

/// Answers requests for paths that the admin listener does not have.
pub(super) async fn not_found_by_admin(method: Method, uri: Uri) -> Problem {
    let is_decision = uri.path().starts_with("/v1/") || uri.path() == "/json";
    let advice = "decisions are on another listener, by default http://127.0.0.1:8080 (--http-listen)";
    not_found_problem(&method, &uri, is_decision.then_some(advice))
}

/// Nothing is there, and what was probably meant.
fn not_found_problem(method: &Method, uri: &Uri, advice: Option<&str>) -> Problem {
    if is_misplaced_authority(method, uri) {
        let target = truncated(&uri.to_string());
        let detail = format!("the request target {target:?} is no path: begin it with a slash");
        return ProblemKind::BadRequest.problem(detail);
    }
    let path = uri.path();
    let advice = match (advice, path.trim_end_matches('/')) {
        (Some(advice), _) => advice.to_owned(),
        (None, bare) if !bare.is_empty() && bare != path => {
            format!("leave out the slash at the end, {:?}", truncated(bare))
        }
        _ => "see /openapi.json for what there is".to_owned(),
    };
    Problem::of_status(StatusCode::NOT_FOUND, format!("there is nothing at {:?}: {advice}", truncated(path)))
}

/// Answers requests with a method that the path does not have.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let (path, method) = (truncated(uri.path()), truncated(method.as_str()));
    let detail = format!("{path:?} does not take {method}: see the Allow header for what it takes");
    Problem::of_status(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// A client's text, cut to what a message can bear.
pub(super) fn truncated(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
