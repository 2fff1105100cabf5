//! `checkdam changes`: lists the change log, newest first.

use std::process::ExitCode;

use checkdam_service::rulebook::{Change, ChangeFilter};
use serde::Deserialize;
use serde_json::Value;

use super::table::{Table, or_none};
use super::violations::LogPage;

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

    #[command(flatten)]
    page: LogPage,
}

#[derive(Deserialize)]
struct ChangeList {
    changes: Vec<Change>,
}

pub(crate) fn run(arguments: &ChangesArguments) -> anyhow::Result<ExitCode> {
    let page = &arguments.page;
    let filter = ChangeFilter {
        actor: arguments.actor.clone(),
        kind: arguments.kind.clone(),
        name: arguments.rule.clone(),
        subject: arguments.subject.clone(),
        since_unix_ms: page.since_unix_ms(),
        until_unix_ms: page.until_unix_ms(),
        limit: page.limit,
        ..ChangeFilter::default()
    };
    let answer = page.place.backend()?.changes(filter)?;
    page.print(&answer, |list: ChangeList| table(list.changes))
}

fn table(rows: Vec<Change>) -> Table {
    let mut table = Table::new(&["TIME", "ACTOR", "ACTION", "KIND", "RULE", "SUBJECT", "CHANGED"]);
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
