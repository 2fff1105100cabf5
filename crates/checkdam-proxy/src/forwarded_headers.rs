//! Headers of forwarded requests and responses: removes hop-by-hop headers (RFC 9110,
//! section 7.6.1), adds `Via` and `X-Forwarded-*`.

use std::net::IpAddr;

use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE,
    EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, MAX_FORWARDS, PRAGMA, PROXY_AUTHORIZATION, RANGE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, VIA,
};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{Method, Request, Version};
use checkdam::normalize::PathNormalization;
use checkdam_service::client_identity::{is_misplaced_authority, is_proxy_header};

use super::error_responses::ProxyError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Besides those that Connection names.
static OF_ONE_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// Fields that are no trailers, besides those of one connection and of proxies: they
/// frame, route, modify or authenticate a request, or tell how to read its content
/// ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#section-6.5.1)).
static NOT_IN_TRAILERS: [HeaderName; 21] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    MAX_FORWARDS,
    PRAGMA,
    PROXY_AUTHORIZATION,
    RANGE,
    SET_COOKIE,
    TRAILER,
    VIA,
];

/// What is forwarded of a request besides its body. The client's headers are
/// kept as they came and sorted out as they are written.
#[derive(Debug)]
pub(super) struct ForwardedHead {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    pub(super) host: Option<HeaderValue>,
    /// What the connection is to become, if it is to carry something else.
    pub(super) upgrade: Option<HeaderValue>,
    headers: HeaderMap,
    /// What Connection lists besides.
    listed: Vec<HeaderName>,
    takes_trailers: bool,
    /// The client it is forwarded for; none for our own requests.
    sender: Option<ForwardedFor>,
    /// What `Via` says of this hop.
    via: &'static str,
}

/// The client that a request is forwarded for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForwardedFor {
    pub(super) peer: IpAddr,
    /// Whether what it says of its own client counts.
    pub(super) is_trusted: bool,
    /// Whether its connection has TLS.
    pub(super) is_tls: bool,
}

/// The host that a request is for: one, and the same wherever it is named.
pub(super) fn host<B>(request: &Request<B>) -> Result<Option<HeaderValue>, ProxyError> {
    let mut named = request.headers().get_all(HOST).iter();
    let header = named.next();
    if named.next().is_some() {
        return Err(ProxyError::BadHost("the header Host is given more than once: give it once"));
    }
    if header.is_none() && request.version() == Version::HTTP_11 {
        return Err(ProxyError::BadHost("the header Host is missing"));
    }
    let is_host = |value: &&HeaderValue| {
        let authority = Authority::try_from(value.as_bytes());
        authority.is_ok_and(|authority| !authority.as_str().contains('@'))
    };
    if header.is_some_and(|value| !value.is_empty() && !is_host(&value)) {
        return Err(ProxyError::BadHost("the header Host is no host"));
    }
    if is_misplaced_authority(request.method(), request.uri()) {
        return Err(ProxyError::BadHost("the request target is no path: begin it with a slash"));
    }
    let Some(authority) = request.uri().authority() else { return Ok(header.cloned()) };
    if authority.as_str().contains('@') {
        return Err(ProxyError::BadHost("the target has a login"));
    }
    let is_same = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    if request.version() == Version::HTTP_2 && !header.is_none_or(is_same) {
        return Err(ProxyError::BadHost("the header Host and :authority differ"));
    }
    // Of an HTTP/1 request's two hosts the target's counts.
    HeaderValue::from_str(authority.as_str()).map(Some).map_err(|_| ProxyError::BadHost("the target's host is none"))
}

/// What a connection is asked to become: a WebSocket, by HTTP/1.1. Anything else
/// could carry requests past the limits.
pub(super) fn websocket_upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let is_asked = request.version() == Version::HTTP_11 && has_token(request.headers(), &CONNECTION, "upgrade");
    let wanted = request.headers().get(UPGRADE).filter(|_| is_asked)?;
    wanted.as_bytes().eq_ignore_ascii_case(b"websocket").then(|| wanted.clone())
}

/// Takes out what is meant for one connection.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Of an answer that has both, the chunks were believed.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let listed = connection_options(headers);
    remove(headers, |name| OF_ONE_CONNECTION.contains(name) || listed.contains(name));
}

/// The hop-by-hop headers that Connection names. Headers of framing and routing
/// cannot be named.
fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = tokens(headers, &CONNECTION).filter_map(|name| HeaderName::try_from(name).ok());
    names.filter(|name| *name != CONTENT_LENGTH && *name != HOST).collect()
}

/// Takes out what is such. Names are compared instead of looked up: there are
/// mostly fewer in a head than could be such.
pub(super) fn remove(headers: &mut HeaderMap, is_such: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<_> = headers.keys().filter(|name| is_such(name)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

/// Many programs do not distinguish X_API_Key from X-API-Key, so the former must not
/// pass where the latter is read.
fn is_underscored(name: &HeaderName) -> bool {
    name.as_str().contains('_')
}

/// Takes out of a body's trailers what may stand in its head only: an upstream may
/// merge the two, and rules have read only the head. `decisive` are the headers that
/// rules read.
pub(super) fn strip_trailers(trailers: &mut HeaderMap, decisive: &[HeaderName]) {
    let is_of_head = |name: &HeaderName| {
        is_proxy_header(name)
            || OF_ONE_CONNECTION.contains(name)
            || NOT_IN_TRAILERS.contains(name)
            || decisive.contains(name)
    };
    remove(trailers, |name| is_underscored(name) || is_of_head(name));
}

impl ForwardedHead {
    /// The request as its upstream shall see it.
    pub(super) fn new<B>(
        request: &mut Request<B>,
        host: Option<HeaderValue>,
        sender: ForwardedFor,
        paths: &PathNormalization,
    ) -> Self {
        let upgrade = websocket_upgrade(request);
        let headers = std::mem::take(request.headers_mut());
        let via = if request.version() == Version::HTTP_2 { "2 checkdam" } else { "1.1 checkdam" };
        Self {
            method: request.method().clone(),
            path: forwarded_path(request.uri().path_and_query(), paths),
            host,
            takes_trailers: upgrade.is_none() && has_token(&headers, &TE, "trailers"),
            upgrade,
            listed: connection_options(&headers),
            headers,
            via,
            sender: Some(sender),
        }
    }

    /// A request of our own.
    pub(super) fn get(path: PathAndQuery) -> Self {
        Self {
            method: Method::GET,
            path,
            host: None,
            upgrade: None,
            headers: HeaderMap::new(),
            listed: Vec::new(),
            takes_trailers: false,
            via: "",
            sender: None,
        }
    }

    /// Whether the client said how long its body is.
    pub(super) fn has_length(&self) -> bool {
        self.headers.contains_key(CONTENT_LENGTH)
    }

    /// The trailers that may follow the body.
    pub(super) fn announced_trailers(&self) -> Vec<HeaderName> {
        tokens(&self.headers, &TRAILER).filter_map(|name| HeaderName::try_from(name).ok()).collect()
    }

    /// Calls `write` with each forwarded header, except the host and framing headers: the
    /// writer of the body adds those.
    pub(super) fn write_each(&self, mut write: impl FnMut(&str, &[u8])) {
        for (name, value) in &self.headers {
            if self.is_forwarded(name) {
                write(name.as_str(), value.as_bytes());
            }
        }
        if let Some(wanted) = &self.upgrade {
            write("connection", b"upgrade");
            write("upgrade", wanted.as_bytes());
        } else if self.takes_trailers {
            write("te", b"trailers");
        }
        let Some(ForwardedFor { peer, is_trusted, is_tls }) = self.sender else { return };
        let via = self.via;
        let is_said = |name: &HeaderName| is_trusted && self.headers.contains_key(name);
        let client = checkdam_service::client_identity::address_text(peer.to_canonical());
        match is_said(&X_FORWARDED_FOR) {
            true => write(X_FORWARDED_FOR.as_str(), &self.appended_list(&X_FORWARDED_FOR, &client)),
            false => write(X_FORWARDED_FOR.as_str(), client.as_bytes()),
        }
        if !is_said(&X_FORWARDED_PROTO) {
            write(X_FORWARDED_PROTO.as_str(), if is_tls { &b"https"[..] } else { b"http" });
        }
        if let Some(host) = self.host.as_ref().filter(|_| !is_said(&X_FORWARDED_HOST)) {
            write(X_FORWARDED_HOST.as_str(), host.as_bytes());
        }
        match self.headers.contains_key(VIA) && !self.listed.contains(&VIA) {
            true => write(VIA.as_str(), &self.appended_list(&VIA, via)),
            false => write(VIA.as_str(), via.as_bytes()),
        }
    }

    fn is_forwarded(&self, name: &HeaderName) -> bool {
        let is_trusted = self.sender.is_some_and(|sender| sender.is_trusted);
        let is_ours = match name.as_str() {
            "host" | "content-length" | "via" | "x-forwarded-for" => true,
            // The client has received 100 Continue by the time anything is forwarded.
            "expect" => true,
            _ => false,
        };
        !is_ours
            && !OF_ONE_CONNECTION.contains(name)
            && (is_trusted || !is_proxy_header(name))
            && !is_underscored(name)
            && !self.listed.contains(name)
    }

    /// A list, which may stand in several headers, and one entry more.
    fn appended_list(&self, name: &HeaderName, entry: &str) -> Vec<u8> {
        let mut list = Vec::new();
        for known in self.headers.get_all(name) {
            list.extend_from_slice(known.as_bytes());
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(entry.as_bytes());
        list
    }
}

/// The path as it came. One with dot segments is forwarded as rules see it:
/// the upstream might not follow them, and serve what they did not limit.
fn forwarded_path(asked: Option<&PathAndQuery>, paths: &PathNormalization) -> PathAndQuery {
    let Some(asked) = asked else { return PathAndQuery::from_static("/") };
    if !paths.has_dot_segments(asked.path()) {
        return asked.clone();
    }
    let query = asked.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Rules have seen it: it is not refused.
    let meant = paths.endpoint(asked.path()).unwrap_or("/".into());
    PathAndQuery::try_from(format!("{meant}{query}")).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lists = headers.get_all(name).iter();
    lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|known| known.eq_ignore_ascii_case(token.as_bytes()))
}
