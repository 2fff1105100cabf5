//! Where rules come from: a YAML file or a folder of them, or a rulebook in SQLite or PostgreSQL.
//!
//! A change is taken whole or refused whole, and the rules in force are never
//! half of one.

mod book;
mod database;
mod edit;
mod file;
mod follow;
mod import;
mod item;
mod listen;
mod loading;
mod rate;
mod same;
mod snapshot;
mod store;
mod translate;
mod url;
mod violations;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use self::book::{Book, Imported, Revision, RulebookError, Stored, compile};
pub(crate) use self::database::OpenError;
pub(crate) use self::file::{LoadError, RuleFile, Texts, lease_remarks, remark};
pub(crate) use self::follow::{FollowOptions, Follower, Status};
pub(crate) use self::loading::Loading;
pub(crate) use self::store::Rulebook;
pub(crate) use self::translate::{as_rules, refusal};
pub(crate) use self::url::{DatabaseUrl, DatabaseUrlError};
pub(crate) use self::violations::{ATTRIBUTE_MAX, Filter, Keep, SUBJECT_MAX, StoredViolation, Violation};
pub(crate) use self::watch::watch;

/// The rules of a server that was given none.
pub(crate) const STARTER: &str = include_str!("../../../../examples/starter-rules.yaml");
