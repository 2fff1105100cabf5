//! `checkdam rules list` and `show`.

use std::process::ExitCode;

use checkdam::{Definitions, Rule, RuleSpec, rule_file};
use checkdam_service::rulebook::StoredSpec;
use serde::Deserialize;

use super::add_set_remove::explain_unknown;
use super::rule_flags::conditions_to_flags;
use crate::cli::backend::BackendArguments;
use crate::cli::command_error::CommandError;
use crate::cli::print_response;
use crate::cli::table::Table;

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

#[derive(Deserialize)]
struct RuleList {
    rules: Vec<StoredSpec<RuleSpec>>,
}

pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.rules(arguments.search.as_deref())?;
    print_response(&answer, arguments.json, |list: RuleList| {
        let mut table = Table::new(&["NAME", "KEY", "LIMITS", "ALGORITHM", "MODE", "WHEN", "PRIORITY", "VERSION"]);
        for StoredSpec { spec, version, .. } in list.rules {
            let algorithm = spec.algorithm.unwrap_or_else(|| "token_bucket".to_owned());
            let when = conditions_to_flags(&spec.when);
            table.row([
                spec.name.unwrap_or_default(),
                spec.key.unwrap_or_default(),
                spec.limits.iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                if spec.strict == Some(true) { format!("{algorithm} (strict)") } else { algorithm },
                spec.mode.unwrap_or_else(|| "enforce".to_owned()),
                if when.is_empty() { "-".to_owned() } else { when },
                spec.priority.unwrap_or_default().to_string(),
                version.to_string(),
            ]);
        }
        Ok(table.text())
    })
}

pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.rule(&arguments.name).map_err(explain_unknown)?;
    print_response(&answer, arguments.json, |stored: StoredSpec<RuleSpec>| {
        let rule = Rule::try_from(stored.spec).map_err(CommandError::from)?;
        Ok(rule_file::write(&Definitions::from(vec![rule])))
    })
}
