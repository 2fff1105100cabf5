//! `checkdam violations`: lists violations, newest first.

use std::process::ExitCode;
use std::time::Duration;

use checkdam::time::parse_rfc3339;
use checkdam_service::config::DurationText;
use checkdam_service::rulebook::{Violation, ViolationFilter};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::backend::BackendArguments;
use super::table::{Table, milliseconds_text, or_none};
use super::{now_unix_s, print_notice, print_response};

#[derive(Debug, clap::Args)]
pub(crate) struct ViolationsArguments {
    /// Only violations of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Only violations from this address
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,

    /// Only violations of this rule; "ban" for requests of banned subjects
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    #[command(flatten)]
    page: LogPage,
}

/// Which part of a log is listed, newest first, and how.
#[derive(Debug, clap::Args)]
pub(super) struct LogPage {
    /// Only entries since this time: 10m, 1h or 7d ago, or 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<u64>,

    /// Only entries before this time, in the same format
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<u64>,

    /// Maximum number of entries to show
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,

    /// Print the entries as JSON, with all their fields
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) place: BackendArguments,
}

#[derive(Deserialize)]
struct ViolationList {
    violations: Vec<Violation>,
}

pub(crate) fn run(arguments: &ViolationsArguments) -> anyhow::Result<ExitCode> {
    let page = &arguments.page;
    let filter = ViolationFilter {
        user: arguments.user.clone(),
        ip: arguments.ip.clone(),
        rule: arguments.rule.clone(),
        since_unix_ms: page.since_unix_ms(),
        until_unix_ms: page.until_unix_ms(),
        limit: page.limit,
        ..ViolationFilter::default()
    };
    let answer = page.place.backend()?.violations(filter)?;
    page.print(&answer, |list: ViolationList| table(list.violations))
}

impl LogPage {
    pub(super) fn since_unix_ms(&self) -> Option<i64> {
        self.since.and_then(unix_ms)
    }

    pub(super) fn until_unix_ms(&self) -> Option<i64> {
        self.until.and_then(unix_ms)
    }

    /// Prints the entries that a backend has found, and whether there may be more.
    pub(super) fn print<T: DeserializeOwned>(
        &self,
        answer: &Value,
        table: impl FnOnce(T) -> Table,
    ) -> anyhow::Result<ExitCode> {
        let mut is_full = false;
        let printed = print_response(answer, self.json, |list: T| {
            let table = table(list);
            is_full = table.row_count() == self.limit as usize;
            Ok(table.text())
        })?;
        if is_full {
            print_notice(&format!("showing the newest {}: use --limit for more", self.limit));
        }
        Ok(printed)
    }
}

fn unix_ms(unix_s: u64) -> Option<i64> {
    i64::try_from(unix_s.saturating_mul(1_000)).ok()
}

fn table(rows: Vec<Violation>) -> Table {
    let mut table = Table::new(&["TIME", "RULE", "SUBJECT", "USER", "IP", "REQUEST", "COST", "LIMIT", "RETRY IN"]);
    for row in rows {
        let request: Vec<String> = [row.method, row.endpoint].into_iter().flatten().collect();
        table.row([
            row.requested_at,
            or_none(row.rule),
            or_none(row.subject),
            or_none(row.user_id),
            or_none(row.ip_address),
            or_none(Some(request.join(" "))),
            row.cost.to_string(),
            or_none(row.limit),
            or_none(row.retry_after_ms.map(|wait_ms| milliseconds_text(wait_ms.max(0).unsigned_abs()))),
        ]);
    }
    table
}

/// Parses `1h` (ago) or `2026-12-01T00:00:00Z` to seconds since 1970.
fn parse_time(text: &str) -> Result<u64, String> {
    parse_rfc3339(text).or_else(|| seconds_before(text, now_unix_s())).ok_or_else(|| {
        format!("{text:?} is not a time: write how long ago, such as 10m, 1h or 7d, or 2026-12-01T00:00:00Z")
    })
}

fn seconds_before(length: &str, unix_s: u64) -> Option<u64> {
    let length: DurationText = length.parse().ok()?;
    Some(unix_s.saturating_sub(Duration::from(length).as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_lengths_or_instants() {
        assert_eq!(seconds_before("1h", 10_000), Some(6_400));
        assert_eq!(parse_time("2026-12-01T00:00:00Z"), Ok(1_796_083_200));
        for text in ["", "yesterday", "1", "2026-12-01", "-1h"] {
            assert!(parse_time(text).unwrap_err().contains("how long ago"), "{text}");
        }
    }
}
