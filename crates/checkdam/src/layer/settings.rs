//! A layer's settings, and the check of one request by its head.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use smallvec::SmallVec;

use super::denial::{Denial, bad_request};
use crate::headers::{self, Dialect};
use crate::limiter::Limiter;
use crate::normalize::{self, PathNormalization};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::store::Store;

pub(super) type Extractor = Box<dyn for<'a> Fn(&'a Parts) -> Option<Cow<'a, str>> + Send + Sync>;
pub(super) type CostFn = Box<dyn Fn(&Parts) -> u64 + Send + Sync>;
pub(super) type OnOutcome = Box<dyn Fn(&Request<'_>, &Outcome) + Send + Sync>;
pub(super) type OnDenied = Box<dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync>;
pub(super) type Headers = SmallVec<[(HeaderName, HeaderValue); 6]>;

/// What a layer does with each request.
pub(super) struct Settings<S> {
    pub(super) limiter: Arc<Limiter<S>>,
    pub(super) domain: String,
    /// Attributes' names, and how each is read.
    pub(super) extractors: Vec<(Cow<'static, str>, Extractor)>,
    /// The headers that are read.
    pub(super) headers: Vec<HeaderName>,
    /// The forms in which the path is read.
    pub(super) paths: Vec<PathNormalization>,
    /// The attribute that is the host, if it is read.
    pub(super) host: Option<Cow<'static, str>>,
    pub(super) cost: CostFn,
    pub(super) dialect: Dialect,
    pub(super) delay_max: Duration,
    pub(super) on_outcome: Option<OnOutcome>,
    pub(super) on_denied: OnDenied,
}

/// What becomes of a request.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one, and a box would allocate")]
pub(super) enum Action {
    /// The service is called after the delay; its response gets the headers.
    Forward { headers: Headers, delay: Duration },
    /// The response that replaces the service's.
    Respond(Response<Bytes>),
}

impl<S: Store> Settings<S> {
    pub(super) async fn decide(&self, parts: &Parts) -> Action {
        if let Some(detail) = self.ambiguity(parts) {
            return Action::Respond(bad_request(&detail));
        }
        let request = self.request(parts);
        let delay_max_us = u64::try_from(self.delay_max.as_micros()).unwrap_or(u64::MAX);
        let outcome = self.limiter.check_within(&request, delay_max_us).await;
        if let Some(on_outcome) = &self.on_outcome {
            on_outcome(&request, &outcome);
        }
        let headers = self.headers(&outcome);
        if outcome.is_allowed() {
            return Action::Forward { headers, delay: Duration::from_micros(outcome.delay_us()) };
        }
        let mut response = (self.on_denied)(&Denial::new(parts, request.cost(), &outcome));
        add_headers(headers, &mut response);
        Action::Respond(response)
    }

    /// Why the service might read the request otherwise than the extractors do.
    fn ambiguity(&self, parts: &Parts) -> Option<String> {
        let is_hidden = |header: &&HeaderName| {
            let connection = parts.headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
            normalize::is_hop_by_hop(connection, header.as_str())
        };
        if let Some(hidden) = self.headers.iter().find(is_hidden) {
            return Some(format!("Connection names {hidden}, which is not for one connection: leave it out there"));
        }
        if let Some(name) = self.host.as_deref().filter(|name| host(parts).is_none() && self.is_named(name)) {
            return Some(format!("the request names no host, and rules go by it ({name}): name one"));
        }
        let path = parts.uri.path();
        self.paths.iter().find_map(|forms| match forms.endpoint(path) {
            Err(error) => Some(format!("{error}: send it in one way")),
            Ok(_) if forms.has_dot_segments(path) => {
                Some("the path has dot segments: ask for the path that is meant".to_owned())
            }
            Ok(_) => None,
        })
    }

    /// Whether a rule names an attribute.
    fn is_named(&self, attribute: &str) -> bool {
        self.limiter.rules().rules().any(|rule| {
            rule.key.attributes().any(|name| name == attribute) || rule.when.iter().any(|(name, _)| name == attribute)
        })
    }

    fn request<'a>(&'a self, parts: &'a Parts) -> Request<'a> {
        let mut request = Request::new().in_domain(self.domain.as_str()).costing((self.cost)(parts));
        for (name, read) in &self.extractors {
            let Some(value) = read(parts).filter(|value| !value.is_empty()) else { continue };
            // Names were validated when the layer was built.
            let _ = request.insert_unbounded(name.as_ref(), value);
        }
        request
    }

    fn headers(&self, outcome: &Outcome) -> Headers {
        let mut list = Headers::new();
        headers::write(outcome, self.dialect, |name, value| {
            if let Ok(value) = HeaderValue::from_str(value) {
                list.push((HeaderName::from_static(name), value));
            }
        });
        list
    }
}

/// The host that a request is for, in its one form.
pub(super) fn host(parts: &Parts) -> Option<String> {
    let named = || parts.headers.get(HOST)?.to_str().ok();
    let authority = parts.uri.authority().map(http::uri::Authority::as_str).or_else(named)?;
    // The text before an @ is the user, not part of the host.
    normalize::host(authority.rsplit('@').next()?)
}

/// Adds headers that the response does not have: a service that limits by itself, or
/// has another layer, knows more.
pub(super) fn add_headers<B>(headers: Headers, response: &mut Response<B>) {
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(value);
    }
}

impl<S> fmt::Debug for Settings<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.extractors.iter().map(|(name, _)| name.as_ref()).collect();
        out.debug_struct("Settings")
            .field("domain", &self.domain)
            .field("attributes", &names)
            .field("dialect", &self.dialect)
            .field("delay_max", &self.delay_max)
            .finish_non_exhaustive()
    }
}
