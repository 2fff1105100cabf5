//! `POST /json`: Envoy's rate limit service as JSON over HTTP.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use super::api_access::check_privileged;
use super::problem::{Problem, ProblemKind};
use super::wire::{self, read};
use crate::access::ListenerAccess;
use crate::grpc::{DecisionError, EnvoyRateLimits};
use checkdam_envoy_proto::Code;

/// Charges all descriptors of a request to their limits, or none: Envoy's ShouldRateLimit as JSON.
#[utoipa::path(
    post, path = "/json", tag = "decisions",
    request_body(content = serde_json::Value, content_type = "application/json",
        description = "A RateLimitRequest of envoy.service.ratelimit.v3 in protobuf's JSON form",
        example = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "42"}]}]})),
    responses(
        (status = 200, description = "It passes: a RateLimitResponse", body = serde_json::Value,
            example = json!({"overallCode": "OK", "statuses": [{
                "code": "OK", "currentLimit": {"requestsPerUnit": 10, "unit": "MINUTE"},
                "limitRemaining": 9, "durationUntilReset": "42s",
            }]})),
        (status = 429, description = "It is over a limit, and nothing was charged: a RateLimitResponse",
            body = serde_json::Value, example = json!({"overallCode": "OVER_LIMIT", "statuses": [{
                "code": "OVER_LIMIT", "currentLimit": {"requestsPerUnit": 10, "unit": "MINUTE"},
                "durationUntilReset": "42s",
            }]})),
        (status = 400, description = "It is not understood; nothing was charged", body = Problem,
            content_type = "application/problem+json"),
        (status = 401, description = "The API token is missing or wrong", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "It brings a limit or a refund, and the listener does not accept them; or a web \
            page of another origin asked", body = Problem, content_type = "application/problem+json"),
        (status = 500, description = "There are no rules to decide by", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(super) async fn decide(
    State((rate_limits, access)): State<(Arc<EnvoyRateLimits>, Arc<ListenerAccess>)>,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let body = read(body).await?;
    let message = wire::parse_rate_limit(&body)?;
    check_privileged(&access, &message)?;
    let answer = rate_limits.decide(&message).await.map_err(|error| decision_problem(&error))?;
    let status = if answer.overall_code() == Code::Ok { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    Ok((status, [(CONTENT_TYPE, "application/json")], wire::write_rate_limit(&answer)).into_response())
}

fn decision_problem(error: &DecisionError) -> Problem {
    match error.field() {
        Some(field) => Problem::malformed(field, error.to_string()),
        None => ProblemKind::Undecided.problem(error.to_string()),
    }
}
