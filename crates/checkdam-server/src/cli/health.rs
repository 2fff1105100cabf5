//! `checkdam health`: whether a server wants requests, for probes where there is
//! no curl.

use std::process::ExitCode;

use axum::http::{Method, StatusCode};

use serde_json::Value;

use super::client::Call;
use super::table::printable;
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
            let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let parts = [&said["status"], &said["detail"]].into_iter().filter_map(Value::as_str);
            let why = parts.fold(status.as_u16().to_string(), |why, part| format!("{why}, {}", printable(part)));
            say(&format!("the server at {} is not ready: it answers with {why}", arguments.server));
            Ok(ExitCode::FAILURE)
        }
    }
}
