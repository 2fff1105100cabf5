//! The endpoints under `/v1`. Checks, by far the most frequent, bypass the router, which
//! would box and copy each of them.

use std::fmt::Display;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, Response};
use axum::response::IntoResponse;
use checkdam_net::{RequestArrival, Responder, ResponderResponse, route};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::api_access::unauthorized;
use super::openapi::{ErrorResponses, example};
use super::problem::Problem;
use super::same_origin::AllowedHosts;
use super::wire::{self, Answer, BatchAnswer, BatchBody, CheckBody, Denied, ExplainAnswer, RecordBody, read};
use crate::access::ListenerAccess;
use crate::app::App;

/// The path of checks.
pub(super) const CHECK: &str = "/v1/check";

type V1Result = Result<Response<Body>, Problem>;

/// Answers checks itself, and hands everything else to the router.
#[derive(Clone)]
pub struct FastPath {
    pub(super) app: Arc<App>,
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) access: Arc<ListenerAccess>,
    pub(super) others: Router,
}

impl Responder for FastPath {
    const IS_STRICT: bool = false;

    type Own = Full<Bytes>;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<Self::Own> {
        if request.method() != Method::POST || request.uri().path() != CHECK {
            // Boxed, so that checks do not carry the room for it.
            return Box::pin(route(&self.others, request, arrival)).await.map(Either::Right);
        }
        if let Some(response) = unauthorized(&self.access, request.headers()) {
            return response.map(Either::Right);
        }
        if let Some(problem) = self.hosts.refuse(request.headers(), request.uri()) {
            return problem.into_response().map(Either::Right);
        }
        match check_body(&self.app, request.into_body()).await {
            Ok(response) => response.map(Either::Left),
            Err(problem) => problem.into_response().map(Either::Right),
        }
    }
}

/// Charges a request to every limit that applies to it, or to none.
#[utoipa::path(
    post, path = "/v1/check", tag = "decisions",
    request_body(content = CheckBody<'_>, examples(
        ("a user of the free plan" = (value = json!({"attributes": {"user": "42", "plan": "free"}}))),
        ("every usual attribute, and a cost" = (value = json!({
            "attributes": {"user": "42", "plan": "free", "endpoint": "/api/search", "method": "GET", "ip": "203.0.113.9"},
            "cost": 5
        }))),
    )),
    responses(
        (status = 200, description = "It passes and was charged", body = Answer, example = json!(example::answer())),
        (status = 403, description = "It is banned; nothing was charged", body = Denied,
            content_type = "application/problem+json", example = json!(example::banned())),
        (status = 429, description = "It must wait; nothing was charged", body = Denied,
            content_type = "application/problem+json", example = json!(example::denied())),
        ErrorResponses,
    )
)]
pub(super) async fn check(State(app): State<Arc<App>>, body: Body) -> V1Result {
    check_body(&app, body).await.map(boxed)
}

async fn check_body<B>(app: &App, body: B) -> Result<Response<Full<Bytes>>, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let body = read(body).await?;
    let request = wire::parse(&body)?;
    let outcome = app.check(&request).await;
    Ok(wire::decision_response(&request, &outcome, app.dialect()))
}

/// Charges several requests, each on its own, in their order.
///
/// If one request is malformed, the batch is rejected and nothing is charged.
#[utoipa::path(
    post, path = "/v1/check/batch", tag = "decisions",
    request_body(content = BatchBody<'_>, example = json!({"requests": [
        {"attributes": {"user": "42", "plan": "free"}},
        {"attributes": {"user": "43", "plan": "pro"}, "cost": 2}
    ]})),
    responses(
        (status = 200, description = "Every request was decided: each result has its own status", body = BatchAnswer,
            example = json!(example::batch())),
        ErrorResponses,
    )
)]
pub(super) async fn batch(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let requests = wire::parse_batch(&body)?;
    let mut decided = Vec::with_capacity(requests.len());
    for request in requests {
        let outcome = app.check(&request).await;
        decided.push((request, outcome));
    }
    Ok(wire::batch_response(&decided))
}

/// Answers as a check would, charging nothing: always 200.
#[utoipa::path(
    post, path = "/v1/peek", tag = "state",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}})),
    responses(
        (status = 200, description = "Where the request stands: `allowed` tells whether it would pass", body = Answer,
            example = json!(example::answer())),
        ErrorResponses,
    )
)]
pub(super) async fn peek(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let request = wire::parse(&body)?;
    let outcome = app.peek(&request).await;
    Ok(boxed(wire::state_response(&request, &outcome, app.dialect())))
}

/// Charges what was used already to every limit that applies to the request, whatever is left.
///
/// Never denied: beyond a limit the bucket is in debt, and nothing passes until that is paid back. A banned
/// subject is charged all the same.
#[utoipa::path(
    post, path = "/v1/record", tag = "decisions",
    request_body(content = RecordBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}, "cost": 60})),
    responses(
        (status = 200, description = "Where the request's limits stand afterwards: `allowed` tells whether a request would \
            pass now", body = Answer, example = json!(example::recorded())),
        ErrorResponses,
    )
)]
pub(super) async fn record(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let request = wire::parse_record(&body)?;
    let outcome = app.record(&request).await;
    Ok(boxed(wire::state_response(&request, &outcome, app.dialect())))
}

/// Gives back the request's cost to every limit that applies to it, at most what is owed.
#[utoipa::path(
    post, path = "/v1/refund", tag = "state",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}, "cost": 1})),
    responses(
        (status = 200, description = "Where the request stands afterwards", body = Answer,
            example = json!(example::answer())),
        (status = 403, description = "The listener does not accept it, or a web page of another origin asked", body = Problem,
            content_type = "application/problem+json"),
        ErrorResponses,
    )
)]
pub(super) async fn refund(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let request = wire::parse(&body)?;
    let outcome = app.refund(&request).await;
    Ok(boxed(wire::state_response(&request, &outcome, app.dialect())))
}

/// Forgets what is owed to every limit that applies to the request.
#[utoipa::path(
    post, path = "/v1/reset", tag = "state",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}})),
    responses(
        (status = 200, description = "Where the request stands afterwards", body = Answer,
            example = json!(example::answer())),
        (status = 403, description = "The listener does not accept it, or a web page of another origin asked", body = Problem,
            content_type = "application/problem+json"),
        ErrorResponses,
    )
)]
pub(super) async fn reset(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let request = wire::parse(&body)?;
    let outcome = app.reset(&request).await;
    Ok(boxed(wire::state_response(&request, &outcome, app.dialect())))
}

/// Says which rules apply to the request and why, with their state, charging nothing.
#[utoipa::path(
    post, path = "/v1/explain", tag = "state",
    request_body(content = CheckBody<'_>, example = json!({"attributes": {"user": "42", "plan": "free"}})),
    responses(
        (status = 200, description = "Which rules match it, and why", body = ExplainAnswer<'_>,
            example = json!(example::explained())),
        ErrorResponses,
    )
)]
pub(super) async fn explain(State(app): State<Arc<App>>, body: Body) -> V1Result {
    let body = read(body).await?;
    let request = wire::parse(&body)?;
    let outcome = app.peek(&request).await;
    let explained = wire::explain(outcome.rules(), &request, &outcome, &app.telemetry().attributes().unseen());
    Ok(([(CONTENT_TYPE, "application/json")], explained).into_response())
}

fn boxed(response: Response<Full<Bytes>>) -> Response<Body> {
    response.map(Body::new)
}
