//! Who may come in: those who know the token, or without one those on this
//! machine that are no web page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::config::Token;
use crate::http::problem::{Problem, shown};

/// Lets a request through, or says why not.
pub(super) async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let problem = match &admin.token {
        Some(token) if !knows(request.headers(), token) => {
            let mut response = Problem::unauthorized().into_response();
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        Some(_) => None,
        None => foreign_host(request.headers(), request.uri()),
    };
    match problem.or_else(|| foreign_page(request.headers(), request.uri())) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn knows(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let given = match given.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"Bearer ") => &given[7..],
        _ => &[],
    };
    constant_time_eq::constant_time_eq(given, token.secret().as_bytes())
}

/// Without a token the door must be called by a name of this machine: else any
/// web page could lead its visitor's browser here by a name of its own.
fn foreign_host(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    let host = host(headers, uri)?;
    let bare = without_port(host);
    let is_ours = bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    (!is_ours).then(|| {
        Problem::forbidden(format!(
            "the admin API was called as {:?}: without a token it answers to localhost, 127.0.0.1 and [::1] only",
            shown(host)
        ))
    })
}

/// A page of another origin has no business here.
fn foreign_page(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    let origin = headers.get(ORIGIN)?;
    let own = host(headers, uri).unwrap_or_default();
    let theirs = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    if theirs == Some(own) {
        return None;
    }
    let text = String::from_utf8_lossy(origin.as_bytes());
    Some(Problem::forbidden(format!("a page of {:?} may not call the admin API", shown(&text))))
}

fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str))
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let judged = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
            foreign_host(&headers, &Uri::from_static("/")).is_none()
        };
        for host in ["localhost", "localhost:8082", "127.0.0.1:8082", "127.0.0.2", "[::1]:8082"] {
            assert!(judged(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8082", "10.0.0.1", "[2001:db8::1]:8082", "127.0.0.1.nip.io"]
        {
            assert!(!judged(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let judged = |origin: &'static str| {
            let headers = [(HOST, "localhost:8082"), (ORIGIN, origin)].map(|(n, v)| (n, HeaderValue::from_static(v)));
            foreign_page(&HeaderMap::from_iter(headers), &Uri::from_static("/")).is_none()
        };
        assert!(judged("http://localhost:8082"));
        for origin in ["http://localhost:3000", "https://example.com", "null", ""] {
            assert!(!judged(origin), "{origin}");
        }
    }
}
