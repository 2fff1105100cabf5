//! Writes metric families in the Prometheus text formats.

use std::fmt::{Display, Write};

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use crate::telemetry::{BOUNDS, LatencyCounts};

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

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A label and its value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The text, as far as it is written.
pub(super) struct TextWriter {
    out: String,
    form: ExpositionFormat,
    /// The family that samples belong to.
    name: &'static str,
}

impl TextWriter {
    pub(super) fn new(form: ExpositionFormat) -> Self {
        Self { out: String::with_capacity(16 << 10), form, name: "" }
    }

    /// Begins a family: its samples follow. Its name says what it is, as OpenMetrics demands:
    /// `…_total` is a counter, `…_info` an info, and anything else a gauge.
    pub(super) fn family(&mut self, name: &'static str, help: &str) -> &mut Self {
        let kind = match name.rsplit_once('_') {
            Some((_, "total")) => "counter",
            Some((_, "info")) => "info",
            _ => "gauge",
        };
        self.typed_family(name, kind, help)
    }

    pub(super) fn histogram_family(&mut self, name: &'static str, help: &str) {
        self.typed_family(name, "histogram", help);
    }

    fn typed_family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        // OpenMetrics names a family without what its samples end with; the classic format has no info.
        let (shown, kind) = match self.form {
            ExpositionFormat::Classic if kind == "info" => (name, "gauge"),
            ExpositionFormat::Classic => (name, kind),
            ExpositionFormat::OpenMetrics => (name.trim_end_matches("_info").trim_end_matches("_total"), kind),
        };
        self.push(format_args!("# HELP {shown} {help}\n# TYPE {shown} {kind}\n"));
        self.name = name;
        self
    }

    /// Families of one number each, which are there only where the component is.
    pub(super) fn families<const N: usize>(&mut self, all: [(&'static str, &str); N], values: Option<[u64; N]>) {
        for (place, (name, help)) in all.into_iter().enumerate() {
            self.family(name, help).optional(values.map(|values| values[place]));
        }
    }

    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) -> &mut Self {
        self.line("", labels, value);
        self.out.push('\n');
        self
    }

    /// The only number of the family, if there is one.
    pub(super) fn optional(&mut self, value: Option<impl Display>) {
        if let Some(value) = value {
            self.sample(&[], value);
        }
    }

    pub(super) fn histogram(&mut self, counts: &LatencyCounts) {
        let series = [("decision", counts.decision), ("store", counts.store)];
        let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
        let mut total = 0;
        for (bound, (count, exemplar)) in bounds.zip(counts.buckets.iter().zip(&counts.exemplars)) {
            total += count;
            self.line("_bucket", &[series[0], series[1], ("le", bound)], total);
            if let Some(exemplar) = exemplar.filter(|_| self.form == ExpositionFormat::OpenMetrics) {
                let (latency, at) = (seconds(exemplar.latency_ns), exemplar.at_unix_ms as f64 / 1e3);
                self.push(format_args!(" # {{trace_id=\"{}\"}} {latency} {at}", exemplar.trace));
            }
            self.out.push('\n');
        }
        self.line("_sum", &series, seconds(counts.sum_ns));
        self.out.push('\n');
        self.line("_count", &series, total);
        self.out.push('\n');
    }

    pub(super) fn finish(mut self) -> String {
        if self.form == ExpositionFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn line(&mut self, end: &str, labels: &[Label<'_>], value: impl Display) {
        self.out.push_str(self.name);
        self.out.push_str(end);
        for (place, (name, value)) in labels.iter().enumerate() {
            self.push(format_args!("{}{name}=\"", if place == 0 { '{' } else { ',' }));
            self.escaped(value);
            self.out.push('"');
        }
        self.push(format_args!("{} {value}", if labels.is_empty() { "" } else { "}" }));
    }

    fn escaped(&mut self, value: &str) {
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(text);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: ExpositionFormat) -> String {
        let mut text = TextWriter::new(form);
        text.family("things_total", "Things.").sample(&[("rule", "a\"b\\c\nd{}é")], 3).sample(&[], 0.5);
        text.family("build_info", "What it is.").sample(&[("version", "1"), ("other", "")], 1);
        text.finish()
    }

    #[test]
    fn both_forms_name_families_as_they_must() {
        let samples = "things_total{rule=\"a\\\"b\\\\c\\nd{}é\"} 3\nthings_total 0.5\n";
        let info = "build_info{version=\"1\",other=\"\"} 1\n";
        assert_eq!(
            written(ExpositionFormat::Classic),
            format!(
                "# HELP things_total Things.\n# TYPE things_total counter\n{samples}\
                 # HELP build_info What it is.\n# TYPE build_info gauge\n{info}"
            )
        );
        assert_eq!(
            written(ExpositionFormat::OpenMetrics),
            format!(
                "# HELP things Things.\n# TYPE things counter\n{samples}\
                 # HELP build What it is.\n# TYPE build info\n{info}# EOF\n"
            )
        );
    }

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
