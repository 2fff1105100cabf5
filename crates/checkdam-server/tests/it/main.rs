//! The binary as its users meet it: real processes, real sockets, each test on
//! a port of its own.
//!
//! - `answers`: what a decision looks like
//! - `operations`: batch, peek, refund, reset, explain
//! - `bad_input`: what is refused, and how
//! - `exactness`: many clients at once, and clients that obey
//! - `connections`: slow and idle clients
//! - `redis`: several nodes that share their limits
//! - `reload`: rules that change under load
//! - `shutdown`: leaving without cutting anybody off
//! - `settings`: flags, variables and the file
//! - `rule_files`: which files are refused
//! - `cli`: the commands
//! - `page`: the API's description and the page to try it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests fail loudly")]

mod answers;
mod bad_input;
mod cli;
mod client;
mod connections;
mod exactness;
mod operations;
mod page;
mod process;
mod redis;
mod reload;
mod rule_files;
mod settings;
mod shutdown;
