//! `checkdam ban`, `unban` and `bans`: adds, removes and lists bans.

use std::process::ExitCode;

use checkdam::time::{parse_rfc3339, rfc3339};
use checkdam::{Ban, BanSpec};
use checkdam_service::config::DurationText;
use checkdam_service::rulebook::StoredSpec;
use serde::Deserialize;

use super::backend::BackendArguments;
use super::command_error::{CommandError, ErrorKind};
use super::table::Table;
use super::{now_unix_s, print_edit, print_response};

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

#[derive(Debug, clap::Args)]
pub(crate) struct UnbanArguments {
    /// Subject, as shown by `checkdam bans`
    subject: String,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BansArguments {
    /// Print the bans as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

pub(crate) fn ban(arguments: &BanArguments) -> anyhow::Result<ExitCode> {
    let mut spec = BanSpec::default();
    spec.subject = Some(arguments.subject.clone());
    spec.until = arguments.until.clone();
    spec.reason = arguments.reason.clone();
    if let Some(length) = arguments.length {
        let length = std::time::Duration::from(length);
        // Rounded up to a whole second, so that the ban is never shorter than given.
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        spec.until = Some(rfc3339(now_unix_s().saturating_add(seconds)));
    }
    let ban = Ban::try_from(spec).map_err(CommandError::from)?;
    let until = ban.until_unix_s.map(rfc3339);
    if let (Some(until_unix_s), Some(until)) = (ban.until_unix_s, &until)
        && until_unix_s <= now_unix_s()
    {
        let reason = format!("the ban would end at {until}, which has passed: give a later time");
        return Err(CommandError::invalid(reason).into());
    }
    let backend = arguments.place.backend()?;
    let row = backend.put_ban(&ban)?;
    let until = until.map_or_else(|| "for ever".to_owned(), |until| format!("until {until}"));
    let what = format!("{}: banned {until}", ban.subject());
    print_edit(backend.as_ref(), &what, arguments.json.then_some(row))
}

pub(crate) fn unban(arguments: &UnbanArguments) -> anyhow::Result<ExitCode> {
    let backend = arguments.place.backend()?;
    backend
        .remove_ban(&arguments.subject)
        .map_err(|failure| failure.advise(ErrorKind::NotFound, "`checkdam bans` shows those that are"))?;
    print_edit(backend.as_ref(), &format!("{}: no longer banned", arguments.subject), None)
}

#[derive(Deserialize)]
struct BanList {
    bans: Vec<StoredSpec<BanSpec>>,
}

pub(crate) fn list(arguments: &BansArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.bans()?;
    print_response(&answer, arguments.json, |list: BanList| {
        let now = now_unix_s();
        let mut table = Table::new(&["SUBJECT", "UNTIL", "REASON"]);
        for StoredSpec { spec, .. } in list.bans {
            let until = match spec.until {
                None => "for ever".to_owned(),
                Some(until) if parse_rfc3339(&until).is_some_and(|at| at <= now) => format!("{until} (over)"),
                Some(until) => until,
            };
            table.row([spec.subject.unwrap_or_default(), until, spec.reason.unwrap_or_default()]);
        }
        Ok(table.text())
    })
}
