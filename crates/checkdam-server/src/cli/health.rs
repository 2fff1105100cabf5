//! `checkdam health`: whether a server wants requests, for probes where there is
//! no curl.

use std::process::ExitCode;

use axum::http::{Method, StatusCode};

use super::client::Call;
use super::{SERVER_DEFAULT, print, say};

/// What `checkdam health` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The server to ask, through any of its HTTP doors
    #[arg(value_name = "URL", env = "CHECKDAM_SERVER", default_value = SERVER_DEFAULT)]
    server: String,
}

/// Asks, and exits by the answer.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let answer = Call::new(Method::GET, "/readyz").send(&arguments.server)?;
    match answer.status {
        StatusCode::OK => {
            print(b"ready\n")?;
            Ok(ExitCode::SUCCESS)
        }
        status => {
            say(&format!("the server at {} is not ready: it answers with {}", arguments.server, status.as_u16()));
            Ok(ExitCode::FAILURE)
        }
    }
}
