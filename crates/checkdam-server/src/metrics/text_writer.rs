//! Writes metric families in the Prometheus text formats.

use std::fmt::{Display, Write};

use super::definitions::{MetricDefinition, MetricType};
use super::exposition_format::ExpositionFormat;
use crate::telemetry::{BOUNDS, LatencyCounts};

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

    /// Begins a family: its samples follow.
    pub(super) fn family(&mut self, family: &MetricDefinition) -> &mut Self {
        let MetricDefinition { name, kind, help } = *family;
        // OpenMetrics names a family without what its samples end with.
        let (shown, word) = match (self.form, kind) {
            (ExpositionFormat::Classic, MetricType::Info) => (name, "gauge"),
            (ExpositionFormat::OpenMetrics, MetricType::Info) => (name.trim_end_matches("_info"), "info"),
            (ExpositionFormat::OpenMetrics, MetricType::Counter) => (name.trim_end_matches("_total"), "counter"),
            (ExpositionFormat::Classic, MetricType::Counter) => (name, "counter"),
            (_, MetricType::Gauge) => (name, "gauge"),
            (_, MetricType::Histogram) => (name, "histogram"),
        };
        self.push(format_args!("# HELP {shown} {help}\n# TYPE {shown} {word}\n"));
        self.name = name;
        self
    }

    /// One number of the family.
    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) -> &mut Self {
        self.line("", labels, value);
        self.out.push('\n');
        self
    }

    /// One histogram of the family.
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

    /// The whole text.
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

    const COUNTER: MetricDefinition = MetricDefinition::counter("things_total", "Things.");
    const INFO: MetricDefinition = MetricDefinition::info("build_info", "What it is.");

    fn written(form: ExpositionFormat) -> String {
        let mut text = TextWriter::new(form);
        text.family(&COUNTER).sample(&[("rule", "a\"b\\c\nd{}é")], 3).sample(&[], 0.5);
        text.family(&INFO).sample(&[("version", "1"), ("other", "")], 1);
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
}
