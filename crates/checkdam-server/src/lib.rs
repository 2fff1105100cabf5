//! `checkdam`: a rate limiter, server and command line in one binary.
//!
//! Dependencies point one way: `cli`, `http`, `grpc` and `proxy` call `app`, and
//! `app` calls the library; `net` carries their requests and knows none of them. Exit
//! codes: 0 allowed or done, 1 denied, rejected, not found or a problem with the
//! store, 2 wrong usage or a server or database that cannot start or be reached.
//!
//! This is a library only so that the fuzzers can reach what parses requests.

mod app;
mod audit;
mod cli;
mod client_identity;
mod config;
mod grpc;
mod heavy_hitters;
mod http;
mod loadgen;
mod logging;
mod metrics;
mod nodes;
mod proxy;
mod readiness;
mod replay;
mod rulebook;
mod simulate;
mod store;
mod telemetry;
mod trace;
mod traceparent;
mod warnings;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, CommandError};

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(arguments) => cli::serve::run(*arguments),
        Command::Proxy(arguments) => cli::proxy::run(*arguments),
        Command::Check(arguments) => cli::check::run(&arguments),
        Command::Explain(arguments) => cli::explain::run(&arguments),
        Command::Rules(command) => cli::rules::run(&command),
        Command::Violations(arguments) => cli::violations::run(&arguments),
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

/// Parses the body of a check as the HTTP listener does, for the fuzzers: whether
/// it is valid, or the problem that the client would see.
///
/// # Errors
/// The problem as JSON.
#[doc(hidden)]
pub fn read_check_body(body: &[u8]) -> Result<(), String> {
    http::read_check_body(body)
}
