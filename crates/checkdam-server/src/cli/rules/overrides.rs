//! `checkdam rules override` and `overrides`.

use std::process::ExitCode;

use checkdam::rule_file;
use serde::Deserialize;
use serde_json::{Value, json};

use super::add_set_remove::explain_unknown;
use crate::cli::backend::BackendArguments;
use crate::cli::command_error::{CommandError, ErrorKind};
use crate::cli::table::Table;
use crate::cli::{EditOutput, parse_response, print, print_value};

/// What `checkdam rules override` takes.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct OverrideArguments {
    /// Name of the rule
    rule: String,

    /// Subjects, such as user:42 or user:bot-*
    subject: String,

    /// Limit instead of the rule's, such as "100/s burst 500"; repeat it for several tiers
    #[arg(long = "limit", value_name = "LIMIT", group = "what")]
    limits: Vec<String>,

    /// Factor for the rule's limits, such as 10 or 0.5
    #[arg(long, value_name = "N", group = "what", allow_negative_numbers = true)]
    scale: Option<String>,

    /// No limit
    #[arg(long, group = "what")]
    unlimited: bool,

    /// Remove the override: the rule's own limits apply again
    #[arg(long, group = "what")]
    remove: bool,

    /// Description
    #[arg(long, value_name = "TEXT", conflicts_with = "remove")]
    description: Option<String>,

    /// Print the override as JSON
    #[arg(long, conflicts_with = "remove")]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// What `checkdam rules overrides` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct OverridesArguments {
    /// Only overrides of this rule
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// Print the overrides as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// An override, as far as the table shows it.
#[derive(Deserialize)]
struct OverrideRow {
    rule: String,
    subject: String,
    limits: Option<Vec<String>>,
    scale: Option<Value>,
    #[serde(default)]
    description: String,
    version: u64,
}

/// Puts an override in place, or removes it.
pub(crate) fn put_or_remove(arguments: &OverrideArguments) -> anyhow::Result<ExitCode> {
    let OverrideArguments { rule, subject, .. } = arguments;
    let what = format!("override of {subject:?} for rule {rule:?}");
    if arguments.remove {
        let keeper = arguments.place.backend()?;
        keeper.remove_override(rule, subject).map_err(|failure| {
            failure.advise(ErrorKind::NotFound, "`checkdam rules overrides` shows those that are")
        })?;
        return EditOutput { what: format!("{what}: removed"), row: None, is_json: false }.print(keeper.as_ref());
    }
    let one = rule_file::parse_override(&arguments.document().to_string())
        .map_err(|error| CommandError::invalid(error.reason))?;
    let keeper = arguments.place.backend()?;
    let row = keeper.put_override(&one).map_err(explain_unknown)?;
    EditOutput { what: format!("{what}: set"), row: Some(row), is_json: arguments.json }.print(keeper.as_ref())
}

impl OverrideArguments {
    /// The override as a rule file has it.
    fn document(&self) -> Value {
        let mut document = json!({"rule": self.rule, "subject": self.subject});
        if !self.limits.is_empty() {
            document["limits"] = json!(self.limits);
        }
        if let Some(scale) = &self.scale {
            document["scale"] = json!(scale);
        }
        if self.unlimited {
            document["unlimited"] = json!(true);
        }
        if let Some(description) = &self.description {
            document["description"] = json!(description);
        }
        document
    }
}

/// Lists the overrides.
pub(crate) fn list(arguments: &OverridesArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.overrides(arguments.rule.as_deref())?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<OverrideRow> = parse_response(&answer["overrides"])?;
    let mut table = Table::new(&["RULE", "SUBJECT", "INSTEAD", "VERSION", "DESCRIPTION"]);
    for row in rows {
        let instead = match (row.limits, row.scale) {
            (Some(limits), _) => limits.join(", "),
            (None, Some(scale)) => format!("{scale} times"),
            (None, None) => "unlimited".to_owned(),
        };
        table.row([row.rule, row.subject, instead, row.version.to_string(), row.description]);
    }
    print(table.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
