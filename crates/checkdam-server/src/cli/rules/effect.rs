//! `checkdam rules effect`: what a rule in shadow mode would have denied.

use std::process::ExitCode;

use checkdam::time::rfc3339;
use serde::Deserialize;

use super::add_set_remove::explain_unknown;
use crate::cli::backend::{ServerArguments, rule_path};
use crate::cli::print_response;
use crate::cli::table::{Table, printable};

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

pub(crate) fn run(arguments: &EffectArguments) -> anyhow::Result<ExitCode> {
    let path = format!("{}/effect", rule_path(&arguments.name));
    let answer = arguments.place.backend()?.get(&path).map_err(explain_unknown)?;
    print_response(&answer, arguments.json, |effect: Effect| Ok(effect.text()))
}

impl Effect {
    fn text(&self) -> String {
        let Self { seen, would_deny, .. } = self;
        let share = if *seen == 0 { 0.0 } else { *would_deny as f64 * 100.0 / *seen as f64 };
        let (rule, since) = (printable(&self.rule), rfc3339(self.since));
        let mut text =
            format!("{rule}: would have denied {would_deny} of {seen} requests ({share:.1} %) since {since}\n");
        if !self.top_subjects.is_empty() {
            let mut table = Table::new(&["SUBJECT", "WOULD DENY", "ERROR BOUND"]);
            for top in &self.top_subjects {
                table.row([top.subject.clone(), top.would_deny.to_string(), top.too_high_by.to_string()]);
            }
            text.push_str(&format!("\n{}", table.text()));
        }
        text
    }
}
