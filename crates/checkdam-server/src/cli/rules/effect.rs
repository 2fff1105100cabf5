//! `checkdam rules effect`: what a rule in shadow mode would have denied.

use std::process::ExitCode;

use checkdam::time::rfc3339;
use serde::Deserialize;

use super::add_set_remove::explain_unknown;
use crate::cli::backend::ServerArguments;
use crate::cli::table::{Table, printable};
use crate::cli::{parse_response, print, print_value};

/// What `checkdam rules effect` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct EffectArguments {
    /// Name of the rule; it must be in shadow mode
    name: String,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: ServerArguments,
}

/// What the server counted.
#[derive(Deserialize)]
struct Effect {
    rule: String,
    since: u64,
    seen: u64,
    would_deny: u64,
    top_subjects: Vec<TopSubject>,
}

#[derive(Deserialize)]
struct TopSubject {
    subject: String,
    would_deny: u64,
    too_high_by: u64,
}

/// Asks a server, and prints what it counted.
pub(crate) fn run(arguments: &EffectArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.effect(&arguments.name).map_err(explain_unknown)?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let effect: Effect = parse_response(&answer)?;
    print(effect.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl Effect {
    fn text(&self) -> String {
        let Self { seen, would_deny, .. } = self;
        let share = if *seen == 0 { 0.0 } else { *would_deny as f64 * 100.0 / *seen as f64 };
        let since = rfc3339(self.since);
        let mut text = format!(
            "{}: would have denied {would_deny} of {seen} requests ({share:.1} %) since {since}\n",
            printable(&self.rule)
        );
        if self.top_subjects.is_empty() {
            return text;
        }
        let mut table = Table::new(&["SUBJECT", "WOULD DENY", "ERROR BOUND"]);
        for top in &self.top_subjects {
            table.row([top.subject.clone(), top.would_deny.to_string(), top.too_high_by.to_string()]);
        }
        text.push('\n');
        text.push_str(&table.text());
        text
    }
}
