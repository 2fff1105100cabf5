//! `checkdam`: a rate limiter, server and command line in one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    checkdam_server::main()
}
