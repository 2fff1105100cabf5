//! Errors as problem details (RFC 9457): always JSON, with the field, the value and
//! the remedy. A rejected request has charged nothing.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
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
pub(crate) struct Problem {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    kind: &'static str,
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

fn status_number<S: serde::Serializer>(status: &StatusCode, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u16(status.as_u16())
}

impl Problem {
    /// One that concerns no field.
    pub(crate) const fn new(kind: &'static str, title: &'static str, status: StatusCode, detail: String) -> Self {
        Self { kind, title, status, detail, field: None }
    }

    /// As the client sees it.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The body is not the JSON that is expected.
    pub(super) fn malformed(field: String, detail: String) -> Self {
        Self {
            kind: "urn:checkdam:problem:malformed_body",
            title: "The body does not have the expected form",
            status: StatusCode::BAD_REQUEST,
            detail,
            field: Some(field),
        }
    }

    /// A header cannot be used.
    pub(super) fn malformed_header(header: &str, detail: String) -> Self {
        Self {
            kind: "urn:checkdam:problem:malformed_header",
            title: "A header does not have the expected form",
            status: StatusCode::BAD_REQUEST,
            detail,
            field: Some(header.to_owned()),
        }
    }

    /// An option in the path is given more than once.
    pub(super) fn repeated_option(option: String) -> Self {
        let detail = format!("the option {option:?} is given more than once: give it once");
        Self { field: Some(option), ..Self::bad_request(detail) }
    }

    /// The request target is a host where a path must be.
    fn authority_form(target: &Uri) -> Self {
        let target = truncated(&target.to_string());
        Self::bad_request(format!("the request target {target:?} is no path: begin it with a slash"))
    }

    fn bad_request(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:bad_request", "The request cannot be understood");
        Self { kind, title, status: StatusCode::BAD_REQUEST, detail, field: None }
    }

    /// The body is understood, and a value in it cannot be used.
    pub(super) fn invalid(field: String, detail: String) -> Self {
        Self {
            kind: "urn:checkdam:problem:invalid_value",
            title: "A value is not acceptable",
            status: StatusCode::UNPROCESSABLE_ENTITY,
            detail,
            field: Some(field),
        }
    }

    /// The body is longer than `max` bytes.
    pub(super) fn too_large(max: usize) -> Self {
        Self {
            kind: "urn:checkdam:problem:body_too_large",
            title: "The body is too large",
            status: StatusCode::PAYLOAD_TOO_LARGE,
            detail: format!("the body is longer than {max} bytes: send less at a time"),
            field: Some("body".to_owned()),
        }
    }

    /// A browser may have posted it for a page of another origin.
    pub(super) fn wrong_media_type(media_type: &str) -> Self {
        Self {
            kind: "about:blank",
            title: "Unsupported Media Type",
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            detail: format!("a browser posted {media_type:?}, as forms do: send Content-Type: application/json"),
            field: Some("content-type".to_owned()),
        }
    }

    /// The body did not arrive within `seconds`.
    pub(super) fn timeout(seconds: u64) -> Self {
        Self {
            kind: "urn:checkdam:problem:timeout",
            title: "The request took too long",
            status: StatusCode::REQUEST_TIMEOUT,
            detail: format!("the body did not arrive within {seconds} s"),
            field: Some("body".to_owned()),
        }
    }

    /// The connection failed while the body was read.
    pub(super) fn interrupted(reason: &str) -> Self {
        Self::malformed("body".to_owned(), format!("the body could not be read: {}", truncated(reason)))
    }

    /// Nobody who may come in.
    pub(super) fn unauthorized() -> Self {
        let detail = "send the admin token as \"Authorization: Bearer TOKEN\"".to_owned();
        Self { kind: "about:blank", title: "Unauthorized", status: StatusCode::UNAUTHORIZED, detail, field: None }
    }

    /// Not from there.
    pub(super) fn forbidden(detail: String) -> Self {
        Self { kind: "about:blank", title: "Forbidden", status: StatusCode::FORBIDDEN, detail, field: None }
    }

    /// What is named does not exist.
    pub(super) fn not_found_item(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:not_found", "What is named does not exist");
        Self { kind, title, status: StatusCode::NOT_FOUND, detail, field: None }
    }

    /// What is to be added exists.
    pub(super) fn already_exists(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:exists", "It exists already");
        Self { kind, title, status: StatusCode::CONFLICT, detail, field: Some("name".to_owned()) }
    }

    /// What is to be changed is not what was read.
    pub(super) fn precondition_failed(detail: &str) -> Self {
        let (kind, title) = ("urn:checkdam:problem:changed", "Somebody has changed it meanwhile");
        Self {
            kind,
            title,
            status: StatusCode::PRECONDITION_FAILED,
            detail: format!("{detail}; read it anew"),
            field: None,
        }
    }

    /// The rule only acts.
    pub(super) fn not_in_shadow(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:not_in_shadow", "The rule is not in shadow");
        Self { kind, title, status: StatusCode::CONFLICT, detail, field: None }
    }

    /// A file says what the rules are.
    pub(super) fn rules_from_file(path: &str) -> Self {
        Self {
            kind: "urn:checkdam:problem:rules_from_file",
            title: "The rules come from a file",
            status: StatusCode::CONFLICT,
            detail: format!("the rules are those of {path:?}: edit the file, or start without --rules"),
            field: None,
        }
    }

    /// What is needed does not answer.
    pub(super) fn unavailable(detail: String) -> Self {
        Self {
            kind: "urn:checkdam:problem:database_unavailable",
            title: "The database does not answer",
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail,
            field: None,
        }
    }

    /// There is more to do than can be done in time.
    pub(crate) fn overloaded() -> Self {
        Self {
            kind: "urn:checkdam:problem:overloaded",
            title: "The server has too much to do",
            status: StatusCode::SERVICE_UNAVAILABLE,
            detail: "nothing was read or charged: try again after a second, or ask another node".to_owned(),
            field: None,
        }
    }

    /// There is no room for one more.
    pub(super) fn busy(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:busy", "There is no room for one more");
        Self { kind, title, status: StatusCode::SERVICE_UNAVAILABLE, detail, field: None }
    }

    /// Nothing can be decided.
    pub(super) fn cannot_decide(detail: String) -> Self {
        let (kind, title) = ("urn:checkdam:problem:undecided", "Nothing could be decided");
        Self { kind, title, status: StatusCode::INTERNAL_SERVER_ERROR, detail, field: None }
    }

    /// Nothing is there, and what was probably meant.
    fn not_found(path: &str, advice: &str) -> Self {
        Self {
            kind: "about:blank",
            title: "Not Found",
            status: StatusCode::NOT_FOUND,
            detail: format!("there is nothing at {:?}: {advice}", truncated(path)),
            field: None,
        }
    }

    fn wrong_method(method: &Method, path: &str) -> Self {
        Self {
            kind: "about:blank",
            title: "Method Not Allowed",
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: format!(
                "{:?} does not take {}: see the Allow header for what it takes",
                truncated(path),
                truncated(method.as_str())
            ),
            field: None,
        }
    }

    /// The same with what to do.
    pub(super) fn with_advice(mut self, advice: &str) -> Self {
        self.detail = format!("{}: {advice}", self.detail);
        self
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
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Answers requests for paths that the listener for decisions does not have.
pub(super) async fn not_found(method: Method, uri: Uri) -> Problem {
    if is_misplaced_authority(&method, &uri) {
        return Problem::authority_form(&uri);
    }
    let path = uri.path();
    if path == "/admin" || path.starts_with("/admin/") {
        let advice = "the admin API is on a listener of its own, by default http://127.0.0.1:8082 (--admin-listen)";
        return Problem::not_found(path, advice);
    }
    Problem::not_found(path, &default_advice(path))
}

/// Answers requests for paths that the admin listener does not have.
pub(super) async fn not_found_by_admin(method: Method, uri: Uri) -> Problem {
    if is_misplaced_authority(&method, &uri) {
        return Problem::authority_form(&uri);
    }
    let path = uri.path();
    if path.starts_with("/v1/") || path == "/json" {
        let advice = "decisions are on another listener, by default http://127.0.0.1:8080 (--http-listen)";
        return Problem::not_found(path, advice);
    }
    Problem::not_found(path, &default_advice(path))
}

fn default_advice(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "see /openapi.json for what there is".to_owned(),
        bare if bare != path => format!("leave out the slash at the end, {:?}", truncated(bare)),
        _ => "see /openapi.json for what there is".to_owned(),
    }
}

/// Answers requests with a method that the path does not have.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::wrong_method(&method, uri.path())
}

/// A client's text, cut to what a message can bear.
pub(super) fn truncated(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
