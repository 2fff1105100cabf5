//! `checkdam rules`: shows and edits rules.

mod add_set_remove;
mod check;
mod effect;
mod import_export;
mod list_show;
mod overrides;
mod rule_flags;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// List rules
    #[command(after_help = "Examples:\n  checkdam rules list\n  checkdam rules list --search user --json\n  \
                            checkdam rules list --database sqlite://checkdam-data/checkdam.db    (needs no server)")]
    List(list_show::ListArguments),
    /// Show one rule as YAML, in the format that `rules import` reads
    #[command(after_help = "Example: checkdam rules show user-free > rule.yaml\n         \
                            $EDITOR rule.yaml && checkdam rules import rule.yaml")]
    Show(list_show::ShowArguments),
    /// Add a rule
    #[command(after_help = "Examples:\n  \
                            checkdam rules add user-free --key 'user:{user}' --when plan=free --limit '10/s burst 50' --limit 5000/h\n  \
                            checkdam rules add by-ip --key 'ip:{ip}' --when ip!=10.0.0.0/8 --limit 100/m --mode shadow\n  \
                            checkdam rules add --file rule.yaml")]
    Add(Box<add_set_remove::AddArguments>),
    /// Change the given fields of a rule
    #[command(after_help = "Examples:\n  checkdam rules set user-free --limit '20/s burst 100' --limit 5000/h\n  \
                            checkdam rules set by-ip --mode enforce\n  checkdam rules set user-free --no-when")]
    Set(Box<add_set_remove::SetArguments>),
    /// Remove a rule
    Remove(add_set_remove::RemoveArguments),
    /// Import a rule file: all of it or nothing
    #[command(after_help = "Examples:\n  checkdam rules import rules.yaml --dry-run\n  \
                            checkdam rules import rules.yaml --replace\n  \
                            checkdam rules export --database sqlite://old.db | checkdam rules import -\n\n\
                            Existing rules (by name), overrides (by rule and subject) and bans (by subject) are \
                            replaced; new ones are added. Without --replace nothing is removed. The maximum \
                            size is 64 MiB.")]
    Import(import_export::ImportArguments),
    /// Export all rules, overrides and bans as a rule file
    #[command(after_help = "Example: checkdam rules export --output rules.yaml")]
    Export(import_export::ExportArguments),
    /// Validate a rule file and show its rules
    #[command(after_help = "Exits with 0 if the file is valid and with 1 if it is not.")]
    Check(check::CheckFileArguments),
    /// Override the limits of a rule for some subjects
    #[command(after_help = "Examples:\n  checkdam rules override user-free user:42 --scale 10\n  \
                            checkdam rules override user-free 'user:bot-*' --limit 1/s\n  \
                            checkdam rules override user-free user:42 --remove")]
    Override(overrides::OverrideArguments),
    /// List overrides
    Overrides(overrides::OverridesArguments),
    /// Show what a rule in shadow mode would have denied
    #[command(after_help = "Example: checkdam rules effect by-ip\n\n\
                            Each server counts separately, since the last change of the rule.")]
    Effect(effect::EffectArguments),
}

pub(crate) fn run(command: &RulesCommand) -> anyhow::Result<ExitCode> {
    match command {
        RulesCommand::List(arguments) => list_show::list(arguments),
        RulesCommand::Show(arguments) => list_show::show(arguments),
        RulesCommand::Add(arguments) => add_set_remove::add(arguments),
        RulesCommand::Set(arguments) => add_set_remove::set(arguments),
        RulesCommand::Remove(arguments) => add_set_remove::remove(arguments),
        RulesCommand::Import(arguments) => import_export::import(arguments),
        RulesCommand::Export(arguments) => import_export::export(arguments),
        RulesCommand::Check(arguments) => check::check(arguments),
        RulesCommand::Override(arguments) => overrides::put_or_remove(arguments),
        RulesCommand::Overrides(arguments) => overrides::list(arguments),
        RulesCommand::Effect(arguments) => effect::run(arguments),
    }
}
