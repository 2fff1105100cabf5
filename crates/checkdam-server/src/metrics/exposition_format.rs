//! Negotiates the exposition format: Prometheus text or OpenMetrics.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// A form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    /// Prometheus' own, 0.0.4.
    Classic,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// The format by `Accept`: OpenMetrics if it is named and not less preferred.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut open, mut classic) = (0.0, 0.0);
        for range in accepted.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            if kind.eq_ignore_ascii_case("application/openmetrics-text") {
                open = weight.max(open);
            } else if kind.eq_ignore_ascii_case("text/plain") {
                classic = weight.max(classic);
            }
        }
        if open > 0.0 && open >= classic { Self::OpenMetrics } else { Self::Classic }
    }

    /// Its content type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        let asked = |accept: &'static str| {
            ExpositionFormat::negotiate(&HeaderMap::from_iter([(ACCEPT, axum::http::HeaderValue::from_static(accept))]))
        };
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [prometheus, "application/openmetrics-text", "Application/OpenMetrics-Text; q=0.5"] {
            assert_eq!(asked(accept), ExpositionFormat::OpenMetrics, "{accept}");
        }
        for accept in ["*/*", "", "text/html", "text/plain, application/openmetrics-text;q=0.9"] {
            assert_eq!(asked(accept), ExpositionFormat::Classic, "{accept}");
        }
        assert_eq!(ExpositionFormat::negotiate(&HeaderMap::new()), ExpositionFormat::Classic);
    }
}
