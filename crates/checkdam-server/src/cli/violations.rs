//! `checkdam violations`: lists violations, newest first.

use std::process::ExitCode;

use super::backend::{BackendArguments, ViolationQuery};
use super::table::{Table, milliseconds_text};
use super::time_argument::TimeArgument;
use super::{parse_response, print, print_notice, print_value};
use crate::rulebook::Violation;

/// What `checkdam violations` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct ViolationsArguments {
    /// Only violations of this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Only violations from this address
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,

    /// Only violations of this rule; "ban" for those of bans
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// Only violations since this time: 10m, 1h or 7d ago, or 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<TimeArgument>,

    /// Only violations before this time, in the same format
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArgument>,

    /// Most violations to show
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Print the violations as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// Lists violations.
pub(crate) fn run(arguments: &ViolationsArguments) -> anyhow::Result<ExitCode> {
    let wanted = ViolationQuery {
        user: arguments.user.clone(),
        ip: arguments.ip.clone(),
        rule: arguments.rule.clone(),
        since_unix_s: arguments.since.map(TimeArgument::unix_s),
        until_unix_s: arguments.until.map(TimeArgument::unix_s),
        limit: arguments.limit as usize,
    };
    let answer = arguments.place.backend()?.violations(&wanted)?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Violation> = parse_response(&answer["violations"])?;
    let is_full = rows.len() == wanted.limit;
    print(table(rows).text().as_bytes())?;
    if is_full {
        print_notice(&format!("showing the newest {}: use --limit for more", wanted.limit));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rows: Vec<Violation>) -> Table {
    let mut table = Table::new(&["TIME", "RULE", "SUBJECT", "USER", "IP", "REQUEST", "COST", "LIMIT", "RETRY IN"]);
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
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
            milliseconds_text(row.retry_after_ms.unwrap_or_default().max(0).unsigned_abs()),
        ]);
    }
    table
}
