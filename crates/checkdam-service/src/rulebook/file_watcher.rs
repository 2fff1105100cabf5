//! Watches a rule file: a valid change is active within a second; an invalid one is
//! rejected as a whole and the old rules stay active.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use checkdam::RuleSet;
use checkdam::rule_file::FileOptions;

use super::rule_file::{FileTexts, LoadError, RuleFile, log_warnings};
use super::snapshot::Snapshot;
use crate::polled_file::{PolledFile, can_be_polled};

/// How often the file is read.
const POLL: Duration = Duration::from_millis(250);

/// What is known of the file.
struct WatchedFile {
    path: PathBuf,
    options: FileOptions,
    /// The texts last validated.
    texts: PolledFile<FileTexts>,
}

/// Rules that were loaded, or why they were not.
type Loaded = Result<(RuleSet, Snapshot), String>;

/// Watches a file whose rules are active, until the program ends, and passes every
/// new version of it to `apply`; each message on `reload` has it validated at once,
/// and is dropped when that is done.
pub async fn watch<T>(file: RuleFile, mut reload: mpsc::Receiver<T>, apply: impl Fn(Loaded)) {
    let RuleFile { path, texts, options, is_followed } = file;
    let mut watched = WatchedFile { path, options, texts: PolledFile::new(texts) };
    loop {
        let asked = tokio::select! {
            asked = reload.recv() => match asked {
                Some(asked) => Some(asked),
                None => return,
            },
            () = tokio::time::sleep(POLL), if is_followed => None,
        };
        let path = watched.path.clone();
        let look = move || can_be_polled(&path).then(|| FileTexts::read(&path));
        let Ok(Some(now)) = tokio::task::spawn_blocking(look).await else { continue };
        if watched.texts.poll(now.map_err(|error| error.to_string()), asked.is_some()) {
            watched.validate(&apply);
        }
    }
}

impl WatchedFile {
    fn validate(&self, apply: &impl Fn(Loaded)) {
        let file = self.path.display().to_string();
        let texts = match &self.texts.accepted {
            Ok(texts) => texts,
            Err(reason) => {
                tracing::error!(reason, "the rule file cannot be read; the active rules stay");
                apply(Err(reason.clone()));
                return;
            }
        };
        match texts.load(&self.options) {
            Ok((rules, definitions)) => {
                let count = rules.rules().len();
                let snapshot = Snapshot::from_definitions(definitions).with_tree_rules(&rules);
                log_warnings(&rules, &snapshot);
                apply(Ok((rules, snapshot)));
                tracing::info!(file, rules = count, "rules reloaded");
            }
            Err(error) => {
                apply(Err(error.to_string()));
                match error {
                    LoadError::Invalid { path, line, column, reason } => {
                        let file = path.display().to_string();
                        tracing::error!(file, line, column, reason, "the rule file is invalid; the active rules stay");
                    }
                    error => tracing::error!(reason = %error, "the rule file cannot be loaded; the active rules stay"),
                }
            }
        }
    }
}
