//! Rules in a YAML file, or in a folder of them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use checkdam::lease::LeaseTerms;
use checkdam::rule_file::{self, FileOptions};
use checkdam::{Algorithm, Definitions, Lease, Quota, RuleSet};

use super::snapshot::Snapshot;

/// The most leases that are remarked on at a time.
const REMARKS_MAX: usize = 10;
/// The most files that a folder may hold.
const FILES_MAX: usize = 1_000;

/// Why a rule file is invalid, in the format that editors parse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("{}: cannot be read: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    #[error("{}:{line}:{column}: {reason}", .path.display())]
    Invalid { path: PathBuf, line: u64, column: u64, reason: String },
}

/// A rule file, or a folder of them, that was read once, to be followed.
pub struct RuleFile {
    pub(super) path: PathBuf,
    pub(super) texts: FileTexts,
    pub(super) options: FileOptions,
    /// A pipe can be read only once, so it is not watched.
    pub(super) is_followed: bool,
}

/// The text of a file, or of each file of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTexts(Vec<(PathBuf, String)>);

impl RuleFile {
    pub fn open(path: &Path, options: FileOptions) -> Result<Self, LoadError> {
        let is_followed = path.is_file() || path.is_dir();
        Ok(Self { path: path.to_owned(), texts: FileTexts::read(path)?, options, is_followed })
    }

    pub fn load(&self) -> Result<(RuleSet, Snapshot), LoadError> {
        self.texts.load(&self.options).map(|(rules, definitions)| {
            let snapshot = Snapshot::from_definitions(definitions).with_tree_rules(&rules);
            (rules, snapshot)
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl FileTexts {
    /// Reads a file, or the rule files below a folder, by their names. Longer input than
    /// a rule file may have is truncated just after the bound, so that the parser rejects
    /// it.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let paths = if path.is_dir() { files_below(path)? } else { vec![path.to_owned()] };
        let read = |path: PathBuf| {
            let mut text = String::new();
            let most = rule_file::FILE_MAX as u64 + 1;
            match File::open(&path).and_then(|file| file.take(most).read_to_string(&mut text)) {
                Ok(_) => Ok((path, text)),
                Err(reason) => Err(LoadError::Unreadable { path, reason }),
            }
        };
        paths.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    pub fn load(&self, options: &FileOptions) -> Result<(RuleSet, Definitions), LoadError> {
        let texts: Vec<&str> = self.0.iter().map(|(_, text)| text.as_str()).collect();
        rule_file::compile_all(&texts, options).map_err(|(file, error)| LoadError::Invalid {
            path: self.0[file].0.clone(),
            line: error.line,
            column: error.column,
            reason: error.reason,
        })
    }
}

/// The rule files below a folder. Hidden ones are skipped, as those of Kubernetes
/// that the others link to.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |reason| LoadError::Unreadable { path: folder.to_owned(), reason };
    let mut files = Vec::new();
    let mut unseen = vec![folder.to_owned()];
    while let Some(folder) = unseen.pop() {
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            // Kubernetes names files as it likes: those without an ending count too.
            let is_rules = path.extension().is_none_or(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
            if is_hidden {
                continue;
            }
            // A folder behind a link could hold itself; a pipe would hold its reader.
            if path.is_dir() && !path.is_symlink() {
                unseen.push(path);
            } else if is_rules && path.is_file() {
                files.push(path);
            }
            if files.len() + unseen.len() > FILES_MAX {
                let text = format!("it holds more than {FILES_MAX} rule files");
                return Err(fail(std::io::Error::other(text)));
            }
        }
    }
    if files.is_empty() {
        return Err(fail(std::io::Error::other("the folder holds no rule file: no .yaml, .yml or .json")));
    }
    files.sort();
    Ok(files)
}

/// Logs parts of rules and trees that have no effect.
pub fn log_warnings(rules: &RuleSet, snapshot: &Snapshot) {
    for tree in &snapshot.trees {
        for remark in &tree.warnings {
            tracing::warn!(domain = tree.domain, "{remark}");
        }
    }
    for (rule, remark) in lease_warnings(rules).take(REMARKS_MAX) {
        tracing::warn!(rule, "{remark}");
    }
}

/// Leases that cannot work as they are written: of which rule, and why.
pub fn lease_warnings(rules: &RuleSet) -> impl Iterator<Item = (&str, String)> {
    let leased = rules.rules().filter(|rule| rule.lease != Lease::Off);
    leased.flat_map(|rule| {
        // A limit that cannot be leased may stand beside one that can.
        let is_mixed = rule.quotas.iter().any(|quota| LeaseTerms::of(rule.lease, quota).is_some());
        let concerned = move |quota: &&Quota| !is_mixed || quota.algorithm() == Algorithm::TokenBucket;
        let remarks = rule.quotas.iter().filter(concerned).filter_map(|quota| LeaseTerms::warning(rule.lease, quota));
        remarks.map(|remark| (rule.name.as_str(), remark))
    })
}

/// Trees as rules, behind the others; and what no rule can say.
pub fn flatten_trees(mut definitions: Definitions) -> (Definitions, Vec<String>) {
    let mut left_out = Vec::new();
    for tree in std::mem::take(&mut definitions.trees) {
        let translated = tree.rules();
        definitions.rules.extend(translated.rules);
        left_out.extend(translated.left_out);
    }
    (definitions, left_out)
}

/// The error for limits that no rule can express.
pub fn unsupported_trees_error(left_out: &[String], remedy: &str) -> String {
    format!("{} of its limits cannot be turned into rules: {}; {remedy}", left_out.len(), left_out.join("; "))
}
