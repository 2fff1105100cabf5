//! Backends of commands that edit rules: a running server, or a database.
//!
//! Commands are written once, against [`Backend`]. Both backends take and return the
//! JSON of the admin API.

mod database;
mod server;

use std::path::{Path, PathBuf};

use anyhow::Context;
use checkdam::{Ban, Definitions, Override, Rule};
use checkdam_service::rulebook::{ChangeFilter, DatabaseUrl, ViolationFilter};
use serde_json::Value;

use self::database::DatabaseBackend;
pub(super) use self::server::{ServerBackend, rule_path};
use super::command_error::CommandError;
use super::http_client::ClientTlsArguments;

/// The admin API of a server on this machine.
pub(super) const SERVER_DEFAULT: &str = "http://127.0.0.1:8082";
const SERVER_VARIABLE: &str = "CHECKDAM_ADMIN_SERVER";
const TOKEN_VARIABLE: &str = "CHECKDAM_ADMIN_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "CHECKDAM_ADMIN_TOKEN_FILE";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server or database")]
pub(crate) struct ServerArguments {
    /// URL of the server's admin API [env: CHECKDAM_ADMIN_SERVER=] [default: http://127.0.0.1:8082]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// Admin token; prefer the file or the environment variable, because process listings show flags [env:
    /// CHECKDAM_ADMIN_TOKEN=]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// File containing the admin token [env: CHECKDAM_ADMIN_TOKEN_FILE=]
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: ClientTlsArguments,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server or database")]
pub(crate) struct BackendArguments {
    #[command(flatten)]
    server: ServerArguments,

    /// Use this database directly, without a server: sqlite://path or postgres://…; not read from an environment
    /// variable
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "token", "token_file"])]
    database: Option<String>,
}

pub(super) struct ImportRequest {
    pub(super) text: String,
    pub(super) definitions: Definitions,
    /// Whether what it does not name is removed.
    pub(super) replace: bool,
    /// Whether it is only validated and counted.
    pub(super) dry_run: bool,
}

/// A source of rules, overrides, bans and violations.
pub(super) trait Backend {
    /// `{version, total, rules: […]}`.
    fn rules(&self, search: Option<&str>) -> Result<Value, CommandError>;
    /// One rule, with its version.
    fn rule(&self, name: &str) -> Result<Value, CommandError>;
    fn add_rule(&self, rule: &Rule) -> Result<Value, CommandError>;
    /// Replaces the rule of that name if it is still of that version.
    fn set_rule(&self, rule: &Rule, version: u64) -> Result<Value, CommandError>;
    fn remove_rule(&self, name: &str) -> Result<(), CommandError>;
    /// `{version, added, changed, removed, unchanged}`.
    fn import(&self, import: ImportRequest) -> Result<Value, CommandError>;
    /// Everything, as a rule file.
    fn export(&self) -> Result<String, CommandError>;
    /// `{overrides: […]}`.
    fn overrides(&self, rule: Option<&str>) -> Result<Value, CommandError>;
    fn put_override(&self, one: &Override) -> Result<Value, CommandError>;
    fn remove_override(&self, rule: &str, subject: &str) -> Result<(), CommandError>;
    /// `{bans: […]}`.
    fn bans(&self) -> Result<Value, CommandError>;
    fn put_ban(&self, ban: &Ban) -> Result<Value, CommandError>;
    fn remove_ban(&self, subject: &str) -> Result<(), CommandError>;
    /// `{violations: […]}`, newest first.
    fn violations(&self, filter: ViolationFilter) -> Result<Value, CommandError>;
    /// `{changes: […]}`, newest first.
    fn changes(&self, filter: ChangeFilter) -> Result<Value, CommandError>;
    /// When an edit counts, for people.
    fn activation_notice(&self) -> String;
}

impl BackendArguments {
    /// The backend at that address. A database file must exist already.
    pub(super) fn backend(&self) -> anyhow::Result<Box<dyn Backend>> {
        self.open(false)
    }

    /// The backend at that address; `creates` a database file that does not exist.
    pub(super) fn open(&self, creates: bool) -> anyhow::Result<Box<dyn Backend>> {
        let Some(url) = &self.database else { return Ok(Box::new(self.server.backend()?)) };
        let url: DatabaseUrl = url.parse().context("--database")?;
        Ok(Box::new(DatabaseBackend::open(&url, creates)?))
    }
}

impl ServerArguments {
    pub(super) fn backend(&self) -> anyhow::Result<ServerBackend> {
        let server = self.server.clone().or_else(|| variable(SERVER_VARIABLE));
        Ok(ServerBackend::new(
            server.unwrap_or_else(|| SERVER_DEFAULT.to_owned()),
            token(self.token.as_deref(), self.token_file.as_deref())?,
            self.tls.clone(),
        ))
    }
}

/// The admin token: a flag wins over a variable, and text over a file.
pub(super) fn token(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let read = |path: &Path| {
        let text = checkdam_service::config::read_text(path);
        let text = text.with_context(|| format!("the token file {} cannot be read", path.display()))?;
        anyhow::Ok(text.trim_end().to_owned())
    };
    let token = match (given, file) {
        (Some(token), _) => Some(token.to_owned()),
        (None, Some(path)) => Some(read(path)?),
        (None, None) => match (variable(TOKEN_VARIABLE), variable(TOKEN_FILE_VARIABLE)) {
            (Some(token), _) => Some(token),
            (None, path) => path.map(|path| read(Path::new(&path))).transpose()?,
        },
    };
    match token {
        Some(token) if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            anyhow::bail!("the admin token is empty or contains a character that is not allowed in a header")
        }
        token => Ok(token),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
