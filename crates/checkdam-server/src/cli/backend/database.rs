//! A database as backend, read and edited directly. Every edit is validated together
//! with all existing rules, as a server does.

use std::sync::Arc;

use anyhow::{Context, bail};
use checkdam::{Ban, BanSpec, Override, OverrideSpec, Rule, RuleSpec, rule_file};
use checkdam_service::rulebook::{
    ChangeFilter, DatabaseUrl, Rulebook, RulebookError, Snapshot, Stored, StoredSpec, ViolationFilter, is_found,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Backend, ImportRequest};
use crate::cli::command_error::{CommandError, ErrorKind};
use crate::cli::print_notice;
use crate::cli::table::printable;

/// The number of violations per query.
const PAGE: usize = 1_000;

pub(super) struct DatabaseBackend {
    /// Without its password.
    shown: String,
    rulebook: Rulebook,
    runtime: Runtime,
}

impl DatabaseBackend {
    /// Opens the database; a file that does not exist is created or is an error.
    pub(super) fn open(url: &DatabaseUrl, creates: bool) -> anyhow::Result<Self> {
        let shown = url.to_string();
        if let DatabaseUrl::Sqlite(path) = url
            && !creates
            && !path.exists()
        {
            // A name that is misspelt must not read as a rulebook without rules.
            bail!("there is no database {shown}: `checkdam rules import` makes one, and so does `checkdam serve`");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start threads")?;
        let rulebook = runtime.block_on(Rulebook::open(url))?.edited_by(&actor());
        Ok(Self { shown, rulebook, runtime })
    }

    fn run<T>(&self, work: impl Future<Output = Result<T, RulebookError>>) -> Result<T, CommandError> {
        self.runtime.block_on(work).map_err(|error| {
            let kind = match error {
                RulebookError::NotFound { .. } => ErrorKind::NotFound,
                RulebookError::Exists { .. } => ErrorKind::Exists,
                RulebookError::Changed { .. } => ErrorKind::Changed,
                RulebookError::Invalid { .. } => ErrorKind::Invalid,
                RulebookError::Unavailable { .. } => ErrorKind::Unavailable,
            };
            CommandError::new(kind, error.to_string())
        })
    }

    /// Everything; rows that another program broke are reported.
    fn snapshot(&self) -> Result<Snapshot, CommandError> {
        let book = self.run(self.rulebook.load())?;
        for fault in &book.faults {
            let reason = "is not valid, so that servers keep the rules they have";
            print_notice(&format!("{} {reason}: {}", printable(&fault.what), printable(&fault.reason)));
        }
        Ok(book)
    }
}

impl Drop for DatabaseBackend {
    fn drop(&mut self) {
        self.runtime.block_on(self.rulebook.close());
    }
}

impl Backend for DatabaseBackend {
    fn rules(&self, search: Option<&str>) -> Result<Value, CommandError> {
        let book = self.snapshot()?;
        let search = search.unwrap_or_default().to_lowercase();
        Ok(list_json::<_, RuleSpec>("rules", &book, &book.rules, |rule| is_found(rule, &search)))
    }

    fn rule(&self, name: &str) -> Result<Value, CommandError> {
        let book = self.snapshot()?;
        let stored = book.rules.iter().find(|stored| stored.item.name == name);
        let row = stored.map(|stored| row_json::<_, RuleSpec>(stored));
        row.ok_or_else(|| CommandError::new(ErrorKind::NotFound, format!("there is no rule {name:?}")))
    }

    fn add_rule(&self, rule: &Rule) -> Result<Value, CommandError> {
        self.run(self.rulebook.add_rule(rule.clone())).map(|stored| row_json::<_, RuleSpec>(&stored))
    }

    fn set_rule(&self, rule: &Rule, version: u64) -> Result<Value, CommandError> {
        let set = self.rulebook.set_rule(&rule.name, rule.clone(), Some(version));
        self.run(set).map(|stored| row_json::<_, RuleSpec>(&stored))
    }

    fn remove_rule(&self, name: &str) -> Result<(), CommandError> {
        self.run(self.rulebook.remove_rule(name, None))
    }

    fn import(&self, import: ImportRequest) -> Result<Value, CommandError> {
        let ImportRequest { definitions, replace, dry_run, .. } = import;
        let imported = if dry_run {
            self.run(self.rulebook.dry_run_import(definitions, replace))?
        } else {
            self.run(self.rulebook.import(definitions, replace))?
        };
        Ok(json!({
            "version": imported.version,
            "dry_run": dry_run,
            "added": imported.added,
            "changed": imported.changed,
            "removed": imported.removed,
            "unchanged": imported.unchanged,
        }))
    }

    fn export(&self) -> Result<String, CommandError> {
        let book = self.snapshot()?;
        if let Some(fault) = book.faults.first() {
            // A file that lacks what is in the database is no copy of it.
            let reason = format!("{} cannot be exported: correct its row, or remove it", fault.what);
            return Err(CommandError::invalid(printable(&reason)));
        }
        Ok(rule_file::write(&book.definitions()))
    }

    fn overrides(&self, rule: Option<&str>) -> Result<Value, CommandError> {
        let book = self.snapshot()?;
        let is_wanted = |one: &Override| rule.is_none_or(|rule| one.rule == rule);
        Ok(list_json::<_, OverrideSpec>("overrides", &book, &book.overrides, is_wanted))
    }

    fn put_override(&self, one: &Override) -> Result<Value, CommandError> {
        self.run(self.rulebook.put_override(one.clone(), None)).map(|stored| row_json::<_, OverrideSpec>(&stored))
    }

    fn remove_override(&self, rule: &str, subject: &str) -> Result<(), CommandError> {
        self.run(self.rulebook.remove_override(rule, subject, None))
    }

    fn bans(&self) -> Result<Value, CommandError> {
        let book = self.snapshot()?;
        Ok(list_json::<_, BanSpec>("bans", &book, &book.bans, |_| true))
    }

    fn put_ban(&self, ban: &Ban) -> Result<Value, CommandError> {
        self.run(self.rulebook.put_ban(ban.clone(), None)).map(|stored| row_json::<_, BanSpec>(&stored))
    }

    fn remove_ban(&self, subject: &str) -> Result<(), CommandError> {
        self.run(self.rulebook.remove_ban(subject, None))
    }

    fn violations(&self, mut filter: ViolationFilter) -> Result<Value, CommandError> {
        let limit = filter.limit as usize;
        let mut found = Vec::new();
        loop {
            let page_limit = (limit - found.len()).min(PAGE);
            filter.limit = page_limit as u32;
            let page = self.run(self.rulebook.violations(&filter))?;
            filter.before_id = page.last().map(|last| last.id);
            let is_end = page.len() < page_limit;
            found.extend(page);
            if is_end || found.len() >= limit {
                return Ok(json!({"violations": found}));
            }
        }
    }

    fn changes(&self, mut filter: ChangeFilter) -> Result<Value, CommandError> {
        let limit = filter.limit as usize;
        let mut found = Vec::new();
        loop {
            let page_limit = (limit - found.len()).min(PAGE);
            filter.limit = page_limit as u32;
            let page = self.run(self.rulebook.changes(&filter))?;
            filter.before_id = page.last().map(|last| last.id);
            let is_end = page.len() < page_limit;
            found.extend(page);
            if is_end || found.len() >= limit {
                return Ok(json!({"changes": found}));
            }
        }
    }

    fn activation_notice(&self) -> String {
        format!("servers that use {} follow within a second", self.shown)
    }
}

/// Who edits, for the change log: the user of the operating system, as far as the
/// environment says. Names of admin tokens have no colon.
fn actor() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let is_plain = |character: &char| !character.is_control();
    match user {
        Some(user) => format!("cli:{}", user.chars().filter(is_plain).take(64).collect::<String>()),
        None => "cli".to_owned(),
    }
}

/// A list as the admin API has it.
fn list_json<T, S: serde::Serialize + for<'a> From<&'a T>>(
    name: &str,
    book: &Snapshot,
    items: &[Arc<Stored<T>>],
    is_wanted: impl Fn(&T) -> bool,
) -> Value {
    let wanted = items.iter().filter(|stored| is_wanted(&stored.item));
    let rows: Vec<Value> = wanted.map(|stored| row_json::<T, S>(stored)).collect();
    json!({"version": book.revision.version, "total": rows.len(), name: rows})
}

/// An item and its row, as the admin API has it.
fn row_json<T, S: serde::Serialize + for<'a> From<&'a T>>(stored: &Stored<T>) -> Value {
    // Specs have nothing that JSON cannot express.
    serde_json::to_value(StoredSpec::<S>::from(stored)).unwrap_or_default()
}
