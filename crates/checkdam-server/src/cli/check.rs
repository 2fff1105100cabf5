//! `checkdam check`: checks a request against a server's rules.

use std::process::ExitCode;

use checkdam_client::Answer;

use super::api_token::ApiTokenArguments;
use super::http_client::ClientTlsArguments;
use super::table::{Table, milliseconds_text, printable};
use super::{RequestArguments, SERVER_DEFAULT, http_client, print, print_json};

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
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

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let CheckArguments { asked, server, token, tls } = arguments;
    let answered = http_client::post(server, (token, tls), "/v1/check", asked.body())?;
    let answer: Answer = http_client::parse_decision(&answered)?;
    if arguments.asked.json {
        print_json(&answered)?;
    } else {
        print(text(&answer).as_bytes())?;
    }
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(answer: &Answer) -> String {
    let denied = || format!("denied: {}", printable(answer.detail.as_deref().unwrap_or_default()));
    let (Some(limit), Some(remaining)) = (answer.limit, answer.remaining) else {
        if !answer.allowed {
            return format!("{}\n", denied());
        }
        let table = if answer.tiers.is_empty() { String::new() } else { format!("\n{}", table(answer)) };
        return format!("allowed: no enforced rule matches the request\n{table}");
    };
    let line = if !answer.allowed {
        denied()
    } else if answer.delay_ms > 0 {
        format!("allowed: delay it for {}; {remaining} of {limit} left", milliseconds_text(answer.delay_ms))
    } else {
        format!("allowed: {remaining} of {limit} left, full again in {}", milliseconds_text(answer.reset_after_ms))
    };
    format!("{line}\n\n{}", table(answer))
}

pub(super) fn table(answer: &Answer) -> String {
    let mut table = Table::new(&["RULE", "SUBJECT", "LIMIT", "DECISION", "LEFT", "RETRY IN", "FULL IN"]);
    for tier in &answer.tiers {
        let decision = match (tier.allowed, tier.shadow) {
            (true, false) => "allowed",
            (false, false) => "denied",
            (true, true) => "allowed (shadow)",
            (false, true) => "would deny (shadow)",
        };
        table.row([
            tier.rule.clone(),
            tier.subject.clone(),
            tier.limit_name.clone(),
            decision.to_owned(),
            match tier.debt {
                0 => format!("{} of {}", tier.remaining, tier.limit),
                debt => format!("{} of {}, {debt} in debt", tier.remaining, tier.limit),
            },
            tier.retry_after_ms.map_or_else(|| "never".to_owned(), milliseconds_text),
            milliseconds_text(tier.reset_after_ms),
        ]);
    }
    table.text()
}
