//! `checkdam top`: a terminal view of traffic and of the subjects that are denied
//! most.

mod render;
mod server_snapshot;
mod terminal;
mod view_state;

use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::json;

use self::server_snapshot::{ServerSnapshot, TopQuery};
use self::view_state::ViewState;
use super::backend::{ServerArguments, ServerBackend};
use super::table::Table;
use super::{print, print_notice, print_value};

#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    query: TopQuery,

    /// Print a table once and exit; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,

    /// Print everything once as JSON and exit
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: ServerArguments,
}

/// Shows a server's lists until the user quits, or once.
pub(crate) fn run(arguments: &TopArguments) -> anyhow::Result<ExitCode> {
    let backend = arguments.place.backend()?;
    if arguments.json {
        return print_all(&backend, &arguments.query);
    }
    // A server that cannot be reached is reported before the screen is switched.
    let snapshot = ServerSnapshot::fetch(&backend, &arguments.query)?;
    let is_screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if arguments.once || !is_screen {
        print(render_text(&snapshot).as_bytes())?;
        if let Some(hint) = &snapshot.top.hint {
            print_notice(hint);
        }
        return Ok(ExitCode::SUCCESS);
    }
    terminal::run(backend, ViewState::new(arguments.query.clone()), snapshot)?;
    Ok(ExitCode::SUCCESS)
}

fn print_all(backend: &ServerBackend, query: &TopQuery) -> anyhow::Result<ExitCode> {
    let mut all = json!({});
    for (name, path) in query.paths() {
        all[name] = backend.get(&path)?;
    }
    print_value(&all)?;
    Ok(ExitCode::SUCCESS)
}

fn render_text(snapshot: &ServerSnapshot) -> String {
    let mut table = Table::new(&["COUNT", "ERROR BOUND", "RULE", "SUBJECT"]);
    for subject in &snapshot.top.subjects {
        let (count, too_high_by) = (subject.count.to_string(), subject.too_high_by.to_string());
        table.row([count, too_high_by, subject.rule.clone(), subject.subject.clone()]);
    }
    format!("{}\n\n{}", snapshot.summary(), table.text())
}
