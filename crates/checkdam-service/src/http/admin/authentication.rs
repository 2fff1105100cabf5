//! Authentication of the admin API: bearer tokens with roles or, if none is configured, a
//! client certificate of a CA for operators. Without either the same-origin check, which
//! precedes this one, accepts local host names only.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::access::{Caller, Role, bearer};
use crate::http::problem::Problem;
use crate::http::same_origin::AllowedHosts;

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
    let caller = if admin.tokens.is_empty() && admin.has_operator_ca {
        Caller::with_certificate()
    } else if admin.tokens.is_empty() {
        Caller::anonymous()
    } else {
        let caller = bearer(request.headers()).and_then(|given| admin.tokens.caller(given));
        caller.ok_or_else(|| Problem::unauthorized("the admin token", "\"Authorization: Bearer TOKEN\""))?
    };
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
pub(super) async fn require_scrape_token(
    State((admin, hosts)): State<(Arc<Admin>, Arc<AllowedHosts>)>,
    request: Request,
    next: Next,
) -> Response {
    let given = bearer(request.headers()).unwrap_or_default();
    let problem = match &admin.api_tokens {
        Some(tokens) if !tokens.contains(given) && admin.tokens.caller(given).is_none() => {
            Some(Problem::unauthorized("the API token", "\"Authorization: Bearer TOKEN\""))
        }
        Some(_) => None,
        None => hosts.refuse_host(request.headers(), request.uri()),
    };
    match problem {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
