//! What Prometheus scrapes: decisions by rule, latencies, and how the store, the
//! record of violations, the rules and the process go.
//!
//! The text is written by a small writer of our own, in both forms that
//! scrapers ask for: the classic one, which every tool reads, and OpenMetrics,
//! which alone has exemplars. (The usual library writes OpenMetrics only, and
//! keeps its own copy of every counter.) Everything is read from where it is
//! counted anyway; between scrapes nothing here exists.
//!
//! Labels are bounded: by the rules that are counted by themselves, and by words
//! of ours. None holds a client's value, unless a descriptor asks for it
//! (`detailed_metric`), and then within `--metrics-rules`. To add a metric: a constant in
//! `definitions.rs`, and a line in the part that knows the number.

mod components;
mod decisions;
mod definitions;
mod exposition_format;
mod process;
mod text_writer;

pub(crate) use self::exposition_format::ExpositionFormat;

use self::text_writer::TextWriter;
use crate::app::App;

/// Everything, as it stands now. It reads the whole table of buckets: not for a
/// thread that answers requests.
pub(crate) fn write(app: &App, form: ExpositionFormat) -> String {
    let mut text = TextWriter::new(form);
    decisions::write(&mut text, app.telemetry(), app.limiter().store().kind());
    components::write(&mut text, app);
    process::write(&mut text);
    text.finish()
}
