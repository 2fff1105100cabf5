//! Web pages of other origins, which a visitor's browser lets ask but not read.

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Problem, shown};

/// Refuses pages of other origins: a visitor's browser can reach what the page's
/// server cannot, and asks before it is known whether it may.
pub(super) async fn refuse_foreign_pages(request: Request, next: Next) -> Response {
    match foreign_page(request.headers(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// A page of another origin has no business here.
pub(super) fn foreign_page(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    let origin = headers.get(ORIGIN)?;
    let own = host(headers, uri).unwrap_or_default();
    let theirs = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    if theirs == Some(own) {
        return None;
    }
    let text = String::from_utf8_lossy(origin.as_bytes());
    Some(Problem::forbidden(format!(
        "a page of {:?} may not ask this of {:?}; behind a proxy, let it pass the Host header on",
        shown(&text),
        shown(own)
    )))
}

/// What the client calls us.
pub(super) fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

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
