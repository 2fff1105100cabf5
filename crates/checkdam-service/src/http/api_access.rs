//! Access control of the HTTP API: API tokens, and privileged requests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use checkdam_envoy_proto::RateLimitRequest;

use super::problem::{Problem, ProblemKind};
use crate::access::{ListenerAccess, PRIVILEGED_SETTING, bearer};

/// The API token at `/v1/auth`, where `Authorization` may be that of the proxy's client.
const TOKEN: HeaderName = HeaderName::from_static("x-checkdam-token");

/// Rejects requests without a valid API token.
pub(super) async fn require_api_token(
    State(access): State<Arc<ListenerAccess>>,
    request: Request,
    next: Next,
) -> Response {
    match unauthorized(&access, request.headers()) {
        Some(response) => response,
        None => next.run(request).await,
    }
}

/// Rejects resets and refunds where they are not permitted.
pub(super) async fn require_privileged(
    State(access): State<Arc<ListenerAccess>>,
    request: Request,
    next: Next,
) -> Response {
    if access.permits_privileged() {
        return next.run(request).await;
    }
    let admin = request.uri().path().replacen("/v1/", "/admin/v1/", 1);
    let advice = format!("use {admin} of the admin API");
    not_permitted(request.uri().path().to_owned(), &advice).into_response()
}

/// The response to a request without a valid API token; none if it has one, or needs none.
#[inline]
pub(super) fn unauthorized(access: &ListenerAccess, headers: &HeaderMap) -> Option<Response> {
    (!access.accepts(headers)).then(|| reject(access))
}

/// Rejects a request of a proxy without a valid API token. A valid one is removed, so that
/// no attribute is made of it.
pub(super) fn take_proxy_token(access: &ListenerAccess, headers: &mut HeaderMap) -> Result<(), Problem> {
    if !access.needs_token() {
        return Ok(());
    }
    let is_in_own = headers.get(TOKEN).is_some_and(|given| access.accepts_token(given.as_bytes()));
    let is_in_authorization = bearer(headers).is_some_and(|given| access.accepts_token(given));
    headers.remove(TOKEN);
    if is_in_authorization {
        headers.remove(AUTHORIZATION);
    }
    if is_in_own || is_in_authorization {
        return Ok(());
    }
    access.log_rejected("let the proxy send it to /v1/auth as X-Checkdam-Token");
    Err(Problem::unauthorized("the API token", "\"X-Checkdam-Token: TOKEN\" or \"Authorization: Bearer TOKEN\""))
}

/// Rejects what a rate limit request may not have, where it is not permitted.
pub(super) fn check_privileged(access: &ListenerAccess, message: &RateLimitRequest) -> Result<(), Problem> {
    if access.permits_privileged() {
        return Ok(());
    }
    for (index, descriptor) in message.descriptors.iter().enumerate() {
        if descriptor.limit.is_some() {
            let advice = "leave it out, and write the limit into the rules";
            return Err(not_permitted(format!("descriptors[{index}].limit"), advice));
        }
        if descriptor.is_negative_hits {
            let advice = "refund by /admin/v1/refund of the admin API";
            return Err(not_permitted(format!("descriptors[{index}].is_negative_hits"), advice));
        }
    }
    Ok(())
}

fn reject(access: &ListenerAccess) -> Response {
    access.log_rejected("send it as \"Authorization: Bearer TOKEN\"");
    Problem::unauthorized("the API token", "\"Authorization: Bearer TOKEN\"").into_response()
}

/// A privileged request is rejected; `field` is what makes it one.
fn not_permitted(field: String, advice: &str) -> Problem {
    let detail = format!(
        "this listener does not accept {field}: {advice}, or permit it by {PRIVILEGED_SETTING} allow; auto also \
         permits it with an API token (--api-token), client certificates, or a loopback address"
    );
    ProblemKind::Privileged.in_field(field, detail)
}
