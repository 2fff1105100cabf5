//! `checkdam`: one binary that limits rates, server and command line.
//!
//! Dependencies point one way: `cli` and `http` call `app`, and `app` calls the
//! library. Exit codes: 0 allowed or done, 1 denied or invalid rules, 2 wrong
//! usage or a server that cannot start or be reached.

mod app;
mod cli;
mod config;
mod http;
mod logging;
mod rulebook;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, RulesCommand};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(arguments) => cli::serve::run(*arguments),
        Command::Check(arguments) => cli::check::run(&arguments),
        Command::Explain(arguments) => cli::explain::run(&arguments),
        Command::Rules(RulesCommand::Check(arguments)) => cli::rules::check(&arguments),
        Command::Completions { shell } => cli::completions(shell),
    };
    done.unwrap_or_else(|error| {
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(std::io::stderr(), "checkdam: {error:#}");
        ExitCode::from(2)
    })
}
