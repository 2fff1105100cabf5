//! `checkdam record`: charges a request for what it used.

use std::process::ExitCode;

use checkdam_client::Answer;

use super::api_token::ApiTokenArguments;
use super::http_client::ClientTlsArguments;
use super::table::milliseconds_text;
use super::{RequestArguments, SERVER_DEFAULT, check, http_client, print, print_json};

#[derive(Debug, clap::Args)]
pub(crate) struct RecordArguments {
    #[command(flatten)]
    asked: RequestArguments,

    /// URL of the server
    #[arg(long, value_name = "URL", env = "CHECKDAM_SERVER", default_value = SERVER_DEFAULT)]
    server: String,

    #[command(flatten)]
    token: ApiTokenArguments,

    #[command(flatten)]
    tls: ClientTlsArguments,
}

pub(crate) fn run(arguments: &RecordArguments) -> anyhow::Result<ExitCode> {
    let RecordArguments { asked, server, token, tls } = arguments;
    let answered = http_client::post(server, (token, tls), "/v1/record", asked.body())?;
    let answer: Answer = http_client::parse_decision(&answered)?;
    if asked.json {
        print_json(&answered)?;
    } else {
        print(text(&answer, asked.cost).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(answer: &Answer, cost: u64) -> String {
    if answer.tiers.is_empty() {
        return "no rule matches the request: nothing was charged\n".to_owned();
    }
    let state = match (answer.allowed, answer.limit, answer.remaining, answer.retry_after_ms) {
        (true, Some(limit), Some(remaining), _) => format!("{remaining} of {limit} left"),
        (true, ..) => "no enforced rule matches the request".to_owned(),
        (false, _, _, Some(wait_ms)) => format!("requests are denied for {}", milliseconds_text(wait_ms)),
        (false, ..) => "requests are denied".to_owned(),
    };
    let cut_off = match answer.cut_off {
        0 => String::new(),
        cut_off => format!("; {cut_off} not charged because of max_debt"),
    };
    format!("recorded {cost}: {state}{cut_off}\n\n{}", check::table(answer))
}
