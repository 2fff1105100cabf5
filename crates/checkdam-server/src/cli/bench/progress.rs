//! Progress of a load test: a status line in a terminal, otherwise one line every few
//! seconds.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::text_report::latency;
use crate::cli::print_notice;
use crate::loadgen::{LoadProgress, LoadTally};
use crate::simulate::with_thousands_separators;

/// Interval of progress lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Tells on standard error.
pub(super) struct ProgressPrinter {
    bar: Option<ProgressBar>,
    is_quiet: bool,
    duration: Duration,
    /// Since the last line.
    waited: Duration,
}

impl ProgressPrinter {
    pub(super) fn new(is_quiet: bool, duration: Duration) -> Self {
        let bar = (!is_quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
            match ProgressStyle::with_template("{bar:20} {wide_msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, is_quiet, duration, waited: Duration::ZERO }
    }

    pub(super) fn print(&mut self, progress: &LoadProgress<'_>) {
        if let Some(bar) = &self.bar {
            let elapsed_ms = progress.elapsed.unwrap_or_default().as_millis();
            bar.set_position(u64::try_from(elapsed_ms).unwrap_or(u64::MAX));
            bar.set_message(self.line(progress));
            return;
        }
        self.waited += progress.interval;
        if !self.is_quiet && self.waited >= LINE_EVERY {
            self.waited = Duration::ZERO;
            print_notice(&self.line(progress));
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, progress: &LoadProgress<'_>) -> String {
        let LoadProgress { elapsed: Some(elapsed), interval, fresh, total } = progress else {
            return format!("warming up, {} requests", with_thousands_separators(progress.total.warmup));
        };
        let LoadTally { allowed, limited, .. } = **total;
        format!(
            "{}s of {}s  {}/s  p99 {}  allowed {}  denied {}  errors {}",
            elapsed.as_secs(),
            self.duration.as_secs(),
            with_thousands_separators((fresh.responses() as f64 / interval.as_secs_f64().max(1e-9)) as u64),
            latency(fresh.percentile(99.0)),
            with_thousands_separators(allowed),
            with_thousands_separators(limited),
            with_thousands_separators(total.errors())
        )
    }
}
