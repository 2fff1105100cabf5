//! Denial responses for the end client, which a proxy passes on: they contain when to
//! retry, and nothing of other tiers, subjects or an operator's reasons.

use axum::http::{Response, StatusCode};
use bytes::{Bytes, BytesMut};
use checkdam::Outcome;
use checkdam::headers::Dialect;
use http_body_util::Full;
use utoipa::ToSchema;

use super::json;
use super::responses::{kind_and_title, millis, respond, status};
use crate::http::problem::PROBLEM_JSON;

/// A refused request, as its own client sees it.
#[derive(serde::Serialize, ToSchema)]
#[schema(examples(json!({
    "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
    "title": "Request cannot be satisfied as assigned quota has been exceeded",
    "status": 429,
    "detail": "too many requests: try again in 100 ms",
    "violated-policies": ["user-free 10/s"],
    "retry_after_ms": 100,
})))]
pub(in crate::http) struct Refusal {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The same, for people.
    title: &'static str,
    /// The status of the refusal.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// When to come back.
    detail: String,
    /// The policies that refuse it, by the names they have in RateLimit-Policy.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    /// How long until the same request would pass, in milliseconds, rounded up; 0 if that is unknown.
    retry_after_ms: u64,
}

/// Answers a request that does not pass.
pub(crate) fn denial_response(outcome: &Outcome, dialect: Dialect) -> Response<Full<Bytes>> {
    let status = status(outcome.verdict());
    let (kind, title) = kind_and_title(status);
    let retry_after_ms = millis(outcome.retry_after_us());
    let refused = match status {
        StatusCode::UNPROCESSABLE_ENTITY => "the request costs more than a limit can ever hold",
        StatusCode::FORBIDDEN => "requests like this one are banned",
        StatusCode::SERVICE_UNAVAILABLE => "the limits cannot be checked at the moment",
        _ => "too many requests",
    };
    let body = json(&Refusal {
        kind,
        title,
        status: status.as_u16(),
        detail: match retry_after_ms {
            0 => refused.to_owned(),
            wait => format!("{refused}: try again in {wait} ms"),
        },
        violated_policies: outcome.denying().map(|tier| tier.policy_name().to_owned()).collect(),
        retry_after_ms,
    });
    respond(status, PROBLEM_JSON, BytesMut::from(&body[..]), outcome, dialect)
}
