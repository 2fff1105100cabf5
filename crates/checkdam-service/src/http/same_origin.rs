//! The same-origin check: rejects requests that a web page of another origin makes a
//! browser send. The browser withholds the response from the page, but only after the
//! request was decided and charged.
//!
//! Three signs reveal such a request:
//! [`Sec-Fetch-Site`](https://www.w3.org/TR/fetch-metadata/), which no page can
//! change; `Origin`; and on a loopback listener a host name that is not local, as
//! after DNS rebinding. Programs other than browsers send none of them.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, USER_AGENT};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Problem, truncated};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers by which a proxy describes its client's request. A page can send none
/// of them to another origin: they need a preflight request, which is not granted.
const OF_PROXIES: [&str; 10] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-real-ip",
    "forwarded",
];

/// Media types that a page may post to another origin without a preflight request.
const OF_FORMS: [&str; 3] = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// The hosts that a listener accepts for requests that decide, edit or reveal.
#[derive(Debug, Clone)]
pub(super) struct AllowedHosts {
    /// The port of a loopback listener; none if the listener can be reached from
    /// elsewhere, where any name may lead to it.
    loopback_port: Option<u16>,
    /// Names in lower case besides the local ones; `*` is every name.
    allowed: Vec<String>,
    is_tls: bool,
    /// What to do about another host, for the response.
    advice: &'static str,
}

impl AllowedHosts {
    /// Of a listener on this address, with or without TLS.
    pub(super) fn new(address: Option<SocketAddr>, is_tls: bool, allowed: &[String]) -> Self {
        let loopback_port =
            address.filter(|address| address.ip().to_canonical().is_loopback()).map(|address| address.port());
        let allowed = allowed.iter().map(|name| name.to_lowercase()).collect();
        let advice = "this listener is on loopback: call it localhost, or allow that name with --allowed-hosts";
        Self { loopback_port, allowed, is_tls, advice }
    }

    /// Of the admin listener on this address. If its callers are authenticated, a page gains
    /// nothing by DNS rebinding, and any host is accepted.
    pub(super) fn of_admin(address: Option<SocketAddr>, is_tls: bool, authenticates: bool) -> Self {
        let loopback_port = (!authenticates).then(|| address.map_or(0, |address| address.port()));
        let advice = "the admin listener accepts only localhost, 127.0.0.1 and [::1] without a token";
        Self { loopback_port, allowed: Vec::new(), is_tls, advice }
    }

    /// Why a request that decides or edits is rejected, if it is.
    pub(super) fn refuse(&self, headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
        let (site, origin) = (headers.get(SEC_FETCH_SITE), headers.get(ORIGIN));
        // Programs send neither.
        if site.is_some() || origin.is_some() {
            let problem = site.and_then(refuse_cross_site).or_else(|| refuse_cross_origin(headers, uri, self.is_tls));
            let problem = problem.or_else(|| headers.get(CONTENT_TYPE).and_then(refuse_simple_content_type));
            if problem.is_some() {
                return problem;
            }
        }
        self.refuse_host(headers, uri)
    }

    /// Why a request that only reveals something is rejected, if it is. A browser withholds
    /// the response from a page of another origin, but not after DNS rebinding.
    pub(super) fn refuse_host(&self, headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
        let host = self.loopback_port.and_then(|_| host(headers, uri)).filter(|host| !self.is_allowed_host(host))?;
        Some(self.host_problem(host))
    }

    /// The same for `/v1/auth`. A proxy passes on what its client's browser sent,
    /// so only a request that no proxy describes is taken for a browser's own.
    pub(super) fn refuse_auth(&self, headers: &HeaderMap, uri: &Uri, is_of_proxy: bool) -> Option<Problem> {
        if is_of_proxy || OF_PROXIES.iter().any(|name| headers.contains_key(*name)) {
            // After DNS rebinding the page's origin has our own port, and its requests may have any header.
            let is_rebound = |host: &&str| self.loopback_port.is_some_and(|own| port(host, self.is_tls) == Some(own));
            return host(headers, uri)
                .filter(is_rebound)
                .filter(|host| !self.is_allowed_host(host))
                .map(|host| self.host_problem(host));
        }
        let is_browser = |agent: &HeaderValue| agent.as_bytes().starts_with(b"Mozilla/");
        if !headers.contains_key(SEC_FETCH_SITE) && headers.get(USER_AGENT).is_some_and(is_browser) {
            let detail = "a browser asked /v1/auth, which is for proxies: let the proxy send X-Forwarded-Uri";
            return Some(Problem::forbidden(detail));
        }
        self.refuse(headers, uri)
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        let bare = without_port(host);
        is_local(bare) || self.allowed.iter().any(|allowed| allowed == "*" || bare.eq_ignore_ascii_case(allowed))
    }

    fn host_problem(&self, host: &str) -> Problem {
        Problem::forbidden(format!("the request was sent to {:?}, and {}", truncated(host), self.advice))
    }
}

/// Rejects requests that must not be decided, and edits that must not be made.
pub(super) async fn same_origin_middleware(
    State(hosts): State<std::sync::Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.refuse(request.headers(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Rejects requests for what a page must not read after DNS rebinding.
pub(super) async fn host_middleware(
    State(hosts): State<std::sync::Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.refuse_host(request.headers(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// `Sec-Fetch-Site`: only a page of the same origin, or the user, may send requests.
fn refuse_cross_site(site: &HeaderValue) -> Option<Problem> {
    let is_own = site == "same-origin" || site == "none";
    (!is_own).then(|| {
        let site = String::from_utf8_lossy(site.as_bytes());
        Problem::forbidden(format!(
            "a web page of another origin may not ask this (Sec-Fetch-Site: {})",
            truncated(&site)
        ))
    })
}

/// A browser sends these of a form without asking us first.
fn refuse_simple_content_type(content_type: &HeaderValue) -> Option<Problem> {
    let text = String::from_utf8_lossy(content_type.as_bytes());
    let media_type = text.split(';').next().unwrap_or_default().trim();
    let is_form = OF_FORMS.iter().any(|form| media_type.eq_ignore_ascii_case(form));
    is_form.then(|| {
        let detail =
            format!("a browser posted {:?}, as forms do: send Content-Type: application/json", truncated(&text));
        let problem = Problem::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        problem.with_field(CONTENT_TYPE.as_str())
    })
}

/// Rejects a page of another origin. A listener with TLS has an `https` origin; one
/// without may be behind a proxy that terminates TLS, and has either.
fn refuse_cross_origin(headers: &HeaderMap, uri: &Uri, is_tls: bool) -> Option<Problem> {
    let origin = headers.get(ORIGIN)?;
    let own = host(headers, uri).unwrap_or_default();
    let theirs = origin.to_str().ok().and_then(|text| text.split_once("://"));
    if theirs.is_some_and(|(scheme, host)| host == own && (!is_tls || scheme == "https")) {
        return None;
    }
    let text = String::from_utf8_lossy(origin.as_bytes());
    Some(Problem::forbidden(format!(
        "a page of {:?} may not ask this of {:?}; behind a proxy, let it pass the Host header on",
        truncated(&text),
        truncated(own)
    )))
}

/// The host of the request, with or without a port.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str))
}

/// Whether a host, without a port, is this machine in any browser.
fn is_local(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// The port of a host; that of the scheme if it names none.
fn port(host: &str, is_tls: bool) -> Option<u16> {
    match host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((_, port)) => port.parse().ok(),
        None => Some(if is_tls { 443 } else { 80 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(HeaderName, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let judged = |origin, is_tls| {
            refuse_cross_origin(&headers(&[(HOST, "localhost:8082"), (ORIGIN, origin)]), &Uri::default(), is_tls)
        };
        let passes = |origin| judged(origin, false);
        assert!(passes("http://localhost:8082").is_none());
        assert!(passes("https://localhost:8082").is_none(), "a proxy terminates TLS");
        assert!(judged("https://localhost:8082", true).is_none());
        assert!(judged("http://localhost:8082", true).is_some(), "another scheme is another origin");
        for origin in ["http://localhost:3000", "https://example.com", "null", ""] {
            assert!(passes(origin).is_some(), "{origin}");
        }
    }

    #[test]
    fn a_listener_that_others_can_reach_answers_to_any_host() {
        let named = headers(&[(HOST, "limits.example:8080")]);
        for (address, refuses) in [("127.0.0.1:8080", true), ("[::1]:8080", true), ("0.0.0.0:8080", false)] {
            let hosts = AllowedHosts::new(address.parse().ok(), false, &[]);
            assert_eq!(hosts.refuse(&named, &Uri::default()).is_some(), refuses, "{address}");
        }
    }

    #[test]
    fn an_ipv4_mapped_loopback_address_is_loopback() {
        let hosts = AllowedHosts::new("[::ffff:127.0.0.1]:8080".parse().ok(), false, &[]);
        for (host, refuses) in [("limits.example:8080", true), ("[::ffff:127.0.0.1]:8080", false), ("[::1]", false)] {
            assert_eq!(hosts.refuse(&headers(&[(HOST, host)]), &Uri::default()).is_some(), refuses, "{host}");
        }
    }

    #[test]
    fn the_admin_listener_without_a_token_answers_to_local_names_only() {
        let refuses = |host: &'static str, authenticates: bool| {
            let hosts = AllowedHosts::of_admin("127.0.0.1:8082".parse().ok(), false, authenticates);
            hosts.refuse_host(&headers(&[(HOST, host)]), &Uri::from_static("/")).is_some()
        };
        for host in ["localhost", "localhost:8082", "127.0.0.1:8082", "127.0.0.2", "[::1]:8082"] {
            assert!(!refuses(host, false) && !refuses(host, true), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8082", "10.0.0.1", "[2001:db8::1]:8082", "127.0.0.1.nip.io"]
        {
            assert!(refuses(host, false) && !refuses(host, true), "{host}");
        }
    }

    #[test]
    fn behind_a_proxy_only_our_own_port_looks_like_rebinding() {
        let hosts = AllowedHosts::new("127.0.0.1:80".parse().ok(), false, &[]);
        for (host, refuses) in
            [("shop.example", true), ("shop.example:443", false), ("[2001:db8::1]:80", true), ("localhost", false)]
        {
            let named = headers(&[(HOST, host), (HeaderName::from_static("x-forwarded-uri"), "/")]);
            assert_eq!(hosts.refuse_auth(&named, &Uri::default(), false).is_some(), refuses, "{host}");
        }
        let hosts = AllowedHosts::new("127.0.0.1:443".parse().ok(), true, &[]);
        for (host, refuses) in [("shop.example", true), ("shop.example:80", false)] {
            let named = headers(&[(HOST, host), (HeaderName::from_static("x-forwarded-uri"), "/")]);
            assert_eq!(hosts.refuse_auth(&named, &Uri::default(), false).is_some(), refuses, "{host}");
        }
    }
}
