//! Responses to decided requests. The library renders their bodies and header fields; the
//! types here describe the bodies for OpenAPI, and a test compares the two.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use bytes::{Bytes, BytesMut};
use checkdam::headers::Dialect;
use checkdam::{Outcome, Request, render};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::problem::PROBLEM_JSON;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Most responses are shorter, their headers included.
const RESPONSE_BYTES: usize = 1_024;

/// Whether the request passes, and where its tiers stand.
#[derive(Serialize, Deserialize, ToSchema)]
pub(in crate::http) struct Answer {
    /// Whether it passes.
    allowed: bool,
    /// The limit of the tier that governs the request; null if no rule applies to it.
    limit: Option<u64>,
    /// What is left of that limit.
    remaining: Option<u64>,
    /// How long until the same request would pass, in milliseconds, rounded up: 0 if it passes, null if it
    /// never will.
    retry_after_ms: Option<u64>,
    /// How long until that tier owes nothing any more, in milliseconds, rounded up.
    reset_after_ms: u64,
    /// How long to hold the request back (leaky bucket), in milliseconds, rounded up; absent if not at all.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    delay_ms: u64,
    /// Of a record, what was not charged because a tier's debt would have exceeded its `max_debt`, summed over the
    /// tiers; absent if nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    cut_off: u64,
    /// The rule with the longest wait, if the request is denied.
    violated: Option<String>,
    /// The ban on the request, if it is banned; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    ban: Option<BanAnswer>,
    /// What decided.
    #[schema(examples("memory"))]
    decided_by: String,
    /// Every tier that applies to the request, in the order of the rules.
    tiers: Vec<TierAnswer>,
}

/// A ban on a request.
#[derive(Serialize, Deserialize, ToSchema)]
pub(in crate::http) struct BanAnswer {
    /// What is banned: an attribute and its value, a pattern or a network.
    #[schema(examples("user:42", "ip:198.51.100.0/24"))]
    subject: String,
    /// Why.
    reason: String,
    /// When it ends, in RFC 3339; null if never.
    until: Option<String>,
}

impl BanAnswer {
    pub(super) fn from_outcome(outcome: &Outcome) -> Option<Self> {
        let ban = outcome.ban()?;
        let until = ban.until_unix_s.map(checkdam::time::rfc3339);
        Some(Self { subject: ban.subject(), reason: ban.reason.clone(), until })
    }
}

/// One tier's answer.
#[derive(Serialize, Deserialize, ToSchema)]
struct TierAnswer {
    /// The rule it belongs to.
    rule: String,
    /// What kind of subject it counts.
    scope: String,
    /// Whose bucket it is.
    subject: String,
    /// The limit as it is written in the rule or override.
    #[schema(examples("10/s burst 50"))]
    limit_name: String,
    /// Whether it lets the request pass.
    allowed: bool,
    /// The most that can pass at once.
    limit: u64,
    /// What is left.
    remaining: u64,
    /// What was used beyond the limit and is not paid back yet: until then nothing passes. Absent if nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    debt: u64,
    /// How long until it would let the request pass, in milliseconds, rounded up: 0 if it does, null if it
    /// never will.
    retry_after_ms: Option<u64>,
    /// How long until it owes nothing any more, in milliseconds, rounded up.
    reset_after_ms: u64,
    /// True if the rule is in shadow mode: it never denies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    shadow: bool,
}

/// A denied request: an answer that is a problem too.
#[derive(Serialize, Deserialize, ToSchema)]
pub(in crate::http) struct Denied {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    kind: String,
    /// The same, for people.
    title: String,
    /// The HTTP status again.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// Which rule denies it, and when to retry.
    detail: String,
    /// The policies of all tiers that deny it, by the names they have in RateLimit-Policy.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    #[serde(flatten)]
    answer: Answer,
}

/// A denied request, as its own client sees it.
#[derive(Serialize, Deserialize, ToSchema)]
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
    kind: String,
    /// The same, for people.
    title: String,
    /// The HTTP status again.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// When to retry.
    detail: String,
    /// The policies that deny it, by the names they have in RateLimit-Policy.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    /// How long until the same request would pass, in milliseconds, rounded up; null if it never will.
    retry_after_ms: Option<u64>,
}

/// One result of a batch.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
enum BatchItem {
    Allowed {
        /// What a check by itself would have been answered with.
        #[schema(minimum = 200, maximum = 200)]
        status: u16,
        #[serde(flatten)]
        answer: Answer,
    },
    Denied(Denied),
}

/// The results of a batch, in the order of its requests.
#[derive(Serialize, Deserialize, ToSchema)]
pub(in crate::http) struct BatchAnswer {
    /// One a request.
    results: Vec<BatchItem>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
pub(super) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The response to a check: 200, 429, 422 if it can never pass, 403 if it is banned.
pub(in crate::http) fn decision_response(
    request: &Request<'_>,
    outcome: &Outcome,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    if outcome.is_allowed() {
        return state_response(request, outcome, dialect);
    }
    let mut out = BytesMut::with_capacity(RESPONSE_BYTES);
    render::write_denial(&mut out, request, outcome);
    respond(status(outcome), PROBLEM_JSON, out, outcome, dialect)
}

/// The state of the request's limits: always 200.
pub(in crate::http) fn state_response(
    request: &Request<'_>,
    outcome: &Outcome,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    let mut out = BytesMut::with_capacity(RESPONSE_BYTES);
    render::write_state(&mut out, request, outcome);
    respond(StatusCode::OK, JSON, out, outcome, dialect)
}

/// The response to a denied request for its end client.
pub fn denial_response(outcome: &Outcome, dialect: Dialect) -> Response<Full<Bytes>> {
    let mut out = BytesMut::with_capacity(RESPONSE_BYTES);
    render::write_client_denial(&mut out, outcome);
    respond(status(outcome), PROBLEM_JSON, out, outcome, dialect)
}

/// The response to a batch: 200, whatever its decisions.
pub(in crate::http) fn batch_response(decided: &[(Request<'_>, Outcome)]) -> Response<Body> {
    let mut body = String::with_capacity(RESPONSE_BYTES * decided.len());
    render::write_batch(&mut body, decided);
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn status(outcome: &Outcome) -> StatusCode {
    StatusCode::from_u16(render::status(outcome.verdict())).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn respond(
    status: StatusCode,
    content_type: HeaderValue,
    mut out: BytesMut,
    outcome: &Outcome,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(out.split().freeze()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(HEADERS_MAX);
    headers.insert(CONTENT_TYPE, content_type);
    write_headers(out, outcome, dialect, status == StatusCode::OK, |name, value| {
        headers.insert(name, value);
    });
    response
}

/// The rate-limit headers of an allowed request.
pub fn rate_limit_headers(outcome: &Outcome, dialect: Dialect) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(STANDING.len());
    let out = BytesMut::with_capacity(HEADER_BYTES);
    write_headers(out, outcome, dialect, true, |name, value| headers.push((name, value)));
    headers
}

/// The values share one buffer, to which they are appended.
fn write_headers(
    mut out: BytesMut,
    outcome: &Outcome,
    dialect: Dialect,
    is_passing: bool,
    mut set: impl FnMut(HeaderName, HeaderValue),
) {
    checkdam::headers::write(outcome, dialect, |name, value| {
        let Some(name) = header_name(name) else { return };
        // Only denials have `Retry-After`.
        if name == RETRY_AFTER && is_passing {
            return;
        }
        out.extend_from_slice(value.as_bytes());
        if let Ok(value) = HeaderValue::from_maybe_shared(out.split().freeze()) {
            set(name, value);
        }
    });
}

/// The maximum number of headers of a response: these, content type, date, and
/// length.
const HEADERS_MAX: usize = 9;
/// The size of most responses' values.
const HEADER_BYTES: usize = 256;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// All rate-limit headers, of both forms.
pub static STANDING: [HeaderName; 5] = [LIMIT, REMAINING, RESET, POLICY, RATE_LIMIT];

/// The header of that name, without parsing the name for every response.
fn header_name(name: &'static str) -> Option<HeaderName> {
    match name {
        "x-ratelimit-limit" => Some(LIMIT),
        "x-ratelimit-remaining" => Some(REMAINING),
        "x-ratelimit-reset" => Some(RESET),
        "ratelimit-policy" => Some(POLICY),
        "ratelimit" => Some(RATE_LIMIT),
        "retry-after" => Some(RETRY_AFTER),
        other => HeaderName::from_bytes(other.as_bytes()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use checkdam::store::{self, MemoryOptions, MemoryStore, Operation, Store, Tier};
    use checkdam::{DecidedBy, Decision, Limiter, Verdict, rule_file};

    use super::*;

    const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["1/m burst 2", "100/d"] }
  - { name: watched, key: "user:{user}", limits: ["1/h"], mode: shadow }
  - { name: 'a "quoted\name"', key: "path:{path}", limits: ["1/m"] }
  - { name: queue, key: "queue:{queue}", algorithm: leaky_bucket, limits: ["2/s burst 3"] }
bans:
  - { subject: "user:banned", reason: "said \"no\"" }
  - { subject: "user:paused", until: "2999-12-01T00:00:00Z" }
"#;

    /// A store that failed, with rules that pass nothing then.
    struct Failed;

    impl Store for Failed {
        async fn apply(&self, _: Operation, tiers: &[Tier<'_>]) -> store::TierDecisions {
            let decisions = tiers.iter().map(|tier| Decision {
                verdict: Verdict::Unavailable,
                limit: tier.quota.limit(),
                remaining: 0,
                debt: 0,
                retry_after_us: 1_000_000,
                reset_after_us: 0,
                delay_us: 0,
            });
            store::TierDecisions { decisions: decisions.collect(), at_us: 0, by: DecidedBy::Policy, cut_off: 0 }
        }
    }

    /// A body has exactly the members that its type describes, in that order.
    fn assert_described<T: Serialize + serde::de::DeserializeOwned>(body: &str) {
        let read: T = serde_json::from_str(body).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), body);
    }

    async fn check(limiter: &Limiter<impl Store>, request: Request<'static>) -> u16 {
        let outcome = limiter.check(&request).await;
        assert_rendered(request, outcome)
    }

    fn assert_rendered(request: Request<'static>, outcome: Outcome) -> u16 {
        let (mut state, mut denial, mut refusal) = (String::new(), String::new(), String::new());
        render::write_state(&mut state, &request, &outcome);
        assert_described::<Answer>(&state);
        render::write_denial(&mut denial, &request, &outcome);
        assert_described::<Denied>(&denial);
        render::write_client_denial(&mut refusal, &outcome);
        assert_described::<Refusal>(&refusal);
        let (mut batch, verdict) = (String::new(), outcome.verdict());
        render::write_batch(&mut batch, &[(request, outcome)]);
        let is_allowed = verdict == Verdict::Allowed;
        let item = if is_allowed { format!("{{\"status\":200,{}", &state[1..]) } else { denial };
        assert_eq!(batch, format!("{{\"results\":[{item}]}}"));
        if is_allowed {
            assert_described::<BatchAnswer>(&batch);
        }
        render::status(verdict)
    }

    #[tokio::test]
    async fn bodies_have_the_members_that_are_described() {
        let rules = rule_file::compile(RULES).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::new(MemoryOptions::default()));
        let asked = |pairs: &[(&'static str, &'static str)], cost| {
            let with = |request: Request<'static>, (name, value): &(&'static str, &'static str)| {
                request.with(*name, *value).unwrap()
            };
            pairs.iter().fold(Request::new(), with).costing(cost)
        };
        let mut seen = Vec::new();
        for (pairs, cost) in [
            (&[("user", "a\"b\\c\n\u{1}ü")][..], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42")], 200),
            (&[("user", "banned")], 1),
            (&[("user", "paused")], 1),
            (&[("path", "/")], 1),
            (&[("path", "/")], 1),
            (&[("nobody", "x")], 1),
        ] {
            seen.push(check(&limiter, asked(pairs, cost)).await);
        }
        assert_eq!(seen, [200, 200, 200, 429, 422, 403, 403, 200, 429, 200]);
        let used = asked(&[("user", "43")], 5_000);
        let recorded = limiter.record(&used).await;
        assert!(recorded.cut_off() > 0 && recorded.tiers().all(|tier| tier.decision.debt > 0), "{recorded:?}");
        assert_eq!(assert_rendered(used, recorded), 429);
        let failed = Limiter::new(rule_file::compile(RULES).unwrap(), Failed);
        assert_eq!(check(&failed, asked(&[("user", "42"), ("path", "/")], 1)).await, 503);
        let mut empty = String::new();
        render::write_batch(&mut empty, &[]);
        assert_eq!(empty, r#"{"results":[]}"#);
    }
}
