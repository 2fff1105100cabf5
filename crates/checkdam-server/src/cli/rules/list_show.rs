//! `checkdam rules list` and `show`.

use std::process::ExitCode;

use checkdam::{Definitions, Rule, RuleSpec, rule_file};

use super::add_set_remove::explain_unknown;
use super::condition_flags;
use crate::cli::backend::BackendArguments;
use crate::cli::command_error::CommandError;
use crate::cli::table::Table;
use crate::cli::{parse_response, print, print_value};
use crate::rulebook::StoredSpec;

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

/// Lists the rules.
pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.rules(arguments.search.as_deref())?;
    if arguments.json {
        print_value(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<StoredSpec<RuleSpec>> = parse_response(&answer["rules"])?;
    let mut table = Table::new(&["NAME", "KEY", "LIMITS", "ALGORITHM", "MODE", "WHEN", "PRIORITY", "VERSION"]);
    for StoredSpec { spec, version, .. } in rows {
        let algorithm = spec.algorithm.unwrap_or_else(|| "token_bucket".to_owned());
        table.row([
            spec.name.unwrap_or_default(),
            spec.key.unwrap_or_default(),
            spec.limits.iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            if spec.strict == Some(true) { format!("{algorithm} (strict)") } else { algorithm },
            spec.mode.unwrap_or_else(|| "enforce".to_owned()),
            Some(condition_flags::to_flags(&spec.when))
                .filter(|when| !when.is_empty())
                .unwrap_or_else(|| "-".to_owned()),
            spec.priority.unwrap_or_default().to_string(),
            version.to_string(),
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
    let StoredSpec::<RuleSpec> { spec, .. } = parse_response(&answer)?;
    let rule = Rule::try_from(spec).map_err(CommandError::from)?;
    print(rule_file::write(&Definitions::from(vec![rule])).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
