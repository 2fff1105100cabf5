//! The Prometheus metrics endpoint.

use std::io::Write;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::problem::Problem;
use crate::app::App;
use crate::metrics::{self, ExpositionFormat};

/// Smaller texts are sent as they are.
const COMPRESSED_MIN: usize = 16 << 10;

/// The last texts, one per format. One is rendered at a time, and concurrent scrapes
/// share a text that was begun after they arrived.
#[derive(Debug)]
pub(super) struct Scraper {
    app: Arc<App>,
    texts: Mutex<Vec<CachedScrape>>,
}

impl Scraper {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app, texts: Mutex::default() }
    }
}

#[derive(Debug)]
struct CachedScrape {
    form: ExpositionFormat,
    /// Whether the scraper accepts gzip.
    takes_gzip: bool,
    begun: Instant,
    body: Bytes,
    is_zipped: bool,
}

/// Answers with every metric: in Prometheus' text format, or in OpenMetrics if Accept prefers it.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "Every metric as it stands now; OpenMetrics 1.0 if Accept prefers it",
        body = String, content_type = "text/plain"),
    (status = 401, description = "There is an API token, and it is missing or wrong", body = Problem,
        content_type = "application/problem+json"),
))]
pub(super) async fn metrics(State(scraper): State<Arc<Scraper>>, headers: HeaderMap) -> Response<Body> {
    let (form, accepts_gzip, came) = (ExpositionFormat::negotiate(&headers), accepts_gzip(&headers), Instant::now());
    let Some((body, is_zipped)) = scrape(&scraper, form, accepts_gzip, came).await else {
        // Only if the program is ending: its threads take no more work.
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let about = [(CONTENT_TYPE, form.content_type()), (CACHE_CONTROL, "no-store"), (VARY, "accept, accept-encoding")];
    let mut response = (about, body).into_response();
    if is_zipped {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// The metrics as rendered after `came`, and whether they are compressed.
async fn scrape(scraper: &Scraper, form: ExpositionFormat, takes_gzip: bool, came: Instant) -> Option<(Bytes, bool)> {
    let mut texts = scraper.texts.lock().await;
    let is_such = |text: &CachedScrape| (text.form, text.takes_gzip) == (form, takes_gzip);
    if let Some(text) = texts.iter().find(|text| is_such(text) && text.begun >= came) {
        return Some((text.body.clone(), text.is_zipped));
    }
    let (begun, writing) = (Instant::now(), Arc::clone(&scraper.app));
    let written = tokio::task::spawn_blocking(move || {
        let text = metrics::write(&writing, form);
        let zipped = takes_gzip.then(|| gzip(&text)).flatten();
        zipped.map_or_else(|| (Bytes::from(text), false), |zipped| (Bytes::from(zipped), true))
    });
    let (body, is_zipped) = written.await.ok()?;
    texts.retain(|text| !is_such(text));
    texts.push(CachedScrape { form, takes_gzip, begun, body: body.clone(), is_zipped });
    Some((body, is_zipped))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let named = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn gzip(text: &str) -> Option<Vec<u8>> {
    if text.len() < COMPRESSED_MIN {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text.as_bytes()).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn long_texts_are_zipped_for_those_who_take_it() {
        let takes = |coding: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(coding))]))
        };
        assert!(takes("gzip") && takes("deflate, GZIP;q=0.5"));
        assert!(!takes("identity") && !takes("gzip;q=0") && !accepts_gzip(&HeaderMap::new()));
        let text = "rate_limiter_rules 1\n".repeat(1_000);
        let mut read = String::new();
        flate2::read::GzDecoder::new(&*gzip(&text).unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
        assert_eq!(gzip("short"), None);
    }
}
