//! `checkdam explain`: shows which rules apply to a request and why, from a server or
//! from a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::http::header::AUTHORIZATION;
use axum::http::{Method, StatusCode};
use checkdam::Limiter;
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam_client::Ban;
use checkdam_service::config::RuleFileArguments;
use checkdam_service::rulebook::FileTexts;
use serde::Deserialize;

use super::api_token::ApiTokenArguments;
use super::backend::{SERVER_DEFAULT as ADMIN_DEFAULT, token};
use super::http_client::{ApiRequest, ClientTlsArguments};
use super::table::{milliseconds_text, printable};
use super::{RequestArguments, SERVER_DEFAULT, http_client, print, print_json};

const SERVER_VARIABLE: &str = "CHECKDAM_SERVER";

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    asked: RequestArguments,

    /// Use this rule file or folder instead of a server, and assume that all buckets are full
    #[arg(long, value_name = "PATH")]
    rules: Option<PathBuf>,

    #[command(flatten)]
    files: RuleFileArguments,

    /// URL of the server's HTTP API or admin API (checkdam proxy has only an admin API) [env: CHECKDAM_SERVER=]
    /// [default: http://127.0.0.1:8080, or http://127.0.0.1:8082 if no server answers there]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// File containing the admin token, for an admin API that needs one [env: CHECKDAM_ADMIN_TOKEN_FILE=]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    token: ApiTokenArguments,

    #[command(flatten)]
    tls: ClientTlsArguments,
}

#[derive(Deserialize)]
struct ExplainResult {
    allowed: bool,
    violated: Option<String>,
    ban: Option<Ban>,
    matches: Vec<MatchedRule>,
    others: Vec<UnmatchedRule>,
    others_left_out: usize,
    #[serde(default)]
    hints: Vec<String>,
}

#[derive(Deserialize)]
struct MatchedRule {
    rule: String,
    description: String,
    subject: String,
    mode: String,
    algorithm: String,
    reasons: Vec<String>,
    tiers: Vec<ExplainedTier>,
}

#[derive(Deserialize)]
struct ExplainedTier {
    quota: String,
    #[serde(default)]
    algorithm: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct UnmatchedRule {
    rule: String,
    reasons: Vec<String>,
}

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    let answered = match &arguments.rules {
        Some(path) => from_file(path, &arguments.asked, &arguments.files)?,
        None => from_server(arguments)?,
    };
    let explained: ExplainResult = http_client::parse_decision(&answered)?;
    if arguments.asked.json {
        print_json(&answered)?;
    } else {
        print(explained.text().as_bytes())?;
    }
    Ok(if explained.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks the server that is given; else one that decides, and if there is none the
/// admin API, which a proxy has too.
fn from_server(arguments: &ExplainArguments) -> anyhow::Result<Vec<u8>> {
    let ask = |server: &str| {
        let answer = ApiRequest::new(Method::POST, "/v1/explain").body("application/json", arguments.asked.body());
        let answer = arguments.token.sign(answer)?.send(server, &arguments.tls)?;
        match answer.status {
            StatusCode::NOT_FOUND => from_admin_api(server, arguments),
            _ => anyhow::Ok(answer.body),
        }
    };
    let given = arguments.server.clone().or_else(|| std::env::var(SERVER_VARIABLE).ok());
    match given.filter(|server| !server.is_empty()) {
        Some(server) => ask(&server),
        None => ask(SERVER_DEFAULT).or_else(|error| from_admin_api(ADMIN_DEFAULT, arguments).map_err(|_| error)),
    }
}

fn from_admin_api(server: &str, arguments: &ExplainArguments) -> anyhow::Result<Vec<u8>> {
    let mut call = ApiRequest::new(Method::POST, "/admin/v1/inspect").body("application/json", arguments.asked.body());
    if let Some(token) = token(None, arguments.token_file.as_deref())? {
        call = call.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    Ok(call.send(server, &arguments.tls)?.body)
}

fn from_file(path: &Path, asked: &RequestArguments, files: &RuleFileArguments) -> anyhow::Result<Vec<u8>> {
    let (rules, _) = FileTexts::read(path)?.load(&files.options())?;
    let request = asked.request()?;
    let limiter = Limiter::new(rules, MemoryStore::new(MemoryOptions { max_buckets: 1_000 }));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let outcome = runtime.block_on(limiter.peek(&request));
    Ok(checkdam_service::http::explain(&limiter.rules(), &request, &outcome, &[]))
}

impl ExplainResult {
    fn text(&self) -> String {
        let others = self.others.len() + self.others_left_out;
        let would = match &self.violated {
            _ if self.allowed => "it would be allowed".to_owned(),
            Some(rule) => format!("{} would deny it", printable(rule)),
            None => self.ban.as_ref().map_or_else(|| "it would be denied".to_owned(), ban_text),
        };
        let count = self.matches.len();
        let mut text = format!("{count} of {} rules match the request: {would}\n", count + others);
        for rule in &self.matches {
            text.push_str(&rule.text());
        }
        if others > 0 {
            text.push_str("\nNot matching:\n");
        }
        for rule in &self.others {
            let reasons: Vec<String> = rule.reasons.iter().map(|reason| printable(reason)).collect();
            text.push_str(&format!("  {}: {}\n", printable(&rule.rule), reasons.join("; ")));
        }
        if self.others_left_out > 0 {
            text.push_str(&format!("  and {} more\n", self.others_left_out));
        }
        for hint in &self.hints {
            text.push_str(&format!("\nNote: {}\n", printable(hint)));
        }
        text
    }
}

fn ban_text(ban: &Ban) -> String {
    let until = ban.until.as_ref().map(|until| format!(" until {}", printable(until))).unwrap_or_default();
    let reason = if ban.reason.is_empty() { String::new() } else { format!(" ({})", printable(&ban.reason)) };
    format!("but {} is banned{until}{reason}", printable(&ban.subject))
}

impl MatchedRule {
    fn text(&self) -> String {
        let Self { mode, algorithm, .. } = self;
        let mut text = format!("\n{}: {} ({mode}, {algorithm})\n", printable(&self.rule), printable(&self.subject));
        if !self.description.is_empty() {
            text.push_str(&format!("  {}\n", printable(&self.description)));
        }
        for reason in &self.reasons {
            text.push_str(&format!("  because {}\n", printable(reason)));
        }
        for tier in &self.tiers {
            let ExplainedTier { quota, limit, remaining, .. } = tier;
            let wait = match (tier.allowed, tier.retry_after_ms) {
                (true, _) => String::new(),
                (false, None) => ", always denies it: the cost exceeds the limit".to_owned(),
                (false, Some(wait_ms)) => format!(", denies it for {}", milliseconds_text(wait_ms)),
            };
            let is_shown = tier.algorithm == *algorithm || quota.ends_with(&tier.algorithm);
            let counted = if is_shown { String::new() } else { format!(" ({})", tier.algorithm) };
            text.push_str(&format!("  {quota}{counted}: {remaining} of {limit} left{wait}\n"));
        }
        text
    }
}
