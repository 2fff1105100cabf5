//! `checkdam ban`, `unban` and `bans`: adds, removes and lists bans.

use std::process::ExitCode;

use checkdam::time::{parse_rfc3339, rfc3339};
use checkdam::{Ban, BanSpec};

use super::backend::BackendArguments;
use super::command_error::{CommandError, ErrorKind};
use super::table::Table;
use super::time_argument::now_unix_s;
use super::{EditOutput, parse_response, print, print_value};
use crate::config::DurationText;
use crate::rulebook::StoredSpec;

/// What `checkdam ban` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BanArguments {
    /// Subject to ban: an attribute and its value, such as user:42, user:bot-* or ip:198.51.100.0/24
    subject: String,

    /// Duration of the ban, such as 10m, 1h or 30d [default: permanent]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "until")]
    length: Option<DurationText>,

    /// End of the ban, such as 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Reason, shown to the banned client
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Print the ban as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// What `checkdam unban` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct UnbanArguments {
    /// Subject, as shown by `checkdam bans`
    subject: String,

    #[command(flatten)]
    place: BackendArguments,
}

/// What `checkdam bans` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BansArguments {
    /// Print the bans as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// Bans somebody.
pub(crate) fn ban(arguments: &BanArguments) -> anyhow::Result<ExitCode> {
    let mut spec = BanSpec::default();
    spec.subject = Some(arguments.subject.clone());
    spec.until = arguments.until.clone();
    spec.reason = arguments.reason.clone();
    if let Some(length) = arguments.length {
        let length = std::time::Duration::from(length);
        // Up to the next whole second, so that it is never shorter than was said.
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        spec.until = Some(rfc3339(now_unix_s().saturating_add(seconds)));
    }
    let ban = Ban::try_from(spec).map_err(CommandError::from)?;
    if ban.until_unix_s.is_some_and(|until| until <= now_unix_s()) {
        let until = ban.until_unix_s.map(rfc3339).unwrap_or_default();
        return Err(CommandError::invalid(format!(
            "the ban would end at {until}, which has passed: give a later time"
        ))
        .into());
    }
    let backend = arguments.place.backend()?;
    let row = backend.put_ban(&ban)?;
    let until = ban.until_unix_s.map_or_else(|| "for ever".to_owned(), |until| format!("until {}", rfc3339(until)));
    let what = format!("{}: banned {until}", ban.subject());
    EditOutput { what, row: Some(row), is_json: arguments.json }.print(backend.as_ref())
}

/// Ends a ban.
pub(crate) fn unban(arguments: &UnbanArguments) -> anyhow::Result<ExitCode> {
    let backend = arguments.place.backend()?;
    backend
        .remove_ban(&arguments.subject)
        .map_err(|failure| failure.advise(ErrorKind::NotFound, "`checkdam bans` shows those that are"))?;
    EditOutput { what: format!("{}: no longer banned", arguments.subject), row: None, is_json: false }
        .print(backend.as_ref())
}

/// Lists the bans.
pub(crate) fn list(arguments: &BansArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.bans()?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<StoredSpec<BanSpec>> = parse_response(&answer["bans"])?;
    let now = now_unix_s();
    let mut table = Table::new(&["SUBJECT", "UNTIL", "REASON"]);
    for StoredSpec { spec, .. } in rows {
        let until = match spec.until {
            None => "for ever".to_owned(),
            Some(until) if parse_rfc3339(&until).is_some_and(|at| at <= now) => format!("{until} (over)"),
            Some(until) => until,
        };
        table.row([spec.subject.unwrap_or_default(), until, spec.reason.unwrap_or_default()]);
    }
    print(table.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
