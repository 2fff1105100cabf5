//! `checkdam check`: asks a server whether a request may pass.

use std::process::ExitCode;

use serde::Deserialize;

use super::table::{Table, milliseconds_text, printable};
use super::{RequestArguments, SERVER_DEFAULT, http_client, print, print_json};

/// What `checkdam check` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    asked: RequestArguments,

    /// URL of the server
    #[arg(long, value_name = "URL", env = "CHECKDAM_SERVER", default_value = SERVER_DEFAULT)]
    server: String,
}

/// The parts of the response that are shown.
#[derive(Deserialize)]
struct CheckResult {
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: u64,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    detail: String,
    tiers: Vec<CheckedTier>,
}

#[derive(Deserialize)]
struct CheckedTier {
    rule: String,
    subject: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_ms: u64,
    reset_after_ms: u64,
    #[serde(default)]
    shadow: bool,
}

/// Sends the check, prints the response, and returns its exit code.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let answered = http_client::post(&arguments.server, "/v1/check", arguments.asked.body())?;
    let answer: CheckResult = http_client::parse_decision(&answered)?;
    if arguments.asked.json {
        print_json(&answered)?;
    } else {
        print(answer.text().as_bytes())?;
    }
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl CheckResult {
    fn text(&self) -> String {
        let (Some(limit), Some(remaining)) = (self.limit, self.remaining) else {
            if !self.allowed {
                return format!("denied: {}\n", printable(&self.detail));
            }
            let table = if self.tiers.is_empty() { String::new() } else { format!("\n{}", self.table()) };
            return format!("allowed: no enforced rule matches the request\n{table}");
        };
        let line = if !self.allowed {
            format!("denied: {}", printable(&self.detail))
        } else if self.delay_ms > 0 {
            format!("allowed: delay it for {}; {remaining} of {limit} left", milliseconds_text(self.delay_ms))
        } else {
            format!("allowed: {remaining} of {limit} left, full again in {}", milliseconds_text(self.reset_after_ms))
        };
        format!("{line}\n\n{}", self.table())
    }

    fn table(&self) -> String {
        let mut table = Table::new(&["RULE", "SUBJECT", "DECISION", "LIMIT", "LEFT", "RETRY IN", "FULL IN"]);
        for tier in &self.tiers {
            let decision = match (tier.allowed, tier.shadow) {
                (true, false) => "allowed",
                (false, false) => "denied",
                (true, true) => "allowed (shadow)",
                (false, true) => "would deny (shadow)",
            };
            table.row([
                tier.rule.clone(),
                tier.subject.clone(),
                decision.to_owned(),
                tier.limit.to_string(),
                tier.remaining.to_string(),
                milliseconds_text(tier.retry_after_ms),
                milliseconds_text(tier.reset_after_ms),
            ]);
        }
        table.text()
    }
}
