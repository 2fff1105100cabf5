//! Follows a rulebook: a change is in force on this node within a second, an
//! invalid one is refused whole and the old rules stay, and what is in force
//! never goes back to an earlier version.

use std::sync::Arc;
use std::time::Duration;

use checkdam::RuleSet;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::book::{Book, RulebookError};
use super::listen::listen;
use super::loading::now_unix_ms;
use super::store::{Rulebook, blocking};

/// How changes are noticed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowOptions {
    /// How often the version is asked for: the net under everything quicker.
    pub(crate) poll: Duration,
    /// Whether a database that can tell of changes is listened to.
    pub(crate) listens: bool,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { poll: Duration::from_millis(500), listens: true }
    }
}

/// How far this node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// The version in force.
    pub(crate) version: u64,
    /// Since when.
    pub(crate) loaded_unix_ms: u64,
    /// Whether the database answered when it was last asked.
    pub(crate) is_connected: bool,
    /// Why a newer version is not in force, or why nobody knows of one.
    pub(crate) error: Option<String>,
}

/// Follows a rulebook until it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    hint: Arc<Notify>,
    status: watch::Receiver<Status>,
    steps: watch::Receiver<u64>,
    tasks: Vec<JoinHandle<()>>,
}

/// Has the rulebook looked at, and waits for it.
#[derive(Debug)]
pub(crate) struct Looks {
    hint: Arc<Notify>,
    /// One more when a look begins and when it ends: odd while one is under way.
    steps: watch::Receiver<u64>,
}

impl Looks {
    /// Waits for a look that begins after now. Whether the database answered
    /// tells the status.
    pub(crate) async fn look(&mut self) {
        let step = *self.steps.borrow();
        self.hint.notify_one();
        // The one under way may have asked already. Without a follower there is nothing to wait for.
        let _ = self.steps.wait_for(|reached| *reached >= step + 2 + step % 2).await;
    }
}

impl Follower {
    /// Follows `rulebook`, of which `version` is in force; `apply` puts rules
    /// in force and must not wait for anything.
    pub(crate) fn start(
        rulebook: Rulebook,
        version: u64,
        options: FollowOptions,
        apply: impl Fn(RuleSet, Book) + Send + Sync + 'static,
    ) -> Self {
        let hint = Arc::new(Notify::new());
        let status = Status { version, loaded_unix_ms: now_unix_ms(), is_connected: true, error: None };
        let (sender, receiver) = watch::channel(status);
        let mut tasks = Vec::new();
        if let Some(server) = rulebook.listen_options().filter(|_| options.listens) {
            tasks.push(tokio::spawn(listen(server.clone(), Arc::clone(&hint))));
        }
        let mut following = Following { rulebook, apply, status: sender, refused: None };
        let (stepping, steps) = watch::channel(0);
        let hinted = Arc::clone(&hint);
        tasks.push(tokio::spawn(async move {
            loop {
                // Whichever comes first; a hint that comes while we look counts for the next look.
                let _ = tokio::time::timeout(options.poll, hinted.notified()).await;
                stepping.send_modify(|step| *step += 1);
                following.look().await;
                stepping.send_modify(|step| *step += 1);
            }
        }));
        Self { hint, status: receiver, steps, tasks }
    }

    /// Says that there may be something new: an edit on this node, or a word
    /// from another. It costs one question for the version.
    pub(crate) fn hint(&self) {
        self.hint.notify_one();
    }

    /// The same for a task that hears of changes: notify it.
    pub(crate) fn hints(&self) -> Arc<Notify> {
        Arc::clone(&self.hint)
    }

    /// The same for one who wants to know when it was looked at.
    pub(crate) fn looks(&self) -> Looks {
        Looks { hint: self.hints(), steps: self.steps.clone() }
    }

    /// How far this node is.
    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The same for a task that looks again and again.
    pub(crate) fn statuses(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until the version is in force here.
    pub(crate) async fn reached(&self, version: u64) {
        // The sender lives as long as the task, which lives as long as this.
        let _ = self.status.clone().wait_for(|status| status.version >= version).await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

struct Following<A> {
    rulebook: Rulebook,
    apply: A,
    status: watch::Sender<Status>,
    /// The version that was refused, so that it is judged and reported once.
    refused: Option<u64>,
}

impl<A: Fn(RuleSet, Book) + Send + Sync> Following<A> {
    async fn look(&mut self) {
        let in_force = self.status.borrow().version;
        let version = match self.rulebook.version().await {
            Ok(version) => version,
            Err(error) => return self.lost(&error),
        };
        if version <= in_force || self.refused == Some(version) {
            self.found();
            if version < in_force {
                self.went_back(version, in_force);
            }
            return;
        }
        match self.load().await {
            // What was asked for and what was loaded may be different versions, the latter never older.
            Ok((book, rules)) => self.put_in_force(book, rules),
            Err((_, error @ RulebookError::Unavailable { .. })) => self.lost(&error),
            Err((version_seen, error)) => {
                self.found();
                let refused = version_seen.unwrap_or(version);
                self.refused = Some(refused);
                let reason = error.to_string();
                tracing::error!(
                    version = refused,
                    in_force,
                    reason,
                    "the rulebook is invalid; the rules in force stay"
                );
                self.status.send_modify(|status| status.error = Some(reason));
            }
        }
    }

    async fn load(&self) -> Result<(Book, RuleSet), (Option<u64>, RulebookError)> {
        let book = self.rulebook.load().await.map_err(|error| (None, error))?;
        let version = book.version;
        let compiled = blocking(move || book.compile().map(|rules| (book, rules))).await;
        compiled.map_err(|error| (Some(version), error))
    }

    fn put_in_force(&mut self, book: Book, rules: RuleSet) {
        let (version, count) = (book.version, rules.rules().len());
        (self.apply)(rules, book);
        self.refused = None;
        self.status.send_modify(|status| {
            *status = Status { version, loaded_unix_ms: now_unix_ms(), is_connected: true, error: None };
        });
        tracing::info!(version, rules = count, "rules reloaded");
    }

    /// The database does not answer: said once.
    fn lost(&self, error: &RulebookError) {
        let reason = error.to_string();
        self.status.send_if_modified(|status| {
            if status.is_connected {
                tracing::warn!(reason, "the rulebook cannot be read; the rules in force stay");
                status.is_connected = false;
                status.error = Some(reason);
                return true;
            }
            false
        });
    }

    /// It answers again.
    fn found(&mut self) {
        let is_back = self.status.send_if_modified(|status| {
            let is_back = !status.is_connected;
            if is_back {
                tracing::info!("the rulebook can be read again");
                status.is_connected = true;
                status.error = None;
            }
            is_back
        });
        if is_back {
            // Whatever was wrong with it is to be said again.
            self.refused = None;
        }
    }

    /// Somebody put an old database back: said once a version.
    fn went_back(&mut self, version: u64, in_force: u64) {
        if self.refused == Some(version) {
            return;
        }
        self.refused = Some(version);
        let reason = format!("the rulebook is at version {version}, and {in_force} is in force: restart to go back");
        tracing::error!(version, in_force, "the rulebook went back; the rules in force stay until a restart");
        self.status.send_modify(|status| status.error = Some(reason));
    }
}
