//! `checkdam rules check`: whether a rule file is valid, and what it says.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use checkdam::{Rule, rule_file};

use super::print;
use super::table::Table;
use crate::http::mode_name;
use crate::rulebook::{self, LoadError};

/// What `checkdam rules check` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The rule file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Judges a rule file.
pub(crate) fn check(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { file, json } = arguments;
    let text = rulebook::read(file)?;
    // Both succeed or both fail: compiling also sees what rules do to each other.
    let judged = rulebook::compile(file, &text).map(|_| rule_file::parse(&text).unwrap_or_default());
    let shown = file.display().to_string();
    match judged {
        Ok(rules) if *json => {
            let rules: Vec<_> = rules.iter().map(as_json).collect();
            print(format!("{}\n", serde_json::json!({"file": shown, "ok": true, "rules": rules})).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(rules) => {
            let (count, noun) = (rules.len(), if rules.len() == 1 { "rule" } else { "rules" });
            print(format!("{shown}: {count} {noun} ok\n\n{}", table(&rules).text()).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if let (true, LoadError::Invalid { line, column, reason, .. }) = (json, &error) {
                let place = serde_json::json!({"line": line, "column": column, "reason": reason});
                print(format!("{}\n", serde_json::json!({"file": shown, "ok": false, "error": place})).as_bytes())?;
            }
            // The form that editors understand. Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn as_json(rule: &Rule) -> serde_json::Value {
    serde_json::json!({
        "name": rule.name,
        "domain": rule.domain,
        "key": rule.key.text(),
        "limits": limits(rule),
        "algorithm": algorithm(rule),
        "mode": mode_name(rule.mode),
        "description": rule.description,
    })
}

fn table(rules: &[Rule]) -> Table {
    let mut table = Table::new(&["NAME", "KEY", "LIMITS", "ALGORITHM", "MODE"]);
    for rule in rules {
        table.row([
            rule.name.clone(),
            rule.key.text().to_owned(),
            limits(rule).join(", "),
            algorithm(rule).to_owned(),
            mode_name(rule.mode).to_owned(),
        ]);
    }
    table
}

fn limits(rule: &Rule) -> Vec<String> {
    rule.quotas.iter().map(ToString::to_string).collect()
}

fn algorithm(rule: &Rule) -> &'static str {
    rule.quotas.first().map(checkdam::Quota::algorithm).unwrap_or_default().name()
}
