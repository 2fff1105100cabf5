//! `checkdam`: a rate limiter, server and command line in one binary.
//!
//! Exit codes: 0 allowed or done, 1 denied, invalid, not found, not ready, or a problem was
//! found, 2 wrong usage, or a server or database that cannot start or be reached.

mod cli;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, CommandError};

fn main() -> ExitCode {
    // For TLS to Redis. Nothing has installed another before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match Cli::parse().command {
        Command::Serve(arguments) => cli::serve::run(*arguments),
        Command::Proxy(arguments) => cli::proxy::run(*arguments),
        Command::Check(arguments) => cli::check::run(&arguments),
        Command::Record(arguments) => cli::record::run(&arguments),
        Command::Explain(arguments) => cli::explain::run(&arguments),
        Command::Rules(command) => cli::rules::run(&command),
        Command::Violations(arguments) => cli::violations::run(&arguments),
        Command::Changes(arguments) => cli::changes::run(&arguments),
        Command::Top(arguments) => cli::top::run(&arguments),
        Command::Ban(arguments) => cli::bans::ban(&arguments),
        Command::Unban(arguments) => cli::bans::unban(&arguments),
        Command::Bans(arguments) => cli::bans::list(&arguments),
        Command::Simulate(arguments) => cli::simulate::run(&arguments),
        Command::Bench(arguments) => cli::bench::run(&arguments),
        Command::Doctor(arguments) => cli::doctor::run(arguments),
        Command::Health(arguments) => cli::health::run(&arguments),
        Command::Config(command) => cli::config::run(command),
        Command::Man(arguments) => cli::man::run(&arguments),
        Command::Completions { shell } => cli::completions(shell),
    };
    done.unwrap_or_else(|error| {
        // Nothing can be reported if standard error is closed.
        let _ = writeln!(std::io::stderr(), "checkdam: {}", cli::printable_lines(&format!("{error:#}")));
        ExitCode::from(error.downcast_ref::<CommandError>().map_or(2, CommandError::exit_code))
    })
}
