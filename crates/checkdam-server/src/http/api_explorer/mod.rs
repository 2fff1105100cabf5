//! API explorer: a page to try the API in a browser, built from `/openapi.json`.
//! Everything it loads comes from this binary.

use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;

const HTML: &str = include_str!("index.html");
const SCRIPT: &str = include_str!("explorer.js");
const STYLE: &str = include_str!("explorer.css");
const ICON: &str = include_str!("../../../dashboard/icon.svg");

/// The page.
pub(super) async fn html() -> impl IntoResponse {
    (headers("text/html; charset=utf-8"), HTML)
}

/// What it does.
pub(super) async fn script() -> impl IntoResponse {
    (headers("text/javascript; charset=utf-8"), SCRIPT)
}

/// How it looks.
pub(super) async fn style() -> impl IntoResponse {
    (headers("text/css; charset=utf-8"), STYLE)
}

/// Its sign in a row of tabs.
pub(super) async fn icon() -> impl IntoResponse {
    (headers("image/svg+xml"), ICON)
}

fn headers(content_type: &'static str) -> [(HeaderName, &'static str); 5] {
    [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ]
}
