//! `checkdam rules list` and `show`.

use std::process::ExitCode;

use checkdam::{Definitions, rule_file};
use serde::Deserialize;
use serde_json::Value;

use super::add_set_remove::explain_unknown;
use super::{condition_flags, rule_flags};
use crate::cli::backend::BackendArguments;
use crate::cli::table::Table;
use crate::cli::{parse_response, print, print_value};

/// What `checkdam rules list` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArguments {
    /// Only rules with this text in their name, key, scope or description
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    /// Print the rules as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// What `checkdam rules show` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArguments {
    /// Name of the rule
    name: String,

    /// Print the rule as JSON, with its version and times
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

/// The shown parts of a rule. Defaults may be omitted.
#[derive(Deserialize)]
struct RuleRow {
    name: String,
    key: String,
    limits: Vec<String>,
    algorithm: Option<String>,
    #[serde(default)]
    strict: bool,
    mode: Option<String>,
    #[serde(default)]
    when: Value,
    #[serde(default)]
    priority: i32,
    version: u64,
}

/// Lists the rules.
pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.rules(arguments.search.as_deref())?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<RuleRow> = parse_response(&answer["rules"])?;
    let mut table = Table::new(&["NAME", "KEY", "LIMITS", "ALGORITHM", "MODE", "WHEN", "PRIORITY", "VERSION"]);
    for row in rows {
        let algorithm = row.algorithm.unwrap_or_else(|| "token_bucket".to_owned());
        table.row([
            row.name,
            row.key,
            row.limits.join(", "),
            if row.strict { format!("{algorithm} (strict)") } else { algorithm },
            row.mode.unwrap_or_else(|| "enforce".to_owned()),
            Some(condition_flags::to_flags(&row.when))
                .filter(|when| !when.is_empty())
                .unwrap_or_else(|| "-".to_owned()),
            row.priority.to_string(),
            row.version.to_string(),
        ]);
    }
    print(table.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Shows one rule.
pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.rule(&arguments.name).map_err(explain_unknown)?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rule = rule_flags::parse(&rule_flags::without_row(answer))?;
    print(rule_file::write(&Definitions::from(vec![rule])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
