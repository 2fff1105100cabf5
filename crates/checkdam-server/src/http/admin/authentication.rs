//! Authentication of the admin API: a bearer token, or without one a local host name;
//! in both cases the same-origin check.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::config::Token;
use crate::http::problem::{Problem, truncated};
use crate::http::same_origin::{host, is_local, refuse_cross_origin, without_port};

/// Lets a request through, or says why not.
pub(super) async fn require_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let problem = match &admin.token {
        Some(token) if !has_token(request.headers(), token) => {
            let mut response = Problem::unauthorized().into_response();
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        Some(_) => None,
        None => refuse_foreign_host(request.headers(), request.uri()),
    };
    match problem.or_else(|| refuse_cross_origin(request.headers(), request.uri())) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// The same for what needs no token: without one the `Host` must still be a name of
/// this machine.
pub(super) async fn require_local_host(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let foreign = if admin.token.is_none() { refuse_foreign_host(request.headers(), request.uri()) } else { None };
    match foreign {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn has_token(headers: &HeaderMap, token: &Token) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let given = match given.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"Bearer ") => &given[7..],
        _ => &[],
    };
    constant_time_eq::constant_time_eq(given, token.secret().as_bytes())
}

/// Without a token the `Host` must be a name of this machine: otherwise any web page
/// could use its visitor's browser by DNS rebinding.
fn refuse_foreign_host(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    let host = host(headers, uri)?;
    (!is_local(without_port(host))).then(|| {
        Problem::forbidden(format!(
            "the admin listener was called as {:?}: without a token it accepts only localhost, 127.0.0.1 and [::1]",
            truncated(host)
        ))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::header::HOST;

    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let judged = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
            refuse_foreign_host(&headers, &Uri::from_static("/")).is_none()
        };
        for host in ["localhost", "localhost:8082", "127.0.0.1:8082", "127.0.0.2", "[::1]:8082"] {
            assert!(judged(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8082", "10.0.0.1", "[2001:db8::1]:8082", "127.0.0.1.nip.io"]
        {
            assert!(!judged(host), "{host}");
        }
    }
}
