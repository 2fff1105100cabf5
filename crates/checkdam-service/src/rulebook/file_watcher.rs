//! Watches a rule file: a valid change is active within a second; an invalid one is
//! rejected as a whole and the old rules stay active.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use checkdam::RuleSet;
use checkdam::rule_file::FileOptions;

use super::rule_file::{FileTexts, LoadError, RuleFile, log_warnings};
use super::snapshot::Snapshot;

/// Reading the text itself, and not what the file system says about it, works
/// with atomic renames, swapped links, mounted volumes and coarse clocks.
const POLL: Duration = Duration::from_millis(250);

/// What is known of the file.
struct WatchedFile {
    path: PathBuf,
    options: FileOptions,
    /// The text last validated, or why there is none.
    validated: Result<FileTexts, String>,
    /// The text of the last poll, if it was not yet validated: a file may be read half
    /// written, so it counts once two polls agree.
    seen: Option<Result<FileTexts, String>>,
}

/// Rules that were loaded, or why they were not.
type Loaded = Result<(RuleSet, Snapshot), String>;

/// Watches a file whose rules are active, until the program ends, and passes every
/// new version of it to `apply`; each message on `reload` has it validated at once,
/// and is dropped when that is done.
pub async fn watch<T>(file: RuleFile, mut reload: mpsc::Receiver<T>, apply: impl Fn(Loaded)) {
    let RuleFile { path, texts, options, is_followed } = file;
    let mut watched = WatchedFile { path, options, validated: Ok(texts), seen: None };
    loop {
        let asked = tokio::select! {
            asked = reload.recv() => match asked {
                Some(asked) => Some(asked),
                None => return,
            },
            () = tokio::time::sleep(POLL), if is_followed => None,
        };
        let path = watched.path.clone();
        // A pipe in the file's place would hold the reader for ever.
        let look =
            move || if path.is_dir() || path.is_file() || !path.exists() { Some(FileTexts::read(&path)) } else { None };
        let Ok(Some(now)) = tokio::task::spawn_blocking(look).await else { continue };
        watched.poll(&apply, now, asked.is_some());
    }
}

impl WatchedFile {
    fn poll(&mut self, apply: &impl Fn(Loaded), now: Result<FileTexts, LoadError>, is_asked: bool) {
        let now = now.map_err(|error| error.to_string());
        if !is_asked {
            if now == self.validated {
                self.seen = None;
                return;
            }
            if self.seen.as_ref() != Some(&now) {
                self.seen = Some(now);
                return;
            }
        }
        self.seen = None;
        self.validate(apply, &now);
        self.validated = now;
    }

    fn validate(&self, apply: &impl Fn(Loaded), now: &Result<FileTexts, String>) {
        let file = self.path.display().to_string();
        let texts = match now {
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
