//! `/v1/auth`: forward authentication for nginx `auth_request`, Caddy `forward_auth`,
//! Traefik `ForwardAuth` and similar proxies.
//!
//! The proxy describes its client's request in headers. It passes on headers that it
//! does not set itself as its client sent them, so headers that contradict each other
//! are rejected: a client cannot add its own value beside the proxy's. For the same
//! reason options are in the path, and the query is ignored: Caddy passes its
//! client's query on by default.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode, Version};
use axum::response::IntoResponse;
use checkdam::normalize::PathNormalization;
use checkdam::{LIMIT_MAX, Request, RequestError, VALUE_MAX};
use checkdam_net::{RequestPeer, SheddingListener};

use super::api_access::take_proxy_token;
use super::problem::{Problem, ProblemKind, truncated};
use super::same_origin::AllowedHosts;
use super::wire::{self, Refusal};
use crate::access::ListenerAccess;
use crate::app::App;
use crate::client_identity::{
    ClientIdentity, DescribedRequest, IdentityError, RequestTarget, host, join_cookies, single_value,
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const X_ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// The path of the endpoint; options may follow.
pub(super) const PATH: &str = "/v1/auth";

/// The true status, for proxies that understand only 403.
const STATUS: HeaderName = HeaderName::from_static("x-checkdam-status");
/// How long to hold a request back that passes.
const DELAY: HeaderName = HeaderName::from_static("x-checkdam-delay-ms");

/// The forward-auth endpoint.
pub(super) struct ForwardAuth {
    app: Arc<App>,
    identity: Arc<ClientIdentity>,
    hosts: Arc<AllowedHosts>,
    access: Arc<ListenerAccess>,
    has_warned: AtomicBool,
    has_warned_of_options: AtomicBool,
}

impl ForwardAuth {
    pub(super) fn new(
        app: Arc<App>,
        identity: Arc<ClientIdentity>,
        hosts: Arc<AllowedHosts>,
        access: Arc<ListenerAccess>,
    ) -> Self {
        let (has_warned, has_warned_of_options) = Default::default();
        Self { app, identity, hosts, access, has_warned, has_warned_of_options }
    }

    /// Why a direct request of a browser is rejected. On this machine a trusted address
    /// proves nothing: browsers run here too.
    fn refuse_browser(&self, parts: &Parts, peer: IpAddr) -> Option<Problem> {
        let is_of_proxy = self.identity.is_trusted(peer) && !peer.to_canonical().is_loopback();
        self.hosts.refuse_auth(&parts.headers, &parts.uri, is_of_proxy)
    }

    async fn decide(&self, parts: &Parts, peer: IpAddr, options: &AuthOptions<'_>) -> Result<Response<Body>, Problem> {
        if let Some(problem) = self.refuse_browser(parts, peer) {
            return Err(problem);
        }
        self.warn_of_untrusted_peer(peer, &parts.headers);
        let request = options.apply(described_request(&self.identity, parts, peer)?)?;
        if request.get("host").is_none() && self.app.telemetry().attributes().is_named("host") {
            let detail = "the request names no host, and rules go by it: let the proxy send X-Forwarded-Host";
            return Err(Problem::malformed_header("x-forwarded-host", detail));
        }
        let outcome = self.app.check(&request).await;
        if !outcome.is_allowed() {
            return Ok(wire::denial_response(&outcome, self.app.dialect()).map(Body::new));
        }
        let mut response = Response::new(Body::empty());
        response.headers_mut().extend(wire::rate_limit_headers(&outcome, self.app.dialect()));
        if outcome.delay_us() > 0 {
            response.headers_mut().insert(DELAY, outcome.delay_us().div_ceil(1_000).into());
        }
        Ok(response)
    }

    /// Logged, because the proxy may show the response to no one.
    fn warn_of_options(&self, problem: &Problem) {
        if !self.has_warned_of_options.swap(true, Ordering::Relaxed) {
            let problem = problem.to_json();
            tracing::warn!(problem, "a proxy calls /v1/auth with invalid options: correct its configuration");
        }
    }

    /// Without trust all clients of a proxy count as one: an operator that has not set it
    /// should learn why.
    fn warn_of_untrusted_peer(&self, peer: IpAddr, headers: &HeaderMap) {
        let is_ignored = headers.contains_key(X_FORWARDED_FOR) && !self.identity.is_trusted(peer);
        if is_ignored && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%peer, "ignoring X-Forwarded-For: the peer is not in --trusted-proxies");
        }
    }
}

/// Charges the request that a proxy describes in headers; any method will do.
///
/// Attributes are `method`, `endpoint`, `host`, `ip`, and those of --header-attributes. What the headers leave out is
/// taken from the request itself. Options may follow in the path, as /v1/auth/domain=shop&cost=5&attr.plan=free&denied=403:
/// the domain, what to charge, an attribute, and that every refusal shall have the status 403, for nginx, with the true
/// one in X-Checkdam-Status.
#[utoipa::path(
    get, path = "/v1/auth", tag = "decisions",
    params(
        ("X-Forwarded-Method" = Option<String>, Header, description = "The method; or X-Original-Method"),
        ("X-Forwarded-Uri" = Option<String>, Header, description = "Path and query; or X-Original-URI, X-Original-URL"),
        ("X-Forwarded-Host" = Option<String>, Header, description = "The host; or X-Original-URL, or Host"),
        ("X-Forwarded-For" = Option<String>, Header, description = "The client, if the sender is among --trusted-proxies"),
        ("X-Checkdam-Token" = Option<String>, Header, description = "The API token, if there is one; or Authorization"),
    ),
    responses(
        (status = 200, description = "It passes and was charged; the body is empty"),
        (status = 400, description = "A header cannot be read, or headers contradict each other; nothing was charged",
            body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "The API token is missing or wrong; nothing was charged", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "It is banned, or a browser asked by itself; nothing was charged", body = Refusal,
            content_type = "application/problem+json"),
        (status = 422, description = "An option is not acceptable, or the cost exceeds what a limit can ever hold",
            body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "It must wait; nothing was charged", body = Refusal,
            content_type = "application/problem+json"),
        (status = 503, description = "There is too much to do, or a limit denies what its store cannot decide", body = Refusal,
            content_type = "application/problem+json"),
    )
)]
pub(super) async fn auth(
    State(auth): State<Arc<ForwardAuth>>,
    Extension(RequestPeer { ip: peer, since }): Extension<RequestPeer>,
    mut parts: Parts,
) -> Response<Body> {
    if parts.version == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    let options = parts.uri.path().strip_prefix(PATH).unwrap_or_default();
    let (options, invalid) = AuthOptions::parse(options.strip_prefix('/').unwrap_or_default());
    let decided = match (take_proxy_token(&auth.access, &mut parts.headers), invalid) {
        (Err(problem), _) => Err(problem),
        (Ok(()), Some(problem)) => {
            auth.warn_of_options(&problem);
            Err(problem)
        }
        (Ok(()), None) if auth.app.overload().should_shed(SheddingListener::Http, since) => Err(Problem::overloaded()),
        (Ok(()), None) => auth.decide(&parts, peer, &options).await,
    };
    let mut response = decided.into_response();
    let status = response.status();
    if options.denies_by_403 && status != StatusCode::OK {
        response.headers_mut().insert(STATUS, HeaderValue::from(status.as_u16()));
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    response
}

/// What the proxy's configuration says beside the headers.
#[derive(Default)]
struct AuthOptions<'a> {
    domain: Cow<'a, str>,
    cost: Option<u64>,
    attributes: Vec<(String, Cow<'a, str>)>,
    denies_by_403: bool,
}

impl<'a> AuthOptions<'a> {
    /// Reads all that can be read, and says what is wrong first: even then a
    /// proxy gets the status that it understands.
    fn parse(text: &'a str) -> (Self, Option<Problem>) {
        let mut options = Self::default();
        let mut invalid = None;
        let mut names = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let repeated = names.contains(&name).then(|| {
                let option = truncated(&name);
                let detail = format!("the option {option:?} is given more than once: give it once");
                ProblemKind::BadRequest.in_field(option, detail)
            });
            let problem =
                options.set_option(&name, value).err().map(|detail| Problem::invalid(truncated(&name), detail));
            invalid = invalid.or(repeated).or(problem);
            names.push(name);
        }
        (options, invalid)
    }

    fn set_option(&mut self, name: &str, value: Cow<'a, str>) -> Result<(), String> {
        match name {
            "domain" if value.len() <= VALUE_MAX => self.domain = value,
            "domain" => return Err(format!("the domain is {} bytes long: at most {VALUE_MAX} fit", value.len())),
            "denied" if value == "403" => self.denies_by_403 = true,
            "denied" => return Err(format!("denied is {:?}: use 403 or leave it out", truncated(&value))),
            "cost" => match value.parse() {
                Ok(cost) if (1..=LIMIT_MAX).contains(&cost) => self.cost = Some(cost),
                _ => return Err(format!("cost is {:?}: use a whole number, 1 to {LIMIT_MAX}", truncated(&value))),
            },
            _ => match name.strip_prefix("attr.") {
                Some(_) if value.is_empty() => return Err("it is empty: give it a value or leave it out".to_owned()),
                Some(attribute) => self.attributes.push((attribute.to_owned(), value)),
                None => return Err("there is no such option: use domain, cost, denied or attr.NAME".to_owned()),
            },
        }
        Ok(())
    }

    fn apply(&self, mut request: Request<'static>) -> Result<Request<'static>, Problem> {
        for (name, value) in &self.attributes {
            let added = request.insert(name.clone(), value.clone().into_owned());
            added.map_err(|error: RequestError| {
                Problem::invalid(truncated(&format!("attr.{name}")), error.to_string())
            })?;
        }
        let cost = self.cost.unwrap_or(request.cost());
        Ok(request.in_domain(self.domain.clone().into_owned()).costing(cost))
    }
}

/// The request that the headers describe.
fn described_request(identity: &ClientIdentity, parts: &Parts, peer: IpAddr) -> Result<Request<'static>, Problem> {
    let headers = &parts.headers;
    let paths = &identity.paths;
    refuse_ambiguous_path(headers, paths)?;
    let method = agreeing_value(headers, &[X_FORWARDED_METHOD, X_ORIGINAL_METHOD], |text| Some(text.to_owned()))?;
    let target = agreeing_value(headers, &[X_FORWARDED_URI, X_ORIGINAL_URI, X_ORIGINAL_URL], |text| {
        Some(RequestTarget::parse(text).endpoint(paths).ok()?.into_owned())
    })?;
    let named =
        agreeing_value(headers, &[X_FORWARDED_HOST, X_FORWARDED_URI, X_ORIGINAL_URI, X_ORIGINAL_URL], |text| {
            match RequestTarget::parse(text).authority {
                Some(authority) => host(authority),
                None if text.starts_with('/') => None,
                None => host(text),
            }
        })?;
    let own = parts.uri.authority().map(|authority| authority.as_str());
    let own = own.or_else(|| headers.get(HOST)?.to_str().ok());
    let asked = DescribedRequest {
        method: method.as_deref().unwrap_or(parts.method.as_str()),
        target: target.as_deref().unwrap_or(PATH),
        host: named.as_deref().or(own),
        headers,
        peer,
    };
    identity.request(asked).map_err(|error| identity_problem(&error))
}

/// The proxy forwards the path unchanged, and the application may resolve dot
/// segments or not, decode slashes or not: no limit would be sure to be the right
/// one.
fn refuse_ambiguous_path(headers: &HeaderMap, paths: &PathNormalization) -> Result<(), Problem> {
    for name in [X_FORWARDED_URI, X_ORIGINAL_URI, X_ORIGINAL_URL] {
        let Some(text) = single_value(headers, &name).map_err(|error| identity_problem(&error))? else { continue };
        let target = RequestTarget::parse(text);
        if let Err(error) = target.endpoint(paths) {
            return Err(Problem::malformed_header(name.as_str(), IdentityError::from(error).to_string()));
        }
        if target.has_dot_segments(paths) {
            let detail = "the path has dot segments, which can be read in two ways: ask for the path that is meant";
            return Err(Problem::malformed_header(name.as_str(), detail));
        }
    }
    Ok(())
}

/// What headers say that are meant to say the same, in its normal form.
fn agreeing_value(
    headers: &HeaderMap,
    names: &[HeaderName],
    form: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, Problem> {
    let mut agreed: Option<(&HeaderName, String)> = None;
    for name in names {
        let value = single_value(headers, name).map_err(|error| identity_problem(&error))?;
        let Some(said) = value.filter(|value| !value.is_empty()).and_then(&form) else { continue };
        match &agreed {
            Some((other, before)) if *before != said => {
                let (before, said) = (truncated(before), truncated(&said));
                let detail = format!("{other} says {before:?} and {name} says {said:?}: let the proxy remove one");
                return Err(Problem::malformed_header(name.as_str(), detail));
            }
            Some(_) => {}
            None => agreed = Some((name, said)),
        }
    }
    Ok(agreed.map(|(_, said)| said))
}

fn identity_problem(error: &IdentityError) -> Problem {
    let header = match error {
        IdentityError::Repeated { header, .. }
        | IdentityError::NotText { header }
        | IdentityError::NotACost { header, .. } => header.as_str(),
        IdentityError::NotAMethod { .. } => "x-forwarded-method",
        IdentityError::HopByHop { .. } => "connection",
        IdentityError::Path(_) => "x-forwarded-uri",
        IdentityError::Request(_) => "headers",
    };
    Problem::malformed_header(header, error.to_string())
}
