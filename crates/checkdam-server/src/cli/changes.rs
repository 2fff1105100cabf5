//! `checkdam changes`: lists the change log, newest first.

use std::process::ExitCode;

use checkdam_service::rulebook::{Change, ChangeFilter};
use serde::Deserialize;
use serde_json::Value;

use super::backend::BackendArguments;
use super::table::Table;
use super::violations::parse_time;
use super::{print_notice, print_response};

#[derive(Debug, clap::Args)]
pub(crate) struct ChangesArguments {
    /// Only edits by this operator
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Only edits of this kind
    #[arg(long, value_name = "KIND", value_parser = ["rule", "override", "ban", "rulebook"])]
    kind: Option<String>,

    /// Only edits of this rule and its overrides
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// Only edits of this subject's overrides and bans
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,

    /// Only edits since this time: 10m, 1h or 7d ago, or 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<u64>,

    /// Only edits before this time, in the same format
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<u64>,

    /// Maximum number of edits to show
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Print the edits as JSON, with the items before and after
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Deserialize)]
struct ChangeList {
    changes: Vec<Change>,
}

pub(crate) fn run(arguments: &ChangesArguments) -> anyhow::Result<ExitCode> {
    let limit = arguments.limit;
    let unix_ms = |unix_s: Option<u64>| unix_s.and_then(|unix_s| i64::try_from(unix_s.saturating_mul(1_000)).ok());
    let filter = ChangeFilter {
        actor: arguments.actor.clone(),
        kind: arguments.kind.clone(),
        name: arguments.rule.clone(),
        subject: arguments.subject.clone(),
        since_unix_ms: unix_ms(arguments.since),
        until_unix_ms: unix_ms(arguments.until),
        limit,
        ..ChangeFilter::default()
    };
    let answer = arguments.place.backend()?.changes(filter)?;
    let mut is_full = false;
    let printed = print_response(&answer, arguments.json, |list: ChangeList| {
        is_full = list.changes.len() == limit as usize;
        Ok(table(list.changes).text())
    })?;
    if is_full {
        print_notice(&format!("showing the newest {limit}: use --limit for more"));
    }
    Ok(printed)
}

fn table(rows: Vec<Change>) -> Table {
    let mut table = Table::new(&["TIME", "ACTOR", "ACTION", "KIND", "RULE", "SUBJECT", "CHANGED"]);
    let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    for row in rows {
        let changed = changed_fields(row.before.as_ref(), row.after.as_ref());
        table.row([
            row.changed_at,
            row.actor,
            row.action,
            row.kind,
            or_none(row.name),
            or_none(row.subject),
            or_none(changed),
        ]);
    }
    table
}

/// What differs: of an item the names of its fields, of an import how many items.
fn changed_fields(before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
            Some(differing.cloned().collect::<Vec<_>>().join(", "))
        }
        (None, Some(after)) => {
            let counts = ["added", "changed", "removed"].map(|name| Some((name, after.get(name)?.as_u64()?)));
            let counts = counts.into_iter().flatten().filter(|(_, count)| *count > 0);
            Some(counts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    }
}
