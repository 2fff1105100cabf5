//! Client identity: the attributes of an HTTP request that a proxy asks about or that
//! the proxy forwards.
//!
//! A request becomes the attributes `method`, `endpoint`, `host`, `ip` and those that
//! the settings map headers to. A client must not be able to choose whose limit it
//! uses: forwarded addresses are accepted only from trusted networks, and headers
//! that are repeated where one is expected are rejected.

mod forwarded_for;
mod request_target;

use std::net::IpAddr;

use axum::http::header::{CONNECTION, COOKIE, HeaderMap, HeaderName, HeaderValue};
pub(crate) use checkdam::normalize::host;
use checkdam::normalize::{PathError, PathNormalization};
use checkdam::{LIMIT_MAX, Request, RequestError};
use ipnet::IpNet;

pub(crate) use self::forwarded_for::address_text;
pub(crate) use self::request_target::{RequestTarget, is_misplaced_authority};

/// The attributes that every such request has, besides mapped headers.
pub(crate) const ATTRIBUTES: [&str; 4] = ["method", "endpoint", "host", "ip"];

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
pub(crate) fn is_proxy_header(header: &HeaderName) -> bool {
    let name = header.as_str();
    // Most headers begin otherwise.
    match name.as_bytes().first() {
        Some(b'x' | b'f' | b't' | b'c') => name.starts_with("x-forwarded-") || OF_PROXIES.contains(&name),
        _ => false,
    }
}

/// Joins the Cookie fields of an HTTP/2 request, which may send each pair in a field
/// of its own ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#section-8.2.3)).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
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
pub(crate) struct ClientIdentityOptions {
    /// Whose word on client addresses and costs is believed. Default nobody's.
    pub(crate) trusted: Vec<IpNet>,
    /// Which headers become which attributes. Default none.
    pub(crate) headers: Vec<(HeaderName, String)>,
    /// The header in which trusted peers name a cost. Default none.
    pub(crate) cost_header: Option<HeaderName>,
    /// How spellings of a path are treated that only some applications read alike.
    pub(crate) paths: PathNormalization,
}

/// How attributes are derived from requests.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    trusted: Vec<IpNet>,
    headers: Vec<(HeaderName, String)>,
    cost_header: Option<HeaderName>,
    paths: PathNormalization,
}

/// A request that is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescribedRequest<'a> {
    /// Its method.
    pub(crate) method: &'a str,
    /// What it asks for, in any form that the first line of a request may have.
    pub(crate) target: &'a str,
    /// The host it is for, with or without a port; the target's own wins.
    pub(crate) host: Option<&'a str>,
    /// Its headers, for the client's address, mapped attributes and the cost.
    pub(crate) headers: &'a HeaderMap,
    /// Whom the connection comes from.
    pub(crate) peer: IpAddr,
}

/// Why nothing can be asked about such a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum IdentityError {
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
    /// As the settings say.
    pub(crate) fn new(options: &ClientIdentityOptions) -> Self {
        let ClientIdentityOptions { trusted, headers, cost_header, paths } = options.clone();
        Self { trusted, headers, cost_header, paths }
    }

    /// How spellings of a path are treated.
    pub(crate) const fn paths(&self) -> &PathNormalization {
        &self.paths
    }

    /// Whether what this peer says of its client is believed.
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted.iter().any(|network| network.contains(&peer))
    }

    /// The client's address: the peer's, or if that is trusted the first from the
    /// right of X-Forwarded-For that is not. IPv6 by its /64, which one client
    /// has whole.
    pub(crate) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        for entry in forwarded_for::addresses_from_right(headers) {
            if !self.is_trusted(client) {
                break;
            }
            // A trusted proxy that names no address has kept it to itself: the
            // entries further left are anybody's.
            let Some(named) = entry else { break };
            client = named;
        }
        checkdam::normalize::client_address(client)
    }

    /// The request to decide about, in no domain.
    pub(crate) fn request(&self, asked: DescribedRequest<'_>) -> Result<Request<'static>, IdentityError> {
        let method = asked.method;
        if !is_method(method) {
            return Err(IdentityError::NotAMethod { value: method.chars().take(METHOD_MAX).collect() });
        }
        self.refuse_connection_options(asked.headers)?;
        let target = RequestTarget::parse(asked.target);
        let mut request = Request::new().with("method", method.to_owned())?;
        request.insert_unbounded("endpoint", target.endpoint(&self.paths)?.into_owned())?;
        request.insert("ip", forwarded_for::address_text(self.client_ip(asked.peer, asked.headers)))?;
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

/// The text of a header that may stand once: a program behind us may read
/// another of several than we would.
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

fn is_method(text: &str) -> bool {
    // Some frameworks take get for GET, so only one way of writing it passes.
    let is_token = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=METHOD_MAX).contains(&text.len()) && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests;
