//! The OpenAPI 3.1 document of the API, generated from the code.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use bytes::Bytes;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{HeaderBuilder, RefOr};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::admin::AdminPaths;
use super::problem::Problem;
use super::{auth, envoy_json, health, metrics, v1};

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut document = Document::openapi();
    document.merge(AdminPaths::openapi());
    // Unknown fields of requests are refused, but answers have more: the same schema describes both.
    let schemas = document.components.iter_mut().flat_map(|components| components.schemas.values_mut());
    for schema in schemas {
        if let RefOr::T(Schema::Object(object)) = schema
            && matches!(object.additional_properties.as_deref(), Some(AdditionalProperties::FreeForm(false)))
        {
            object.additional_properties = None;
        }
    }
    Bytes::from(super::wire::json(&document))
});

pub(super) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], DOCUMENT.clone())
}

#[derive(OpenApi)]
#[openapi(
    info(title = "checkdam", description = "Rate limiter: checks requests against rules, and reports when a denied request may be retried"),
    paths(
        v1::check,
        v1::batch,
        v1::record,
        v1::peek,
        v1::refund,
        v1::reset,
        v1::explain,
        auth::auth,
        envoy_json::decide,
        health::livez,
        health::readyz,
        metrics::metrics
    ),
    components(schemas(Problem)),
    modifiers(&RateLimitHeaders, &BearerToken),
    security((), ("token" = [])),
    tags(
        (name = "decisions", description = "Charge requests"),
        (name = "state", description = "Look at limits and change what is owed"),
        (name = "rules", description = "Edit rules, overrides and bans (admin listener)"),
        (name = "violations", description = "List denied requests (admin listener)"),
        (name = "changes", description = "List edits, with who made them (admin listener)"),
        (name = "status", description = "Show the state of a node (admin listener)"),
        (name = "health", description = "Whether the process lives and wants requests")
    )
)]
struct Document;

/// What every endpoint with a body may answer instead.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) enum ErrorResponses {
    /// The body does not have the expected form; nothing was charged
    #[response(status = 400, content_type = "application/problem+json", example = json!({
        "type": "urn:checkdam:problem:malformed_body",
        "title": "The body does not have the expected form",
        "status": 400,
        "detail": "invalid type: integer `42`, expected a string at line 1 column 26",
        "field": "attributes.user",
    }))]
    Malformed(Problem),
    /// The API token is missing or wrong; nothing was charged
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// The body did not arrive in time; nothing was charged
    #[response(status = 408, content_type = "application/problem+json")]
    Timeout(Problem),
    /// The body is larger than 64 KiB; nothing was charged
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// A value is not acceptable, or the cost exceeds what a limit can ever hold; nothing was charged
    #[response(status = 422, content_type = "application/problem+json", example = json!({
        "type": "urn:checkdam:problem:invalid_value",
        "title": "A value is not acceptable",
        "status": 422,
        "detail": "cost is 0: it must be at least 1; to ask without charging use /v1/peek",
        "field": "cost",
    }))]
    Invalid(Problem),
    /// There is too much to do, or a limit denies what its store cannot decide; nothing was charged
    #[response(status = 503, content_type = "application/problem+json", example = json!({
        "type": "urn:checkdam:problem:overloaded",
        "title": "The server has too much to do",
        "status": 503,
        "detail": "nothing was read or charged: try again after a second, or ask another node",
    }))]
    Overloaded(Problem),
}

/// The token that listeners ask for, if they have one.
struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "The API token (--api-token), on the admin listener an admin token (--admin-token), if there is one",
        ));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    }
}

/// The headers that tell a client where it stands, on every answer that has
/// a limit.
struct RateLimitHeaders;

impl Modify for RateLimitHeaders {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let header = |kind, text: &str| {
            let schema = ObjectBuilder::new().schema_type(kind).build();
            RefOr::T(HeaderBuilder::new().schema(Some(schema)).description(Some(text)).build())
        };
        for path in ["/v1/auth", "/v1/check", "/v1/record", "/v1/peek", "/v1/refund", "/v1/reset"] {
            let item = document.paths.paths.get_mut(path);
            let operation = item.and_then(|item| item.post.as_mut().or(item.get.as_mut()));
            for (status, response) in operation.into_iter().flat_map(|operation| &mut operation.responses.responses) {
                let RefOr::T(response) = response else { continue };
                if !["200", "403", "429"].contains(&status.as_str()) {
                    continue;
                }
                let (integer, text) = (Type::Integer, Type::String);
                let mut add = |name: &str, header| response.headers.insert(name.to_owned(), header);
                if status == "403" {
                    add("Retry-After", header(integer, "When the ban ends, in seconds, if it does"));
                    continue;
                }
                add("X-RateLimit-Limit", header(integer.clone(), "The most that can pass at once"));
                add("X-RateLimit-Remaining", header(integer.clone(), "What is left"));
                add("X-RateLimit-Reset", header(integer.clone(), "When nothing is owed any more, in Unix seconds"));
                add("RateLimit-Policy", header(text.clone(), "Every limit: its name, quota and window in seconds"));
                add("RateLimit", header(text, "The limit that governs: what remains, and for how many seconds"));
                if status == "429" {
                    add("Retry-After", header(integer, "When to come back, in seconds, rounded up"));
                }
            }
        }
    }
}

/// Answers to show, the same as the server's own.
pub(super) mod example {
    use serde_json::{Value, json};

    pub(in crate::http) fn answer() -> Value {
        json!({
            "allowed": true, "limit": 50, "remaining": 49, "retry_after_ms": 0, "reset_after_ms": 100,
            "violated": null, "decided_by": "memory", "tiers": [tier(true, 49)],
        })
    }

    /// A record of 60 to a new bucket of 50.
    pub(in crate::http) fn recorded() -> Value {
        let mut tier = tier(false, 0);
        tier["debt"] = json!(10);
        tier["retry_after_ms"] = json!(1000);
        tier["reset_after_ms"] = json!(6000);
        json!({
            "allowed": false, "limit": 50, "remaining": 0, "retry_after_ms": 1000, "reset_after_ms": 6000,
            "violated": "user-free", "decided_by": "memory", "tiers": [tier],
        })
    }

    pub(in crate::http) fn denied() -> Value {
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "rule \"user-free\" (10/s burst 50) is exceeded: try again in 100 ms",
            "violated-policies": ["user-free 10/s"],
            "allowed": false, "limit": 50, "remaining": 0, "retry_after_ms": 100, "reset_after_ms": 5000,
            "violated": "user-free", "decided_by": "memory", "tiers": [tier(false, 0)],
        })
    }

    pub(in crate::http) fn banned() -> Value {
        json!({
            "type": "urn:checkdam:problem:banned",
            "title": "The request is banned",
            "status": 403,
            "detail": "\"ip:198.51.100.0/24\" is banned until 2026-12-01T00:00:00Z: scraping",
            "violated-policies": [],
            "allowed": false, "limit": null, "remaining": null, "retry_after_ms": 60000, "reset_after_ms": 0,
            "violated": null,
            "ban": {"subject": "ip:198.51.100.0/24", "reason": "scraping", "until": "2026-12-01T00:00:00Z"},
            "decided_by": "policy", "tiers": [],
        })
    }

    pub(in crate::http) fn batch() -> Value {
        let mut allowed = answer();
        allowed["status"] = json!(200);
        json!({"results": [allowed, denied()]})
    }

    pub(in crate::http) fn explained() -> Value {
        json!({
            "allowed": true,
            "violated": null,
            "matches": [{
                "rule": "user-free", "description": "The free plan, per user", "key": "user:{user}",
                "subject": "user:42", "scope": "user", "mode": "enforce", "algorithm": "token_bucket",
                "reasons": ["the condition that \"plan\" is free holds: it is \"free\""],
                "tiers": [{
                    "quota": "10/s burst 50", "algorithm": "token_bucket", "allowed": true, "limit": 50, "remaining": 50,
                    "retry_after_ms": 0, "reset_after_ms": 0,
                }],
            }],
            "others": [{
                "rule": "user-pro", "description": "The pro plan, per user",
                "reasons": ["the condition that \"plan\" is pro does not hold: it is \"free\""],
            }],
            "others_left_out": 0,
        })
    }

    fn tier(allowed: bool, remaining: u64) -> Value {
        json!({
            "rule": "user-free", "scope": "user", "subject": "user:42", "limit_name": "10/s burst 50",
            "allowed": allowed, "limit": 50, "remaining": remaining, "retry_after_ms": if allowed { 0 } else { 100 },
            "reset_after_ms": if allowed { 100 } else { 5000 },
        })
    }
}
