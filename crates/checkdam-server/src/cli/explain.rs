//! `checkdam explain`: which rules concern a request and why, from a server or
//! from a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use checkdam::Limiter;
use checkdam::store::{MemoryOptions, MemoryStore};
use serde::Deserialize;

use super::table::{printable, time};
use super::{Asked, SERVER_DEFAULT, client, print, print_json};
use crate::config::FileArguments;
use crate::rulebook::Texts;

/// What `checkdam explain` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    asked: Asked,

    /// Explain by this rule file or folder and ask no server; nothing is charged yet then
    #[arg(long, value_name = "PATH")]
    rules: Option<PathBuf>,

    #[command(flatten)]
    files: FileArguments,

    /// The server to ask
    #[arg(long, value_name = "URL", env = "CHECKDAM_SERVER", default_value = SERVER_DEFAULT)]
    server: String,
}

/// What is explained, as far as it is shown.
#[derive(Deserialize)]
struct Explained {
    allowed: bool,
    violated: Option<String>,
    ban: Option<Ban>,
    matches: Vec<Match>,
    others: Vec<Other>,
    others_left_out: usize,
}

#[derive(Deserialize)]
struct Ban {
    subject: String,
    reason: String,
    until: Option<String>,
}

#[derive(Deserialize)]
struct Match {
    rule: String,
    description: String,
    subject: String,
    mode: String,
    algorithm: String,
    reasons: Vec<String>,
    tiers: Vec<Tier>,
}

#[derive(Deserialize)]
struct Tier {
    quota: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after_ms: u64,
}

#[derive(Deserialize)]
struct Other {
    rule: String,
    reasons: Vec<String>,
}

/// Explains, prints, and exits by whether the request would pass.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let answered = match &arguments.rules {
        Some(path) => offline(path, &arguments.asked, &arguments.files)?,
        None => client::post(&arguments.server, "/v1/explain", arguments.asked.body())?,
    };
    let explained: Explained = client::decision(&answered)?;
    if arguments.asked.json {
        print_json(&answered)?;
    } else {
        print(explained.text().as_bytes())?;
    }
    Ok(if explained.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn offline(path: &Path, asked: &Asked, files: &FileArguments) -> anyhow::Result<Vec<u8>> {
    let (rules, _) = Texts::read(path)?.load(&files.options())?;
    let request = asked.request()?;
    let limiter = Limiter::new(rules, MemoryStore::new(MemoryOptions { max_buckets: 1_000 }));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let outcome = runtime.block_on(limiter.peek(&request));
    Ok(crate::http::explain(&limiter.rules(), &request, &outcome))
}

impl Explained {
    fn text(&self) -> String {
        let others = self.others.len() + self.others_left_out;
        let would = match &self.violated {
            _ if self.allowed => "it would pass".to_owned(),
            Some(rule) => format!("{} would deny it", printable(rule)),
            None => self.ban.as_ref().map_or_else(|| "it would be denied".to_owned(), Ban::text),
        };
        let count = self.matches.len();
        let mut text = format!("{count} of {} rules concern the request: {would}\n", count + others);
        for rule in &self.matches {
            text.push_str(&rule.text());
        }
        if others > 0 {
            text.push_str("\nNot concerned:\n");
        }
        for rule in &self.others {
            let reasons: Vec<String> = rule.reasons.iter().map(|reason| printable(reason)).collect();
            text.push_str(&format!("  {}: {}\n", printable(&rule.rule), reasons.join("; ")));
        }
        if self.others_left_out > 0 {
            text.push_str(&format!("  and {} more\n", self.others_left_out));
        }
        text
    }
}

impl Ban {
    fn text(&self) -> String {
        let until = self.until.as_ref().map(|until| format!(" until {}", printable(until))).unwrap_or_default();
        let reason = if self.reason.is_empty() { String::new() } else { format!(" ({})", printable(&self.reason)) };
        format!("but {} is banned{until}{reason}", printable(&self.subject))
    }
}

impl Match {
    fn text(&self) -> String {
        let Self { mode, algorithm, .. } = self;
        let mut text = format!("\n{}: {} ({mode}, {algorithm})\n", printable(&self.rule), printable(&self.subject));
        if !self.description.is_empty() {
            text.push_str(&format!("  {}\n", printable(&self.description)));
        }
        for reason in &self.reasons {
            text.push_str(&format!("  because {}\n", printable(reason)));
        }
        for Tier { quota, allowed, limit, remaining, retry_after_ms } in &self.tiers {
            let wait = match (allowed, retry_after_ms) {
                (true, _) => String::new(),
                (false, 0) => ", denies it for ever: the cost exceeds the limit".to_owned(),
                (false, wait) => format!(", denies it for {}", time(*wait)),
            };
            text.push_str(&format!("  {quota}: {remaining} of {limit} left{wait}\n"));
        }
        text
    }
}
