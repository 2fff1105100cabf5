//! Responses as JSON and headers.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use bytes::{Bytes, BytesMut};
use checkdam::headers::Dialect;
use checkdam::{Ban, KeyPattern, Outcome, Request, TierView, Verdict};
use http_body_util::Full;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use utoipa::ToSchema;

use super::{check_response, json};
use crate::http::problem::PROBLEM_JSON;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether the request passes, and where its tiers stand.
#[derive(serde::Serialize, ToSchema)]
pub(in crate::http) struct Answer<'a> {
    /// Whether it passes.
    allowed: bool,
    /// The limit of the tier that speaks for the request; null if no rule concerns it.
    limit: Option<u64>,
    /// What is left of that limit.
    remaining: Option<u64>,
    /// How long until the same request would pass, in milliseconds, rounded up.
    retry_after_ms: u64,
    /// How long until that tier owes nothing any more, in milliseconds, rounded up.
    reset_after_ms: u64,
    /// How long to hold the request back (leaky bucket), in milliseconds, rounded up; absent if not at all.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    delay_ms: u64,
    /// The rule with the longest wait, if the request is denied.
    violated: Option<&'a str>,
    /// The ban on the request, if it is banned; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    ban: Option<BanAnswer<'a>>,
    /// Who decided.
    #[schema(value_type = String, examples("memory"))]
    decided_by: &'static str,
    /// Every tier that concerns the request, in the order of the rules.
    #[schema(value_type = Vec<TierAnswer<'_>>)]
    tiers: TierList<'a>,
}

/// A ban on a request.
#[derive(serde::Serialize, ToSchema)]
pub(in crate::http) struct BanAnswer<'a> {
    /// Who is banned: an attribute and its value, a pattern or a network.
    #[schema(examples("user:42", "ip:198.51.100.0/24"))]
    subject: String,
    /// Why.
    reason: &'a str,
    /// When it ends, in RFC 3339; null if never.
    until: Option<String>,
}

impl<'a> BanAnswer<'a> {
    pub(super) fn from_outcome(outcome: &'a Outcome) -> Option<Self> {
        let ban = outcome.ban()?;
        Some(Self { subject: ban.subject(), reason: &ban.reason, until: ban.until_unix_s.map(checkdam::time::rfc3339) })
    }
}

/// One tier's answer.
#[derive(serde::Serialize, ToSchema)]
pub(in crate::http) struct TierAnswer<'a> {
    /// The rule it belongs to.
    rule: &'a str,
    /// What kind of subject it counts.
    scope: &'a str,
    /// Whose bucket it is.
    subject: &'a str,
    /// Whether it lets the request pass.
    allowed: bool,
    /// The most that can pass at once.
    limit: u64,
    /// What is left.
    remaining: u64,
    /// How long until it would let the request pass, in milliseconds, rounded up.
    retry_after_ms: u64,
    /// How long until it owes nothing any more, in milliseconds, rounded up.
    reset_after_ms: u64,
    /// True if the rule only watches: it never denies.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    shadow: bool,
}

/// A denied request: an answer that is a problem too.
#[derive(serde::Serialize, ToSchema)]
pub(in crate::http) struct Denied<'a> {
    /// What kind of problem it is, for programs.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The same, for people.
    title: &'static str,
    /// The HTTP status again.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// Which rule denies it, and when to come back.
    detail: String,
    /// The policies of all tiers that deny it, by the names they have in RateLimit-Policy.
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// One answer of a batch.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
enum BatchItem<'a> {
    Allowed {
        /// What a check by itself would have been answered with.
        #[schema(minimum = 200, maximum = 200)]
        status: u16,
        #[serde(flatten)]
        answer: Answer<'a>,
    },
    Denied(Denied<'a>),
}

/// The answers of a batch, in the order of its requests.
#[derive(serde::Serialize, ToSchema)]
pub(in crate::http) struct BatchAnswer<'a> {
    /// One a request.
    results: Vec<BatchItem<'a>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The response to a check: 200, 429, 422 if it can never pass, 403 if it is banned.
pub(in crate::http) fn decision_response(
    request: &Request<'_>,
    outcome: &Outcome,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    let status = status(outcome.verdict());
    if status == StatusCode::OK {
        return standing_response(request, outcome, dialect);
    }
    respond(status, PROBLEM_JSON, check_response::write_denial(request, outcome, status), outcome, dialect)
}

/// The state of the request's limits: always 200.
pub(in crate::http) fn standing_response(
    request: &Request<'_>,
    outcome: &Outcome,
    dialect: Dialect,
) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, JSON, check_response::write_standing(request, outcome), outcome, dialect)
}

/// The response to a batch: 200, whatever its decisions.
pub(in crate::http) fn batch_response(decided: &[(Request<'_>, Outcome)]) -> Response<Body> {
    let results = decided.iter().map(|(request, outcome)| Answer::batch_item(request, outcome)).collect();
    let body = json(&BatchAnswer { results });
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

pub(super) fn respond(
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
pub(crate) fn rate_limit_headers(outcome: &Outcome, dialect: Dialect) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(STANDING.len());
    let out = BytesMut::with_capacity(STANDING_BYTES);
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
const STANDING_BYTES: usize = 256;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// All rate-limit headers, of both forms.
pub(crate) static STANDING: [HeaderName; 5] = [LIMIT, REMAINING, RESET, POLICY, RATE_LIMIT];

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

pub(super) fn status(verdict: Verdict) -> StatusCode {
    if verdict == Verdict::Allowed {
        StatusCode::OK
    } else if verdict == Verdict::Denied {
        StatusCode::TOO_MANY_REQUESTS
    } else if verdict == Verdict::CostExceedsBurst {
        StatusCode::UNPROCESSABLE_ENTITY
    } else if verdict == Verdict::Banned {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// The type and title of a denial's problem details.
pub(super) fn kind_and_title(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::UNPROCESSABLE_ENTITY => {
            ("urn:checkdam:problem:cost_exceeds_burst", "The cost exceeds what a limit can ever hold")
        }
        StatusCode::FORBIDDEN => ("urn:checkdam:problem:banned", "The request is banned"),
        StatusCode::SERVICE_UNAVAILABLE => {
            ("urn:checkdam:problem:store_unavailable", "The store of the limits does not answer")
        }
        _ => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
    }
}

pub(super) const fn millis(us: u64) -> u64 {
    us.div_ceil(1_000)
}

impl<'a> Answer<'a> {
    pub(super) fn new(request: &'a dyn TierSubjects, outcome: &'a Outcome) -> Self {
        let governing = outcome.governing();
        Self {
            allowed: outcome.is_allowed(),
            limit: governing.map(|tier| tier.decision.limit),
            remaining: governing.map(|tier| tier.decision.remaining),
            retry_after_ms: millis(outcome.retry_after_us()),
            reset_after_ms: governing.map_or(0, |tier| millis(tier.decision.reset_after_us)),
            delay_ms: millis(outcome.delay_us()),
            violated: outcome.violated().map(|tier| tier.rule.name.as_str()),
            ban: BanAnswer::from_outcome(outcome),
            decided_by: outcome.decided_by().name(),
            tiers: TierList { request, outcome },
        }
    }

    fn batch_item(request: &'a dyn TierSubjects, outcome: &'a Outcome) -> BatchItem<'a> {
        if outcome.is_allowed() {
            BatchItem::Allowed { status: StatusCode::OK.as_u16(), answer: Self::new(request, outcome) }
        } else {
            BatchItem::Denied(Denied::new(request, outcome))
        }
    }
}

impl<'a> Denied<'a> {
    pub(super) fn new(request: &'a dyn TierSubjects, outcome: &'a Outcome) -> Self {
        let status = status(outcome.verdict());
        let (kind, title) = kind_and_title(status);
        Self {
            kind,
            title,
            status: status.as_u16(),
            detail: denial_text(request, outcome),
            violated_policies: outcome.denying().map(|tier| tier.policy_name().to_owned()).collect(),
            answer: Answer::new(request, outcome),
        }
    }
}

/// The rule that denies a request, or the reason of the ban, and when to retry.
pub(super) fn denial_text(request: &dyn TierSubjects, outcome: &Outcome) -> String {
    match outcome.ban() {
        Some(ban) => ban_text(ban),
        None => outcome.violated().map(|tier| detail(request, &tier)).unwrap_or_default(),
    }
}

fn ban_text(ban: &Ban) -> String {
    let until = ban.until_unix_s.map(|until| format!(" until {}", checkdam::time::rfc3339(until))).unwrap_or_default();
    let reason = if ban.reason.is_empty() { String::new() } else { format!(": {}", ban.reason) };
    format!("{:?} is banned{until}{reason}", ban.subject())
}

fn detail(request: &dyn TierSubjects, tier: &TierView<'_>) -> String {
    let (rule, quota, cost) = (&tier.rule.name, tier.quota, request.cost());
    match status(tier.decision.verdict) {
        StatusCode::UNPROCESSABLE_ENTITY => {
            let limit = tier.decision.limit;
            format!("a cost of {cost} can never pass rule {rule:?} ({quota}): at most {limit} can pass at once")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            format!("rule {rule:?} ({quota}) denies what its store cannot decide: try again later")
        }
        _ => format!("rule {rule:?} ({quota}) is exceeded: try again in {} ms", millis(tier.decision.retry_after_us)),
    }
}

/// A request, for the subjects of tiers. It hides the request's own lifetime, which
/// cannot be shortened to that of the response.
pub(super) trait TierSubjects {
    fn subject(&self, key: &KeyPattern) -> String;
    fn cost(&self) -> u64;
}

impl TierSubjects for Request<'_> {
    fn subject(&self, key: &KeyPattern) -> String {
        key.render(self)
    }

    fn cost(&self) -> u64 {
        self.cost()
    }
}

/// The tiers of an outcome, written without collecting them.
struct TierList<'a> {
    request: &'a dyn TierSubjects,
    outcome: &'a Outcome,
}

impl Serialize for TierList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tiers = self.outcome.tiers();
        let mut list = serializer.serialize_seq(Some(tiers.len()))?;
        // A rule's tiers have one subject: it is written once a rule.
        let (mut key, mut subject) = ("", String::new());
        for tier in tiers {
            if key != tier.rule.key.text() {
                key = tier.rule.key.text();
                subject = self.request.subject(&tier.rule.key);
            }
            list.serialize_element(&TierAnswer {
                rule: &tier.rule.name,
                scope: &tier.rule.scope,
                subject: &subject,
                allowed: tier.decision.is_allowed(),
                limit: tier.decision.limit,
                remaining: tier.decision.remaining,
                retry_after_ms: millis(tier.decision.retry_after_us),
                reset_after_ms: millis(tier.decision.reset_after_us),
                shadow: !tier.is_enforced(),
            })?;
        }
        list.end()
    }
}
