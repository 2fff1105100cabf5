//! Rules in a YAML file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use checkdam::{Lease, RuleSet, rule_file};

use super::book::Book;

/// Why a rule file was refused, in the form editors understand.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LoadError {
    #[error("{}: cannot be read: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    #[error("{}:{line}:{column}: {reason}", .path.display())]
    Invalid { path: PathBuf, line: u64, column: u64, reason: String },
}

/// A rule file that was read once, to be followed.
pub(crate) struct RuleFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// A pipe can be read only once, so it is not looked at again.
    pub(super) is_followed: bool,
}

impl RuleFile {
    /// Reads the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        Ok(Self { path: path.to_owned(), text: read(path)?, is_followed: path.is_file() })
    }

    /// Compiles what was read.
    pub(crate) fn load(&self) -> Result<(RuleSet, Book), LoadError> {
        load(&self.path, &self.text)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Compiles a rule file's text, and keeps what it was made of.
pub(super) fn load(path: &Path, text: &str) -> Result<(RuleSet, Book), LoadError> {
    let rules = compile(path, text)?;
    // What compiles is understood.
    let book = rule_file::parse_definitions(text).map(Book::of_file).unwrap_or_default();
    Ok((rules, book))
}

/// A file's text. Anything longer than a rule file may be is cut just behind
/// the bound, so that the parser refuses it.
pub(crate) fn read(path: &Path) -> Result<String, LoadError> {
    let mut text = String::new();
    let most = rule_file::FILE_MAX as u64 + 1;
    match File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)) {
        Ok(_) => Ok(text),
        Err(reason) => Err(LoadError::Unreadable { path: path.to_owned(), reason }),
    }
}

/// Compiles a rule file's text; `path` is for the message.
pub(crate) fn compile(path: &Path, text: &str) -> Result<RuleSet, LoadError> {
    rule_file::compile(text).map_err(|error| LoadError::Invalid {
        path: path.to_owned(),
        line: error.line,
        column: error.column,
        reason: error.reason,
    })
}

/// Says what a rule asks for in vain.
pub(crate) fn remark(rules: &RuleSet) {
    if let Some(rule) = rules.rules().find(|rule| rule.lease != Lease::Off) {
        tracing::warn!(rule = rule.name, "lease has no effect yet: the rule's limit is asked of the store every time");
    }
}
