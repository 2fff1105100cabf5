//! The rulebook, which is the source of rules: a YAML file, a folder of them, or a
//! database (SQLite or PostgreSQL).
//!
//! A change is accepted or rejected as a whole; the active rules never contain a part
//! of one.

mod classic_columns;
mod database;
mod database_poller;
mod database_rulebook;
mod database_url;
mod duplicates;
mod edit;
mod file_watcher;
mod flatten_trees;
mod import;
mod load_status;
mod postgres_notifications;
mod row_cache;
mod rows;
mod rule_file;
mod snapshot;
mod stored_spec;
mod violations;

#[cfg(test)]
mod tests;

pub(crate) use self::database::OpenError;
pub(crate) use self::database_poller::{DatabasePoller, PollOptions, PollStatus};
pub(crate) use self::database_rulebook::Rulebook;
pub(crate) use self::database_url::{DatabaseUrl, DatabaseUrlError};
pub(crate) use self::file_watcher::watch;
pub(crate) use self::flatten_trees::{flatten_trees, unsupported_trees_error};
pub(crate) use self::load_status::ReloadStatus;
pub(crate) use self::rule_file::{FileTexts, LoadError, RuleFile, lease_warnings, log_warnings};
pub(crate) use self::snapshot::{ImportCounts, Revision, RulebookError, Snapshot, Stored, compile, is_found};
pub(crate) use self::stored_spec::{StoredSpec, WithoutRow};
pub(crate) use self::violations::{ATTRIBUTE_MAX, Retention, SUBJECT_MAX, Violation, ViolationFilter};

/// The rules of a server that was given none.
pub(crate) const STARTER: &str = include_str!("../../../../examples/starter-rules.yaml");
