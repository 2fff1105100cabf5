//! `checkdam rules add`, `set` and `remove`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use checkdam::{Rule, rule_file};
use serde_json::Value;

use super::import_export::{TextInput, error_location};
use super::rule_flags::RuleFlags;
use crate::cli::backend::{Backend, BackendArguments};
use crate::cli::command_error::{CommandError, ErrorKind};
use crate::cli::{print_edit, print_notice};

/// Commands that are shown to remove the overrides of a rule.
const COMMANDS_SHOWN: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct AddArguments {
    /// Name of the rule
    #[arg(required_unless_present = "file", requires_all = ["key", "limits"])]
    name: Option<String>,

    /// Read the rule from this file, YAML or JSON, or from standard input (-)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "RuleFlags"])]
    file: Option<PathBuf>,

    #[command(flatten)]
    fields: RuleFlags,

    /// Print the rule as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArguments {
    /// Name of the rule
    name: String,

    #[command(flatten)]
    fields: RuleFlags,

    /// Remove all conditions, so that the rule matches every request that has the attributes of its key
    #[arg(long, conflicts_with = "when")]
    no_when: bool,

    /// Print the rule as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: BackendArguments,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArguments {
    /// Name of the rule
    name: String,

    #[command(flatten)]
    place: BackendArguments,
}

pub(crate) fn add(arguments: &AddArguments) -> anyhow::Result<ExitCode> {
    let rule = match &arguments.file {
        Some(path) => from_file(path)?,
        None => arguments.fields.rule(arguments.name.as_deref().unwrap_or_default())?,
    };
    let backend = arguments.place.backend()?;
    let added = backend.add_rule(&rule).map_err(|failure| {
        failure.advise(ErrorKind::Exists, &format!("change it with `checkdam rules set {}`", rule.name))
    })?;
    let what = format!("rule {:?}: added, version {}", rule.name, added["version"]);
    print_edit(backend.as_ref(), &what, arguments.json.then_some(added))
}

fn from_file(path: &Path) -> anyhow::Result<Rule> {
    let TextInput { shown, text } = TextInput::read(path, rule_file::FILE_MAX)?;
    rule_file::parse_rule(&text).map_err(|error| {
        let reason = if rule_file::parse_definitions(&text).is_ok() {
            format!("{shown}: it is a whole rule file: use `checkdam rules import`")
        } else {
            error_location(&shown, &error)
        };
        CommandError::invalid(reason).into()
    })
}

pub(crate) fn set(arguments: &SetArguments) -> anyhow::Result<ExitCode> {
    let SetArguments { name, fields, no_when, place, json } = arguments;
    if fields.is_empty() && !no_when {
        anyhow::bail!("nothing to change: give for example --limit or --mode; see checkdam rules set --help");
    }
    let backend = place.backend()?;
    let mut changed = read_modify_write(backend.as_ref(), arguments);
    if matches!(&changed, Err(failure) if failure.kind == ErrorKind::Changed) {
        print_notice("the rule was changed concurrently: retrying with its new version");
        changed = read_modify_write(backend.as_ref(), arguments);
    }
    let changed =
        changed.map_err(|failure| failure.advise(ErrorKind::Changed, "see what it says now, and try again"))?;
    let what = format!("rule {name:?}: changed, version {}", changed["version"]);
    print_edit(backend.as_ref(), &what, json.then_some(changed))
}

/// Reads the rule, changes it, and writes it unless it was changed meanwhile.
fn read_modify_write(backend: &dyn Backend, arguments: &SetArguments) -> Result<Value, CommandError> {
    let mut rule = backend.rule(&arguments.name).map_err(explain_unknown)?;
    let version = rule["version"].as_u64().unwrap_or_default();
    if arguments.no_when {
        rule["when"] = Value::Null;
    }
    backend.set_rule(&arguments.fields.apply_to(rule)?, version).map_err(explain_unknown)
}

pub(crate) fn remove(arguments: &RemoveArguments) -> anyhow::Result<ExitCode> {
    let RemoveArguments { name, place } = arguments;
    let backend = place.backend()?;
    backend.remove_rule(name).map_err(|failure| match failure.kind {
        ErrorKind::Invalid => explain_blocked(backend.as_ref(), name, &failure),
        _ => explain_unknown(failure),
    })?;
    print_edit(backend.as_ref(), &format!("rule {name:?}: removed"), None)
}

/// What would name a rule that is no longer there, and how to remove that.
fn explain_blocked(backend: &dyn Backend, name: &str, failure: &CommandError) -> CommandError {
    let found = backend.overrides(Some(name)).unwrap_or_default();
    let subjects = found["overrides"].as_array().into_iter().flatten().filter_map(|one| one["subject"].as_str());
    let commands: Vec<String> = subjects
        .map(|subject| format!("  checkdam rules override {} {} --remove", shell_quoted(name), shell_quoted(subject)))
        .collect();
    let (shown, more) = (commands.len().min(COMMANDS_SHOWN), commands.len().saturating_sub(COMMANDS_SHOWN));
    if shown == 0 {
        return CommandError::invalid(format!("the rule {name:?} cannot be removed: {failure}"));
    }
    let rest = match more {
        0 => String::new(),
        more => format!("\n  and {more} more: see `checkdam rules overrides --rule {}`", shell_quoted(name)),
    };
    let count = commands.len();
    let reason = format!("the rule {name:?} cannot be removed: {count} of its overrides remain. Remove them first:\n");
    CommandError::invalid(format!("{reason}{}{rest}", commands[..shown].join("\n")))
}

/// Text as a shell takes it for one word.
fn shell_quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@%+=,".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// What to do about a rule that is not there.
pub(super) fn explain_unknown(failure: CommandError) -> CommandError {
    failure.advise(ErrorKind::NotFound, "`checkdam rules list` shows those that are")
}
