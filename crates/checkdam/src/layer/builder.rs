//! Builder of a layer: the attributes it extracts, the cost it charges and the
//! responses it sends.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response};

use super::RateLimitLayer;
use super::address::Address;
use super::denial::Denial;
use super::settings::{Extractor, Settings, host};
use crate::headers::Dialect;
use crate::limiter::Limiter;
use crate::normalize::{self, PathNormalization};
use crate::outcome::Outcome;
use crate::quota::LIMIT_MAX;
use crate::request::{ATTRIBUTES_MAX, NAME_MAX, Request};
use crate::rule::is_attribute_name;
use crate::store::Store;

/// Default maximum delay of a request.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Why a layer could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// No rule could name the attribute.
    #[error("the attribute name {name:?} is not usable: letters, digits, '_', '-' and '.', at most {NAME_MAX} bytes")]
    BadAttribute {
        /// The name.
        name: String,
    },
    /// Two extractors for one attribute.
    #[error("the attribute {name:?} is read twice: decide for one extractor")]
    Duplicate {
        /// The attribute.
        name: String,
    },
    /// Not the name of a header.
    #[error("{name:?} is not the name of a header")]
    BadHeader {
        /// The name.
        name: String,
    },
    /// More attributes than a request may have.
    #[error("the layer reads more than {ATTRIBUTES_MAX} attributes: leave out what no rule needs")]
    TooMany,
}

/// Builds a [`RateLimitLayer`]. [`build`](Self::build) returns the first error.
pub struct RateLimitLayerBuilder<S> {
    settings: Settings<S>,
    error: Option<LayerError>,
}

impl<S: Store + 'static> RateLimitLayerBuilder<S> {
    pub(super) fn new(limiter: Arc<Limiter<S>>) -> Self {
        let settings = Settings {
            limiter,
            domain: String::new(),
            extractors: Vec::new(),
            headers: Vec::new(),
            paths: Vec::new(),
            host: None,
            cost: Box::new(|_| 1),
            dialect: Dialect::default(),
            delay_max: DELAY_MAX,
            on_outcome: None,
            on_denied: Box::new(|denial| denial.response()),
        };
        Self { settings, error: None }
    }

    /// Limits in this domain: only its rules apply to the requests. Default: none.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.settings.domain = domain.into();
        self
    }

    /// Sets an attribute to the client's address.
    #[must_use]
    pub fn address(self, attribute: impl Into<Cow<'static, str>>, address: Address) -> Self {
        self.attribute(attribute, move |parts| Some(Cow::Owned(address.read(parts)?.to_string())))
    }

    /// Sets an attribute to the value of a header, the first if there are
    /// several. Callers choose their headers: see the [module](super). A request
    /// whose Connection names the header is answered with 400: a proxy behind
    /// this layer would take it out.
    #[must_use]
    pub fn header(mut self, attribute: impl Into<Cow<'static, str>>, header: &str) -> Self {
        match header_name(header) {
            Ok(header) => {
                self.settings.headers.push(header.clone());
                self.attribute(attribute, move |parts| {
                    Some(String::from_utf8_lossy(parts.headers.get(&header)?.as_bytes()))
                })
            }
            Err(error) => {
                self.error.get_or_insert(error);
                self
            }
        }
    }

    /// Sets an attribute to the [normalized](PathNormalization::endpoint) path, without
    /// the query. An ambiguous path is answered with 400: one with dot segments, and by
    /// default one with encoded slashes.
    #[must_use]
    pub fn path(self, attribute: impl Into<Cow<'static, str>>) -> Self {
        self.path_in(attribute, PathNormalization::default())
    }

    /// As [`path`](Self::path), with other forms than the default.
    #[must_use]
    pub fn path_in(mut self, attribute: impl Into<Cow<'static, str>>, forms: PathNormalization) -> Self {
        self.settings.paths.push(forms);
        self.attribute(attribute, move |parts| forms.endpoint(parts.uri.path()).ok())
    }

    /// Sets an attribute to the method, in upper case.
    #[must_use]
    pub fn method(self, attribute: impl Into<Cow<'static, str>>) -> Self {
        self.attribute(attribute, |parts| Some(normalize::method(parts.method.as_str())))
    }

    /// Sets an attribute to the [normalized](normalize::host) host of the request. A
    /// request without one, as HTTP/1.0 and HTTP/2 allow, is answered with 400 if a rule
    /// names the attribute.
    #[must_use]
    pub fn host(mut self, attribute: impl Into<Cow<'static, str>>) -> Self {
        let attribute = attribute.into();
        self.settings.host = Some(attribute.clone());
        self.attribute(attribute, |parts| host(parts).map(Cow::Owned))
    }

    /// Sets an attribute to what a closure finds in a request's head. Empty
    /// text is as good as none.
    #[must_use]
    pub fn attribute<F>(mut self, attribute: impl Into<Cow<'static, str>>, read: F) -> Self
    where
        F: for<'a> Fn(&'a Parts) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        self.insert(attribute.into(), Box::new(read));
        self
    }

    /// Charges this cost for every request. Default: 1.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        self.cost_by(move |_| cost)
    }

    /// Charges the cost in a header, and 1 if that is missing or invalid. Only for
    /// headers of your own proxy or services: otherwise callers would choose what they
    /// pay.
    #[must_use]
    pub fn cost_header(mut self, header: &str) -> Self {
        match header_name(header) {
            Ok(header) => {
                self.settings.headers.push(header.clone());
                self.cost_by(move |parts| {
                    let cost = parts.headers.get(&header).and_then(|value| value.to_str().ok()?.trim().parse().ok());
                    cost.filter(|cost| (1..=LIMIT_MAX).contains(cost)).unwrap_or(1)
                })
            }
            Err(error) => {
                self.error.get_or_insert(error);
                self
            }
        }
    }

    /// Charges the cost that a closure returns; 0 is free.
    #[must_use]
    pub fn cost_by(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Box::new(cost);
        self
    }

    /// Which headers responses get. Default: both families.
    #[must_use]
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// The maximum delay of a request (leaky bucket); a request with a longer delay is
    /// denied, and its charge refunded. Default: 10 s.
    #[must_use]
    pub const fn delay_max(mut self, delay_max: Duration) -> Self {
        self.settings.delay_max = delay_max;
        self
    }

    /// Calls a closure with every request and its outcome, after the decision and before
    /// it takes effect. It should not block.
    #[must_use]
    pub fn on_outcome(mut self, observe: impl Fn(&Request<'_>, &Outcome) + Send + Sync + 'static) -> Self {
        self.settings.on_outcome = Some(Box::new(observe));
        self
    }

    /// Answers denied requests by a closure instead of
    /// [`Denial::response`]. The headers of the limits are added to what it
    /// returns.
    #[must_use]
    pub fn on_denied(mut self, answer: impl Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.settings.on_denied = Box::new(answer);
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// Names the first attribute or header that is not usable.
    pub fn build(self) -> Result<RateLimitLayer<S>, LayerError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(RateLimitLayer { settings: Arc::new(self.settings) }),
        }
    }

    fn insert(&mut self, name: Cow<'static, str>, read: Extractor) {
        let extractors = &mut self.settings.extractors;
        let error = if !is_attribute_name(&name) {
            LayerError::BadAttribute { name: name.chars().take(NAME_MAX).collect() }
        } else if extractors.iter().any(|(known, _)| *known == name) {
            LayerError::Duplicate { name: name.into_owned() }
        } else if extractors.len() == ATTRIBUTES_MAX {
            LayerError::TooMany
        } else {
            extractors.push((name, read));
            return;
        };
        self.error.get_or_insert(error);
    }
}

fn header_name(name: &str) -> Result<HeaderName, LayerError> {
    name.parse().map_err(|_| LayerError::BadHeader { name: name.chars().take(NAME_MAX).collect() })
}
