//! Authentication of the admin API: bearer tokens with roles or, if none is configured, a
//! client certificate of a CA for operators or a local host name; in all cases also the
//! same-origin check.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::access::{Caller, Role, bearer};
use crate::http::problem::{Problem, truncated};
use crate::http::same_origin::{host, is_local, refuse_cross_origin, without_port};

/// What changes nothing, although it has a body and so is a POST.
const READING_POSTS: [&str; 3] = ["/admin/v1/inspect", "/admin/v1/rules/preview", "/admin/v1/rules/validate"];

/// Lets a request through with its [`Caller`], or says why not.
pub(super) async fn require_token(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    match authenticate(&admin, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn authenticate(admin: &Admin, request: &Request) -> Result<Caller, Problem> {
    let headers = request.headers();
    let caller = if admin.tokens.is_empty() && admin.has_operator_ca {
        Caller::with_certificate()
    } else if admin.tokens.is_empty() {
        refuse_foreign_host(headers, request.uri()).map_or(Ok(Caller::anonymous()), Err)?
    } else {
        let caller = bearer(headers).and_then(|given| admin.tokens.caller(given));
        caller.ok_or_else(|| Problem::unauthorized("the admin token", "\"Authorization: Bearer TOKEN\""))?
    };
    if let Some(problem) = refuse_cross_origin(headers, request.uri(), admin.is_tls) {
        return Err(problem);
    }
    if caller.role == Role::Read && !is_reading(request.method(), request.uri().path()) {
        let detail = format!("the token of {:?} has the role read, and this needs the role edit", caller.name);
        return Err(Problem::forbidden(detail));
    }
    Ok(caller)
}

/// Whether the role read suffices. Everything that is not listed needs the role edit.
fn is_reading(method: &Method, path: &str) -> bool {
    method == Method::GET || method == Method::HEAD || (method == Method::POST && READING_POSTS.contains(&path))
}

/// For `/metrics`: as the HTTP API, it needs a token if there is an API token; an admin
/// token will do too. Without any token the `Host` must be a name of this machine.
pub(super) async fn require_scrape_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let given = bearer(request.headers()).unwrap_or_default();
    let problem = match &admin.api_tokens {
        Some(tokens) if !tokens.contains(given) && admin.tokens.caller(given).is_none() => {
            Some(Problem::unauthorized("the API token", "\"Authorization: Bearer TOKEN\""))
        }
        Some(_) => None,
        None if admin.tokens.is_empty() && !admin.has_operator_ca => {
            refuse_foreign_host(request.headers(), request.uri())
        }
        None => None,
    };
    match problem {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
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
    use axum::http::header::{HOST, HeaderValue};

    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        let is_accepted = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
            refuse_foreign_host(&headers, &Uri::from_static("/")).is_none()
        };
        for host in ["localhost", "localhost:8082", "127.0.0.1:8082", "127.0.0.2", "[::1]:8082"] {
            assert!(is_accepted(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8082", "10.0.0.1", "[2001:db8::1]:8082", "127.0.0.1.nip.io"]
        {
            assert!(!is_accepted(host), "{host}");
        }
    }
    #[test]
    fn the_role_read_reads() {
        for (method, path) in [
            (Method::GET, "/admin/v1/rules"),
            (Method::HEAD, "/admin/v1/rules"),
            (Method::POST, "/admin/v1/rules/preview"),
        ] {
            assert!(is_reading(&method, path), "{method} {path}");
        }
        for (method, path) in [
            (Method::POST, "/admin/v1/rules"),
            (Method::POST, "/admin/v1/rules/import"),
            (Method::PUT, "/admin/v1/rules/preview"),
            (Method::DELETE, "/admin/v1/bans"),
            (Method::OPTIONS, "/admin/v1/rules"),
        ] {
            assert!(!is_reading(&method, path), "{method} {path}");
        }
    }
}
