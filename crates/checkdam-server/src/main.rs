//! `checkdam`: one binary that limits rates, server and command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    checkdam_server::main()
}
