//! `checkdam health`: queries a server's readiness, for probes in images without
//! curl.

use std::process::ExitCode;

use axum::http::{Method, StatusCode};

use serde_json::Value;

use super::http_client::{ApiRequest, ClientTlsArguments};
use super::table::printable;
use super::{SERVER_DEFAULT, print, print_notice};

#[derive(Debug, clap::Args)]
pub(crate) struct HealthArguments {
    /// URL of any HTTP listener of the server [default: that of CHECKDAM_HTTP_LISTEN, else http://127.0.0.1:8080]
    #[arg(value_name = "URL", env = "CHECKDAM_SERVER")]
    server: Option<String>,

    #[command(flatten)]
    tls: ClientTlsArguments,
}

pub(crate) fn run(arguments: &HealthArguments) -> anyhow::Result<ExitCode> {
    let server = arguments.server.clone().or_else(checkdam_service::config::local_server);
    let server = server.as_deref().unwrap_or(SERVER_DEFAULT);
    let answer = ApiRequest::new(Method::GET, "/readyz").send(server, &arguments.tls)?;
    match answer.status {
        StatusCode::OK => {
            print(b"ready\n")?;
            Ok(ExitCode::SUCCESS)
        }
        status => {
            let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let parts = [&said["status"], &said["detail"]].into_iter().filter_map(Value::as_str);
            let why = parts.fold(status.as_u16().to_string(), |why, part| format!("{why}, {}", printable(part)));
            print_notice(&format!("the server at {server} is not ready: it answers with {why}"));
            Ok(ExitCode::FAILURE)
        }
    }
}
