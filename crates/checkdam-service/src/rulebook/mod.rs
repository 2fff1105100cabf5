//! The rulebook, which is the source of rules: a YAML file, a folder of them, or a
//! database (SQLite or PostgreSQL).
//!
//! A change is accepted or rejected as a whole; the active rules never contain a part
//! of one.

mod changes;
mod database;
mod database_poller;
mod database_rulebook;
mod database_url;
mod edit;
mod file_watcher;
mod import;
mod load_status;
mod row_cache;
mod rows;
mod rule_file;
mod snapshot;
mod stored_spec;
mod violations;

#[cfg(test)]
mod tests;

pub use self::changes::{CHANGES_MAX, Change, ChangeFilter};
pub use self::database::OpenError;
pub use self::database_poller::{DatabasePoller, PollOptions, PollStatus};
pub(crate) use self::database_rulebook::ITSELF;
pub use self::database_rulebook::Rulebook;
pub use self::database_url::DatabaseUrl;
pub(crate) use self::database_url::DatabaseUrlError;
pub use self::file_watcher::watch;
pub(crate) use self::load_status::ReloadStatus;
pub use self::rule_file::{
    FileTexts, LoadError, RuleFile, flatten_trees, lease_warnings, log_warnings, unsupported_trees_error,
};
pub(crate) use self::snapshot::{ImportCounts, compile};
pub use self::snapshot::{Revision, RulebookError, Snapshot, Stored, is_found};
pub use self::stored_spec::{StoredSpec, WithoutRow};
pub(crate) use self::violations::{ATTRIBUTE_MAX, Retention, SUBJECT_MAX};
pub use self::violations::{Violation, ViolationFilter};

/// The rules of a server that was given none.
pub const STARTER: &str = include_str!("../../starter-rules.yaml");
