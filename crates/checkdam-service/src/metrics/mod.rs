//! Prometheus metrics: decisions by rule, latencies, and the state of the store, the
//! audit log, the rules and the process.
//!
//! A small writer of our own writes both exposition formats: the classic text format,
//! which every tool reads, and OpenMetrics, which alone has exemplars. (The usual
//! library writes OpenMetrics only, and keeps its own copy of every counter.) All
//! values are read from where they are counted; nothing is stored between scrapes.
//!
//! Labels are bounded: by the number of rules that are counted separately, and by
//! fixed words. No label holds a client's value, unless a descriptor sets
//! `detailed_metric`, and then within `--metrics-rules`. To add a metric, add a line to
//! the module that reads its value.

mod components;
mod decisions;
mod process;
mod text_writer;

pub(crate) use self::text_writer::ExpositionFormat;

use self::text_writer::TextWriter;
use crate::app::App;

/// All metrics, now. It reads the whole table of buckets: not for a thread that
/// serves requests.
pub(crate) fn write(app: &App, form: ExpositionFormat) -> String {
    let mut text = TextWriter::new(form);
    decisions::write(&mut text, app.telemetry(), app.limiter().store().kind());
    components::write(&mut text, app);
    process::write(&mut text);
    text.finish()
}
