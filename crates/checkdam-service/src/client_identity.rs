//! Client identity: derives attributes from an HTTP request that another proxy describes
//! (`/v1/auth`) or that `checkdam proxy` receives.
//!
//! A request becomes the attributes `method`, `endpoint`, `host`, `ip` and those that
//! the settings map headers to. A client must not be able to choose whose limit it
//! uses: forwarded addresses are accepted only from trusted networks, and headers
//! that are repeated where one is expected are rejected.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::header::{CONNECTION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Uri};
pub(crate) use checkdam::normalize::host;
use checkdam::normalize::{PathError, PathNormalization, forwarded_client};
use checkdam::{LIMIT_MAX, Request, RequestError};
use ipnet::IpNet;

/// The attributes that every such request has, besides mapped headers.
pub(crate) const ATTRIBUTES: [&str; 4] = ["method", "endpoint", "host", "ip"];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// No method is longer; WebDAV's longest has 16 letters.
const METHOD_MAX: usize = 32;

/// What upstreams take for a proxy's word on its client or its path, besides
/// X-Forwarded-*.
const OF_PROXIES: [&str; 14] = [
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "fastly-client-ip",
];

/// Whether upstreams take a header for a proxy's word: from strangers it counts
/// for nothing and is not forwarded.
pub fn is_proxy_header(header: &HeaderName) -> bool {
    let name = header.as_str();
    // Most headers begin otherwise.
    match name.as_bytes().first() {
        Some(b'x' | b'f' | b't' | b'c') => name.starts_with("x-forwarded-") || OF_PROXIES.contains(&name),
        _ => false,
    }
}

/// Joins the Cookie fields of an HTTP/2 request, which may send each pair in a field
/// of its own ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#section-8.2.3)).
pub fn join_cookies(headers: &mut HeaderMap) {
    let crumbs = headers.get_all(COOKIE);
    if crumbs.iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<_> = crumbs.iter().map(HeaderValue::as_bytes).collect();
    // It cannot fail: each of them is a value.
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// How attributes are derived from requests that are decided for somebody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Whose word on client addresses and costs is believed. Default nobody's.
    pub trusted: Vec<IpNet>,
    /// Which headers become which attributes. Default none.
    pub headers: Vec<(HeaderName, String)>,
    /// The header in which trusted peers name a cost. Default none.
    pub cost_header: Option<HeaderName>,
    /// How spellings of a path are treated that only some applications read alike.
    pub paths: PathNormalization,
}

/// A request that a proxy describes.
#[derive(Debug, Clone, Copy)]
pub struct DescribedRequest<'a> {
    /// Its method.
    pub method: &'a str,
    /// The request target, in any of its forms (RFC 9112, section 3.2).
    pub target: &'a str,
    /// The host it is for, with or without a port; the target's own wins.
    pub host: Option<&'a str>,
    /// Its headers, for the client's address, mapped attributes and the cost.
    pub headers: &'a HeaderMap,
    /// Whom the connection comes from.
    pub peer: IpAddr,
}

/// Why such a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("the header {header:?} is given {count} times: give it once")]
    Repeated { header: HeaderName, count: usize },
    #[error("the header {header:?} is not UTF-8")]
    NotText { header: HeaderName },
    #[error("the header {header:?} is {value:?}: it must be a whole number, 1 to {LIMIT_MAX}")]
    NotACost { header: HeaderName, value: String },
    #[error("the method {value:?} is invalid: use at most {METHOD_MAX} upper-case characters, such as GET")]
    NotAMethod { value: String },
    #[error("Connection names {header:?}, which decides limits and is not for one connection: leave it out there")]
    HopByHop { header: HeaderName },
    #[error("{0}: write it in one way, or let the operator set --path-slashes")]
    Path(#[from] PathError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl ClientIdentity {
    /// Whether this peer is trusted to name its client.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted.iter().any(|network| network.contains(&peer))
    }

    /// The client's address: the peer's, or if that is trusted the first from the
    /// right of X-Forwarded-For that is not. IPv6 by its /64, which one client
    /// has whole.
    pub fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let lines = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
        forwarded_client(peer, lines, |address| self.is_trusted(address))
    }

    /// The request to decide about, in no domain.
    pub fn request(&self, asked: DescribedRequest<'_>) -> Result<Request<'static>, IdentityError> {
        let method = asked.method;
        if !is_method(method) {
            return Err(IdentityError::NotAMethod { value: method.chars().take(METHOD_MAX).collect() });
        }
        self.refuse_connection_options(asked.headers)?;
        let target = RequestTarget::parse(asked.target);
        let mut request = Request::new().with("method", method.to_owned())?;
        request.insert_unbounded("endpoint", target.endpoint(&self.paths)?.into_owned())?;
        request.insert("ip", address_text(self.client_ip(asked.peer, asked.headers)))?;
        if let Some(host) = target.authority.or(asked.host).and_then(host) {
            request.insert_unbounded("host", host)?;
        }
        let is_trusted = self.is_trusted(asked.peer);
        for (header, attribute) in self.headers.iter().filter(|(header, _)| is_trusted || !is_proxy_header(header)) {
            // An empty header says as little as none.
            if let Some(value) = single_value(asked.headers, header)?.filter(|value| !value.is_empty()) {
                request.insert_unbounded(attribute.clone(), value.to_owned())?;
            }
        }
        Ok(request.costing(self.cost(&asked)?))
    }

    /// Connection names what proxies take out: what is read here must reach the
    /// upstream, or rules would count what the client made up for them alone.
    fn refuse_connection_options(&self, headers: &HeaderMap) -> Result<(), IdentityError> {
        if !headers.contains_key(CONNECTION) {
            return Ok(());
        }
        let is_read = |name: &HeaderName| {
            let is_mapped = self.headers.iter().any(|(header, _)| header == name);
            is_mapped || self.cost_header.as_ref() == Some(name) || is_proxy_header(name)
        };
        let lists = headers.get_all(CONNECTION).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        let mut names = lists.filter_map(|name| HeaderName::try_from(name.trim_ascii()).ok());
        match names.find(is_read) {
            Some(header) => Err(IdentityError::HopByHop { header }),
            None => Ok(()),
        }
    }

    /// What the request costs: 1, unless a trusted peer says otherwise.
    fn cost(&self, asked: &DescribedRequest<'_>) -> Result<u64, IdentityError> {
        let Some(header) = self.cost_header.as_ref().filter(|_| self.is_trusted(asked.peer)) else { return Ok(1) };
        let Some(value) = single_value(asked.headers, header)? else { return Ok(1) };
        match value.parse() {
            Ok(cost) if (1..=LIMIT_MAX).contains(&cost) => Ok(cost),
            _ => Err(IdentityError::NotACost { header: header.clone(), value: value.chars().take(80).collect() }),
        }
    }
}

/// The target of a request (RFC 9112, section 3.2), as its first line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTarget<'a> {
    /// Host and port, if the target names them.
    pub authority: Option<&'a str>,
    /// The path, without what follows it.
    path: &'a str,
}

impl<'a> RequestTarget<'a> {
    /// Reads `/path?query`, `http://host/path?query` or `*`.
    pub fn parse(text: &'a str) -> Self {
        let text = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        let scheme = ["http://", "https://"]
            .into_iter()
            .find(|scheme| text.get(..scheme.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(scheme)));
        let Some(scheme) = scheme else { return Self { authority: None, path: text } };
        let rest = &text[scheme.len()..];
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The text before an @ is the user, not part of the host.
        let host = authority.rsplit('@').next().unwrap_or(authority);
        Self { authority: Some(host), path }
    }

    /// Whether it has dot segments, which servers read in two ways.
    pub fn has_dot_segments(&self, forms: &PathNormalization) -> bool {
        forms.has_dot_segments(self.path)
    }

    /// The path in its normal form.
    pub fn endpoint(&self, forms: &PathNormalization) -> Result<Cow<'a, str>, PathError> {
        forms.endpoint(self.path)
    }
}

/// Whether a request target is in authority-form, a host alone, without being that of CONNECT
/// ([RFC 9112](https://www.rfc-editor.org/rfc/rfc9112#section-3.2.3)).
pub fn is_misplaced_authority(method: &Method, target: &Uri) -> bool {
    target.scheme().is_none() && target.authority().is_some() && method != Method::CONNECT
}

/// The value of a header that may occur only once: of several, the application might
/// use another one.
pub(crate) fn single_value<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a str>, IdentityError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match values.count() {
        0 => header_text(header, value).map(Some),
        more => Err(IdentityError::Repeated { header: header.clone(), count: more + 1 }),
    }
}

fn header_text<'a>(header: &HeaderName, value: &'a HeaderValue) -> Result<&'a str, IdentityError> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(text.trim()),
        Err(_) => Err(IdentityError::NotText { header: header.clone() }),
    }
}

/// An address as text, without the machinery that formats anything.
pub fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (place, part) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(part));
    }
    text
}

fn is_method(text: &str) -> bool {
    // Some frameworks treat get as GET, so only upper case is accepted.
    let is_token = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=METHOD_MAX).contains(&text.len()) && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests;
