//! `checkdam config`: lists the settings, and their effective values.

use std::path::PathBuf;
use std::process::ExitCode;

use checkdam_service::config::{Config, EffectiveSetting, ProxyOptions, ProxySettings, Settings, reference};
use checkdam_service::rulebook::RuleFile;
use clap::{ArgMatches, CommandFactory, Subcommand};
use serde_json::json;

use super::table::Table;
use super::{Cli, CommandError, print, print_notice, print_value};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a checkdam.toml with every setting and its default, all commented out
    #[command(after_help = "Example: checkdam config reference > checkdam.toml")]
    Reference,
    /// Validate the settings and show the active values and their sources
    #[command(
        after_help = "Examples:\n  checkdam config check checkdam.toml\n  CHECKDAM_STORE=redis://cache:6379 checkdam \
                      config check --json\n\nTakes the flags and variables of serve and proxy. Secrets are not shown. \
                      Exits with 0 if the settings are valid and with 1 if they are not. A rule file is validated \
                      too; store, database and collector are not contacted: see checkdam doctor."
    )]
    Check(Box<ConfigCheckArguments>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigCheckArguments {
    /// Settings file [default: checkdam.toml, if it exists]
    #[arg(value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    /// Settings file; the same as the argument FILE
    #[arg(long = "config", value_name = "FILE", conflicts_with = "config", hide = true)]
    config_option: Option<PathBuf>,

    /// Print the settings as JSON
    #[arg(long)]
    json: bool,

    /// Validate the settings of checkdam proxy too
    #[arg(long)]
    proxy: bool,

    #[command(flatten)]
    proxy_settings: ProxySettings,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Reference => print(reference().as_bytes())?,
        ConfigCommand::Check(arguments) => check(*arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: ConfigCheckArguments) -> anyhow::Result<()> {
    let file = arguments.config_option.as_deref().or(arguments.config.as_deref());
    let refused = |error: checkdam_service::config::ConfigError| CommandError::invalid(error.to_string());
    let config = Config::load(arguments.settings, file).map_err(refused)?;
    config.validate().map_err(refused)?;
    if let Some(path) = &config.rules {
        let loaded = RuleFile::open(path, config.files).and_then(|file| file.load().map(drop));
        loaded.map_err(|error| CommandError::invalid(error.to_string()))?;
    }
    if arguments.proxy {
        ProxyOptions::load(arguments.proxy_settings, file).map_err(refused)?;
    }
    // Only the parser knows the source of a value, so the arguments are parsed again.
    let settings = EffectiveSetting::all(&config, &own_matches(), arguments.proxy);
    for name in checkdam_service::config::unknown_variables() {
        print_notice(&format!("the variable {name} has no effect: see checkdam config reference"));
    }
    if arguments.json {
        return print_value(&json!({"valid": true, "settings": settings}));
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for EffectiveSetting { name, value, from } in settings {
        table.row([name, value, from]);
    }
    print(table.text().as_bytes())?;
    print_notice("the settings are valid");
    Ok(())
}

/// What was given to this command.
fn own_matches() -> ArgMatches {
    let mut given = Cli::command().get_matches();
    while let Some((_, inner)) = given.remove_subcommand() {
        given = inner;
    }
    given
}
