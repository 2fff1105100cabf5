//! The dashboard: a page for operators, served from the binary. It loads nothing from
//! other hosts and gets all data from the admin API, so its static files need no
//! token.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// No inline script or style, nothing from elsewhere, no strings turned into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const DRAWING: &str = "image/svg+xml";

/// Where each file is, what it is and what it says.
const FILES: [(&str, &str, &str); 29] = [
    ("/", HTML, include_str!("../../dashboard/index.html")),
    ("/dashboard", HTML, include_str!("../../dashboard/index.html")),
    ("/dashboard/admin_token.js", SCRIPT, include_str!("../../dashboard/admin_token.js")),
    ("/dashboard/api.js", SCRIPT, include_str!("../../dashboard/api.js")),
    ("/dashboard/app.js", SCRIPT, include_str!("../../dashboard/app.js")),
    ("/dashboard/bans.js", SCRIPT, include_str!("../../dashboard/bans.js")),
    ("/dashboard/base.css", STYLE, include_str!("../../dashboard/base.css")),
    ("/dashboard/changes.js", SCRIPT, include_str!("../../dashboard/changes.js")),
    ("/dashboard/charts.js", SCRIPT, include_str!("../../dashboard/charts.js")),
    ("/dashboard/components.css", STYLE, include_str!("../../dashboard/components.css")),
    ("/dashboard/dom.js", SCRIPT, include_str!("../../dashboard/dom.js")),
    ("/dashboard/entry_dialog.js", SCRIPT, include_str!("../../dashboard/entry_dialog.js")),
    ("/dashboard/format.js", SCRIPT, include_str!("../../dashboard/format.js")),
    ("/dashboard/health.js", SCRIPT, include_str!("../../dashboard/health.js")),
    ("/dashboard/icon.svg", DRAWING, include_str!("../../dashboard/icon.svg")),
    ("/dashboard/inspector.js", SCRIPT, include_str!("../../dashboard/inspector.js")),
    ("/dashboard/live_traffic.js", SCRIPT, include_str!("../../dashboard/live_traffic.js")),
    ("/dashboard/newest_first.js", SCRIPT, include_str!("../../dashboard/newest_first.js")),
    ("/dashboard/overrides.js", SCRIPT, include_str!("../../dashboard/overrides.js")),
    ("/dashboard/overview.js", SCRIPT, include_str!("../../dashboard/overview.js")),
    ("/dashboard/paged_list.js", SCRIPT, include_str!("../../dashboard/paged_list.js")),
    ("/dashboard/rule_editor.js", SCRIPT, include_str!("../../dashboard/rule_editor.js")),
    ("/dashboard/rule_form.js", SCRIPT, include_str!("../../dashboard/rule_form.js")),
    ("/dashboard/rule_json.js", SCRIPT, include_str!("../../dashboard/rule_json.js")),
    ("/dashboard/rule_preview.js", SCRIPT, include_str!("../../dashboard/rule_preview.js")),
    ("/dashboard/rules.js", SCRIPT, include_str!("../../dashboard/rules.js")),
    ("/dashboard/top_subjects.js", SCRIPT, include_str!("../../dashboard/top_subjects.js")),
    ("/dashboard/unsaved_changes.js", SCRIPT, include_str!("../../dashboard/unsaved_changes.js")),
    ("/dashboard/violations.js", SCRIPT, include_str!("../../dashboard/violations.js")),
];

pub(super) fn router() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        let tag = etag(text);
        router.route(path, get(move |headers: HeaderMap| async move { serve_file(&headers, kind, text, tag) }))
    })
}

/// A file, or 304 if the browser has it: it revalidates every time, so that a new
/// binary is never used with the page of an old one.
fn serve_file(asked: &HeaderMap, kind: &'static str, text: &'static str, tag: Option<HeaderValue>) -> Response {
    let is_known = tag.is_some() && asked.get(IF_NONE_MATCH) == tag.as_ref();
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { text.into_response() };
    let headers = response.headers_mut();
    for (name, value) in page_headers(HeaderValue::from_static(kind), POLICY) {
        headers.insert(name, value);
    }
    headers.extend(tag.map(|tag| (ETAG, tag)));
    response
}

/// The headers of a file of a page with this content security policy.
pub(super) fn page_headers(content_type: HeaderValue, policy: &'static str) -> [(HeaderName, HeaderValue); 5] {
    let text = HeaderValue::from_static;
    [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, text(policy)),
        (X_CONTENT_TYPE_OPTIONS, text("nosniff")),
        (REFERRER_POLICY, text("no-referrer")),
        (CACHE_CONTROL, text("no-cache")),
    ]
}

/// Other contents have another tag.
fn etag(text: &str) -> Option<HeaderValue> {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
    HeaderValue::from_str(&format!("\"{hash:016x}\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_every_header_once() {
        let response = serve_file(&HeaderMap::new(), SCRIPT, "text", etag("text"));
        let values: Vec<_> = response.headers().get_all(CONTENT_TYPE).iter().collect();
        assert_eq!(values, [SCRIPT]);
        assert_eq!(response.headers().keys_len(), response.headers().len());
    }
}
