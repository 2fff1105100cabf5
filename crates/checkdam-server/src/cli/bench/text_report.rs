//! Prints the progress and the results of a load test as text.

use std::io::IsTerminal;
use std::time::Duration;

use checkdam::DecidedBy;
use checkdam_tools::loadgen::{LoadProgress, LoadReport, LoadTally, PERCENTILES, PlannedRequest};
use checkdam_tools::simulate::{percent, with_thousands_separators};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::print_notice;
use crate::cli::table::Table;

/// Interval of progress lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(super) fn render(report: &LoadReport) -> String {
    let (plan, tally) = (&report.plan, &report.tally);
    let what = match (&plan.asked, plan.options.rate_per_s) {
        (PlannedRequest::Http(_), None) => format!("closed loop of {} connections", plan.options.connections),
        (PlannedRequest::Grpc(_), None) => format!("closed loop of {} streams", plan.options.connections),
        (PlannedRequest::Http(_), Some(rate)) => {
            format!("open loop of {}/s over {} connections", with_thousands_separators(rate), plan.options.connections)
        }
        (PlannedRequest::Grpc(_), Some(rate)) => {
            format!("open loop of {}/s over {} streams", with_thousands_separators(rate), plan.options.connections)
        }
    };
    let mut text = format!(
        "{}: {what}, {} keys ({}), {:.1} s\n\n",
        plan.target.url,
        with_thousands_separators(plan.options.keys),
        plan.options.spread.name(),
        report.elapsed.as_secs_f64()
    );
    let requests = tally.requests();
    let mut line = |name: &str, count: u64, more: &str| {
        text.push_str(format!("{name:<10}{:>14}  {more}", with_thousands_separators(count)).trim_end());
        text.push('\n');
    };
    line("requests", requests, &format!("{}/s", with_thousands_separators(report.responses_per_s() as u64)));
    line("allowed", tally.allowed, &percent(tally.allowed, requests));
    line("denied", tally.limited, &percent(tally.limited, requests));
    line("errors", tally.errors(), &errors(report));
    if tally.unsent > 0 {
        line("unsent", tally.unsent, "due, but no connection came free");
    }
    line("sent", tally.sent_bytes, "bytes");
    line("received", tally.received_bytes, "bytes");
    for by in DecidedBy::ALL {
        match tally.decided_by[by.number()] {
            0 => {}
            count => line(&format!("by {}", by.name()), count, &percent(count, requests)),
        }
    }
    let headings: Vec<String> = PERCENTILES.iter().map(|(_, name)| name.to_uppercase()).collect();
    let headings: Vec<&str> =
        std::iter::once("LATENCY").chain(headings.iter().map(String::as_str)).chain(["MAX", "MEAN"]).collect();
    let mut table = Table::new(&headings);
    let times = PERCENTILES.iter().map(|(percent, _)| tally.percentile(*percent));
    let times = times.chain([tally.percentile(100.0), Duration::from_nanos(tally.latencies.mean() as u64)]);
    let from = if plan.options.rate_per_s.is_some() { "from due" } else { "from sent" };
    table.row(std::iter::once(from.to_owned()).chain(times.map(latency)));
    text.push_str(&format!("\n{}\n", table.text()));
    text.push_str(&format!(
        "the generator: threads {}, busy {:.0}%{}\n",
        report.threads,
        report.busy_share * 100.0,
        if plan.options.rate_per_s.is_some() {
            format!(", {} of its requests began late", percent(tally.late, requests))
        } else {
            String::new()
        }
    ));
    text
}

fn errors(report: &LoadReport) -> String {
    let tally = &report.tally;
    let mut kinds = vec![
        ("refused".to_owned(), tally.refused),
        ("reset".to_owned(), tally.reset),
        ("timeout".to_owned(), tally.timeouts),
        ("other".to_owned(), tally.others),
    ];
    // Of a proxy, or of a server that is overloaded; those that decide are above.
    kinds.extend(tally.undecided_statuses.iter().map(|(status, count)| (format!("status {status}"), *count)));
    let with_status: u64 = tally.undecided_statuses.values().sum();
    kinds.push(("no decision".to_owned(), tally.undecided.saturating_sub(with_status)));
    let seen = kinds.into_iter().filter(|(_, count)| *count > 0);
    seen.map(|(kind, count)| format!("{kind} {}", with_thousands_separators(count))).collect::<Vec<_>>().join(", ")
}

/// A latency to three digits.
fn latency(time: Duration) -> String {
    let us = time.as_nanos() as f64 / 1e3;
    let (number, unit) = match us {
        0.0..1e3 => (us, "µs"),
        1e3..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    match number {
        0.0..10.0 => format!("{number:.2}{unit}"),
        10.0..100.0 => format!("{number:.1}{unit}"),
        _ => format!("{number:.0}{unit}"),
    }
}

/// Progress of a load test: a status line in a terminal, otherwise a line every few
/// seconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits() {
        for (ns, text) in [
            (0, "0.00µs"),
            (1_234, "1.23µs"),
            (85_940, "85.9µs"),
            (999_400, "999µs"),
            (1_500_000, "1.50ms"),
            (2_000_000_000, "2.00s"),
        ] {
            assert_eq!(latency(Duration::from_nanos(ns)), text);
        }
    }
}
