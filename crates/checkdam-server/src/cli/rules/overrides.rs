//! `checkdam rules override` and `overrides`.

use std::process::ExitCode;

use checkdam::{LimitSpec, Override, OverrideSpec};
use checkdam_service::rulebook::StoredSpec;
use serde::Deserialize;

use super::add_set_remove::explain_unknown;
use crate::cli::backend::BackendArguments;
use crate::cli::command_error::{CommandError, ErrorKind};
use crate::cli::table::Table;
use crate::cli::{print_edit, print_response};

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct OverrideArguments {
    /// Name of the rule
    rule: String,

    /// Subjects, such as user:42 or user:bot-*
    subject: String,

    /// Limit that replaces the rule's, such as "100/s burst 500"; repeat it for several tiers
    #[arg(long = "limit", value_name = "LIMIT", group = "what")]
    limits: Vec<String>,

    /// Factor for the rule's limits, such as 10 or 0.5
    #[arg(long, value_name = "N", group = "what", allow_negative_numbers = true)]
    scale: Option<String>,

    /// Remove the limit for these subjects
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

pub(crate) fn put_or_remove(arguments: &OverrideArguments) -> anyhow::Result<ExitCode> {
    let OverrideArguments { rule, subject, .. } = arguments;
    let what = format!("override of {subject:?} for rule {rule:?}");
    if arguments.remove {
        let backend = arguments.place.backend()?;
        backend.remove_override(rule, subject).map_err(|failure| {
            failure.advise(ErrorKind::NotFound, "`checkdam rules overrides` shows those that are")
        })?;
        return print_edit(backend.as_ref(), &format!("{what}: removed"), None);
    }
    let one = Override::try_from(arguments.spec()).map_err(CommandError::from)?;
    let backend = arguments.place.backend()?;
    let row = backend.put_override(&one).map_err(explain_unknown)?;
    print_edit(backend.as_ref(), &format!("{what}: set"), arguments.json.then_some(row))
}

impl OverrideArguments {
    fn spec(&self) -> OverrideSpec {
        let mut spec = OverrideSpec::default();
        spec.rule = Some(self.rule.clone());
        spec.subject = Some(self.subject.clone());
        spec.limits =
            Some(self.limits.iter().cloned().map(LimitSpec::Text).collect()).filter(|_| !self.limits.is_empty());
        spec.scale = self.scale.clone().map(Into::into);
        spec.unlimited = Some(self.unlimited);
        spec.description = self.description.clone();
        spec
    }
}

#[derive(Deserialize)]
struct OverrideList {
    overrides: Vec<StoredSpec<OverrideSpec>>,
}

pub(crate) fn list(arguments: &OverridesArguments) -> anyhow::Result<ExitCode> {
    let answer = arguments.place.backend()?.overrides(arguments.rule.as_deref())?;
    print_response(&answer, arguments.json, |list: OverrideList| {
        let mut table = Table::new(&["RULE", "SUBJECT", "INSTEAD", "VERSION", "DESCRIPTION"]);
        for StoredSpec { spec, version, .. } in list.overrides {
            let instead = match (spec.limits, spec.scale) {
                (Some(limits), _) => limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                (None, Some(scale)) => format!("{scale} times"),
                (None, None) => "unlimited".to_owned(),
            };
            let [rule, subject, description] =
                [spec.rule, spec.subject, spec.description].map(Option::unwrap_or_default);
            table.row([rule, subject, instead, version.to_string(), description]);
        }
        Ok(table.text())
    })
}
