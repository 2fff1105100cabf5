//! A page to try the API in a browser: Swagger UI, which shows `/openapi.json`. The files
//! of `utoipa-swagger-ui` are part of this binary, and the page loads nothing else.

use std::sync::{Arc, LazyLock};

use axum::extract::Path;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, html};
use utoipa_swagger_ui::Config;

use super::dashboard::page_headers;
use super::problem;

/// The style sheet of Swagger UI holds its symbols, as `data:`.
const POLICY: &str =
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const ICON: &str = include_str!("../../dashboard/icon.svg");

/// Without a model list below the operations, and ready to send.
static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    let config = Config::from("/openapi.json").use_base_layout().deep_linking(true);
    Arc::new(config.try_it_out_enabled(true).default_models_expand_depth(-1).validator_url("none"))
});

/// The page. Its paths are absolute, since it is served at two.
pub(super) async fn page() -> impl IntoResponse {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "checkdam" }
                link rel="icon" type="image/svg+xml" href="/docs/icon.svg";
                link rel="stylesheet" href="/docs/swagger-ui.css";
                script src="/docs/swagger-ui-bundle.js" defer {}
                script src="/docs/swagger-ui-standalone-preset.js" defer {}
                script src="/docs/swagger-initializer.js" defer {}
            }
            body { div #swagger-ui {} }
        }
    };
    (headers("text/html; charset=utf-8"), page.into_string())
}

pub(super) async fn file(Path(name): Path<String>, method: Method, uri: Uri) -> Response {
    if name == "icon.svg" {
        return (headers("image/svg+xml"), ICON).into_response();
    }
    let Ok(Some(file)) = utoipa_swagger_ui::serve(&name, Arc::clone(&CONFIG)) else {
        return problem::not_found(method, uri).await.into_response();
    };
    let mut response = (headers(&file.content_type), file.bytes.into_owned()).into_response();
    if file.gzpipped {
        // Every browser that can run the page reads gzip.
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn headers(content_type: &str) -> [(HeaderName, HeaderValue); 5] {
    let unknown = HeaderValue::from_static("application/octet-stream");
    page_headers(HeaderValue::from_str(content_type).unwrap_or(unknown), POLICY)
}
