//! The dashboard: a page for operators, served from the binary. Everything it
//! loads comes from here, and everything it shows it asks the admin API for, so
//! its files need no token and hold nothing worth one.

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
const FILES: [(&str, &str, &str); 27] = [
    ("/", HTML, include_str!("index.html")),
    ("/dashboard", HTML, include_str!("index.html")),
    ("/dashboard/api.js", SCRIPT, include_str!("api.js")),
    ("/dashboard/app.js", SCRIPT, include_str!("app.js")),
    ("/dashboard/bans.js", SCRIPT, include_str!("bans.js")),
    ("/dashboard/base.css", STYLE, include_str!("base.css")),
    ("/dashboard/charts.js", SCRIPT, include_str!("charts.js")),
    ("/dashboard/dom.js", SCRIPT, include_str!("dom.js")),
    ("/dashboard/entry.js", SCRIPT, include_str!("entry.js")),
    ("/dashboard/health.js", SCRIPT, include_str!("health.js")),
    ("/dashboard/icon.svg", DRAWING, include_str!("../page/icon.svg")),
    ("/dashboard/inspector.js", SCRIPT, include_str!("inspector.js")),
    ("/dashboard/limited.js", SCRIPT, include_str!("limited.js")),
    ("/dashboard/listing.js", SCRIPT, include_str!("listing.js")),
    ("/dashboard/live.js", SCRIPT, include_str!("live.js")),
    ("/dashboard/overrides.js", SCRIPT, include_str!("overrides.js")),
    ("/dashboard/overview.js", SCRIPT, include_str!("overview.js")),
    ("/dashboard/parts.css", STYLE, include_str!("parts.css")),
    ("/dashboard/preview.js", SCRIPT, include_str!("preview.js")),
    ("/dashboard/rule.js", SCRIPT, include_str!("rule.js")),
    ("/dashboard/rule_form.js", SCRIPT, include_str!("rule_form.js")),
    ("/dashboard/rule_text.js", SCRIPT, include_str!("rule_text.js")),
    ("/dashboard/rules.js", SCRIPT, include_str!("rules.js")),
    ("/dashboard/session.js", SCRIPT, include_str!("session.js")),
    ("/dashboard/unsaved.js", SCRIPT, include_str!("unsaved.js")),
    ("/dashboard/violations.js", SCRIPT, include_str!("violations.js")),
    ("/dashboard/words.js", SCRIPT, include_str!("words.js")),
];

/// The paths of the page.
pub(super) fn router() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        let tag = tag(text);
        router.route(path, get(move |headers: HeaderMap| async move { file(&headers, kind, text, tag) }))
    })
}

/// A file, or that the browser has it already: it asks every time, so that a
/// new binary never meets the page of an old one.
fn file(asked: &HeaderMap, kind: &'static str, text: &'static str, tag: Option<HeaderValue>) -> Response {
    let is_known = tag.is_some() && asked.get(IF_NONE_MATCH) == tag.as_ref();
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { text.into_response() };
    let headers = response.headers_mut();
    for (name, value) in headers_of(kind) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.extend(tag.map(|tag| (ETAG, tag)));
    response
}

fn headers_of(kind: &'static str) -> [(HeaderName, &'static str); 5] {
    [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ]
}

/// Other contents have another tag.
fn tag(text: &str) -> Option<HeaderValue> {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
    HeaderValue::from_str(&format!("\"{hash:016x}\"")).ok()
}
