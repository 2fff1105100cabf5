//! `checkdam rules check`: validates a rule file and summarizes it.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use checkdam::{BanSpec, Definitions, Mode, OverrideSpec, Rule, RuleSet};
use checkdam_service::config::RuleFileArguments;
use checkdam_service::http::mode_name;
use checkdam_service::rulebook::{FileTexts, LoadError, lease_warnings};
use serde_json::json;

use crate::cli::table::Table;
use crate::cli::{print, print_notice, print_value};

#[derive(Debug, clap::Args)]
pub(crate) struct CheckFileArguments {
    /// Rule file, checkdam's or envoyproxy/ratelimit's format, or a folder of rule files
    #[arg(value_name = "PATH")]
    file: PathBuf,

    #[command(flatten)]
    files: RuleFileArguments,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn check(arguments: &CheckFileArguments) -> anyhow::Result<ExitCode> {
    let CheckFileArguments { file, files, json } = arguments;
    let loaded = FileTexts::read(file)?.load(&files.options());
    let shown = file.display().to_string();
    match loaded {
        Ok((rules, definitions)) => {
            for remark in definitions.trees.iter().flat_map(|tree| &tree.warnings) {
                print_notice(&format!("{shown}: {remark}"));
            }
            for (rule, remark) in lease_warnings(&rules) {
                print_notice(&format!("{shown}: rule {rule:?}: {remark}"));
            }
            let shown_rules = listed_rules(&rules, &definitions);
            if *json {
                print_value(&as_json(&shown, &shown_rules, &definitions))?;
            } else {
                let counts = counts(&shown_rules, &definitions);
                print(format!("{shown}: {counts} ok\n\n{}", table(&shown_rules).text()).as_bytes())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            if let (true, LoadError::Invalid { line, column, reason, .. }) = (json, &error) {
                let place = json!({"line": line, "column": column, "reason": reason});
                print_value(&json!({"file": shown, "ok": false, "error": place}))?;
            }
            // The format that editors parse. Nothing can be reported if this fails.
            let _ = writeln!(std::io::stderr(), "{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The rules as they are listed, those that are off among them, and the limits
/// of descriptors.
fn listed_rules<'a>(rules: &'a RuleSet, definitions: &'a Definitions) -> Vec<&'a Rule> {
    let off = definitions.rules.iter().filter(|rule| rule.mode == Mode::Off).count();
    let of_trees = rules.rules().skip(definitions.rules.len() - off);
    definitions.rules.iter().chain(of_trees).collect()
}

fn counts(rules: &[&Rule], definitions: &Definitions) -> String {
    let count = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let mut counts = vec![count(rules.len(), "rule")];
    for (length, noun) in [(definitions.overrides.len(), "override"), (definitions.bans.len(), "ban")] {
        if length > 0 {
            counts.push(count(length, noun));
        }
    }
    counts.join(", ")
}

fn as_json(shown: &str, rules: &[&Rule], definitions: &Definitions) -> serde_json::Value {
    let rule = |rule: &&Rule| {
        json!({
            "name": rule.name,
            "domain": rule.domain,
            "key": rule.key.text(),
            "limits": limits(rule),
            "algorithm": rule.algorithm.name(),
            "mode": mode_name(rule.mode),
            "description": rule.description,
        })
    };
    json!({
        "file": shown,
        "ok": true,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        "overrides": definitions.overrides.iter().map(OverrideSpec::from).collect::<Vec<_>>(),
        "bans": definitions.bans.iter().map(BanSpec::from).collect::<Vec<_>>(),
    })
}

fn table(rules: &[&Rule]) -> Table {
    let mut table = Table::new(&["NAME", "KEY", "LIMITS", "ALGORITHM", "MODE"]);
    for rule in rules {
        table.row([
            rule.name.clone(),
            rule.key.text().to_owned(),
            limits(rule).join(", "),
            rule.algorithm.name().to_owned(),
            mode_name(rule.mode).to_owned(),
        ]);
    }
    table
}

fn limits(rule: &Rule) -> Vec<String> {
    rule.quotas.iter().map(ToString::to_string).collect()
}
