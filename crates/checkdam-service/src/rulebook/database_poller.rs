//! Polls a database rulebook: a change is active on this node within a second; an
//! invalid one is rejected as a whole and the old rules stay active. An earlier
//! version is loaded too: if a database lost edits and this node did not follow, it
//! would differ from nodes that were restarted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use checkdam::RuleSet;
use checkdam::time::rfc3339;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::database_rulebook::Rulebook;
use super::load_status::now_unix_ms;
use super::snapshot::{Revision, RulebookError, Snapshot};

/// The channel that the triggers notify.
const CHANNEL: &str = "checkdam_rules";
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How changes are noticed.
#[derive(Debug, Clone, Copy)]
pub struct PollOptions {
    /// The polling interval of the version, in case notifications are missed.
    pub poll: Duration,
    /// Whether to subscribe to notifications, if the database supports them.
    pub listens: bool,
}

/// The pause between polls while an edit is waited for.
const AGAIN: Duration = Duration::from_millis(50);

impl Default for PollOptions {
    fn default() -> Self {
        Self { poll: Duration::from_millis(500), listens: true }
    }
}

/// How far this node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollStatus {
    /// The state that is active.
    pub revision: Revision,
    /// Since when.
    pub loaded_unix_ms: u64,
    /// Whether the database replied to the last poll.
    pub is_connected: bool,
    /// Why what the database holds is not active, or why that is not known.
    pub error: Option<String>,
    /// Edits that were active here and are no longer in the database.
    pub lost: Option<LostEdits>,
}

/// Edits that the database lost: it was restored, or a replica took over that did
/// not have them yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostEdits {
    /// The version that was active.
    pub from_version: u64,
    /// The version that the database held instead.
    pub to_version: u64,
    /// When that was noticed.
    pub noticed_unix_ms: u64,
}

impl fmt::Display for LostEdits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_version, to_version, noticed_unix_ms } = self;
        write!(
            out,
            "at {} the rulebook's database went from version {from_version} to version {to_version}: it was restored, \
             or a replica took over that had not all edits; its rules are active, compare them with what they should be",
            rfc3339(noticed_unix_ms / 1_000)
        )
    }
}

/// Follows a rulebook until it is dropped.
#[derive(Debug)]
pub struct DatabasePoller {
    hint: Arc<Notify>,
    status: watch::Receiver<PollStatus>,
    steps: watch::Receiver<PollCount>,
    tasks: Vec<JoinHandle<()>>,
}

/// A counter of polls.
#[derive(Debug, Clone, Copy, Default)]
struct PollCount {
    /// Incremented when a poll begins and when it ends: odd while one is running.
    number: u64,
    last: PollOutcome,
}

/// The result of a poll.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PollOutcome {
    /// The database could not be read.
    #[default]
    Failed,
    /// What the database holds is active on this node.
    Current,
    /// What the database holds is not valid.
    Refused,
}

/// Requests polls, and waits for them.
#[derive(Debug)]
pub struct PollRequests {
    hint: Arc<Notify>,
    steps: watch::Receiver<PollCount>,
}

impl PollRequests {
    /// Waits for a poll that begins after now. The status says whether the database
    /// replied.
    pub async fn poll(&mut self) {
        let _ = self.poll_once().await;
    }

    /// Waits for a poll that begins after now and reads the database. Returns whether
    /// what it held then, and so everything committed before, is active now.
    pub async fn poll_until_read(&mut self) -> bool {
        loop {
            match self.poll_once().await {
                Some(PollOutcome::Failed) => tokio::time::sleep(AGAIN).await,
                last => return last == Some(PollOutcome::Current),
            }
        }
    }

    /// A poll that begins after now. None without a poller: then there is nothing to wait
    /// for.
    async fn poll_once(&mut self) -> Option<PollOutcome> {
        let step = self.steps.borrow().number;
        self.hint.notify_one();
        // The running poll may have read the version already.
        let target = step + 2 + step % 2;
        let reached = self.steps.wait_for(|reached| reached.number >= target && reached.number.is_multiple_of(2));
        reached.await.ok().map(|reached| reached.last)
    }
}

impl DatabasePoller {
    /// Follows `rulebook`, of which `revision` is active; `apply` makes
    /// rules active and must not wait for anything.
    pub fn start(
        rulebook: Rulebook,
        revision: Revision,
        options: PollOptions,
        apply: impl Fn(RuleSet, Snapshot) + Send + Sync + 'static,
    ) -> Self {
        let hint = Arc::new(Notify::new());
        let status =
            PollStatus { revision, loaded_unix_ms: now_unix_ms(), is_connected: true, error: None, lost: None };
        let (sender, receiver) = watch::channel(status);
        let mut tasks = Vec::new();
        if let Some(server) = rulebook.listen_options().filter(|_| options.listens) {
            tasks.push(tokio::spawn(listen(server.clone(), Arc::clone(&hint))));
        }
        let mut following = PollTask { rulebook, apply, status: sender, refused: None };
        let (stepping, steps) = watch::channel(PollCount::default());
        let hinted = Arc::clone(&hint);
        tasks.push(tokio::spawn(async move {
            loop {
                // Whichever is first; a hint during a poll counts for the next one.
                let _ = tokio::time::timeout(options.poll, hinted.notified()).await;
                stepping.send_modify(|step| step.number += 1);
                let last = following.poll().await;
                stepping.send_modify(|step| *step = PollCount { number: step.number + 1, last });
            }
        }));
        Self { hint, status: receiver, steps, tasks }
    }

    /// Notify it if there may be something new: it costs one question for the revision.
    pub fn poll_hint(&self) -> Arc<Notify> {
        Arc::clone(&self.hint)
    }

    /// The same for callers that wait for it.
    pub fn poll_requests(&self) -> PollRequests {
        PollRequests { hint: self.poll_hint(), steps: self.steps.clone() }
    }

    pub fn status(&self) -> PollStatus {
        self.status.borrow().clone()
    }

    /// The same, to be watched.
    pub fn watch_status(&self) -> watch::Receiver<PollStatus> {
        self.status.clone()
    }

    #[cfg(test)]
    pub async fn wait_for_version(&self, version: u64) {
        // The sender lives as long as the task, which lives as long as this.
        let _ = self.status.clone().wait_for(|status| status.revision.version >= version).await;
    }
}

impl Drop for DatabasePoller {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

struct PollTask<A> {
    rulebook: Rulebook,
    apply: A,
    status: watch::Sender<PollStatus>,
    /// The revision that was rejected, so that it is validated and reported once.
    refused: Option<Revision>,
}

impl<A: Fn(RuleSet, Snapshot) + Send + Sync> PollTask<A> {
    /// Loads what the database holds, unless it is active already.
    async fn poll(&mut self) -> PollOutcome {
        let active = self.status.borrow().revision.clone();
        let mut revision = match self.rulebook.revision().await {
            Ok(revision) => revision,
            Err(error) => return self.disconnected(&error),
        };
        if revision.version < active.version {
            // A standby that lags behind may have replied: only the primary is current.
            revision = match self.rulebook.revision_of_primary().await {
                Ok(revision) => revision,
                Err(error) => return self.disconnected(&error),
            };
        }
        if revision == active {
            self.reconnected();
            self.clear_refusal();
            return PollOutcome::Current;
        }
        if self.refused.as_ref() == Some(&revision) {
            self.reconnected();
            return PollOutcome::Refused;
        }
        match self.rulebook.load_compiled().await {
            // The polled and the loaded version may differ: then the next poll loads the newer.
            Ok((snapshot, rules)) => self.activate(&active, snapshot, rules),
            Err((_, error @ RulebookError::Unavailable { .. })) => return self.disconnected(&error),
            Err((seen, error)) => {
                self.refuse(&active, seen.unwrap_or(revision), &error);
                return PollOutcome::Refused;
            }
        }
        PollOutcome::Current
    }

    fn refuse(&mut self, active: &Revision, refused: Revision, error: &RulebookError) {
        self.reconnected();
        let (reason, version) = (error.to_string(), refused.version);
        tracing::error!(version, active = active.version, reason, "the rulebook is invalid; the active rules stay");
        self.refused = Some(refused);
        self.status.send_modify(|status| status.error = Some(reason));
    }

    fn activate(&mut self, active: &Revision, snapshot: Snapshot, rules: RuleSet) {
        let (revision, count, now) = (snapshot.revision.clone(), rules.rules().len(), now_unix_ms());
        let lost = (revision.version <= active.version && revision != *active).then_some(LostEdits {
            from_version: active.version,
            to_version: revision.version,
            noticed_unix_ms: now,
        });
        (self.apply)(rules, snapshot);
        self.refused = None;
        let version = revision.version;
        match &lost {
            Some(_) => tracing::error!(
                version,
                lost_version = active.version,
                "the rulebook's database lost edits (it was restored, or a replica without them took over): its rules \
                 are loaded; compare rules, overrides and bans with what they should be"
            ),
            None => tracing::info!(version, rules = count, "rules reloaded"),
        }
        self.status.send_modify(|status| {
            let lost = lost.or(status.lost.take());
            *status = PollStatus { revision, loaded_unix_ms: now, is_connected: true, error: None, lost };
        });
    }

    /// The database does not reply: logged once.
    fn disconnected(&self, error: &RulebookError) -> PollOutcome {
        let reason = error.to_string();
        self.status.send_if_modified(|status| {
            if status.is_connected {
                tracing::warn!(reason, "the rulebook cannot be read; the active rules stay");
                status.is_connected = false;
                status.error = Some(reason);
                return true;
            }
            false
        });
        PollOutcome::Failed
    }

    /// The database holds what is active: a rejected revision is gone.
    fn clear_refusal(&mut self) {
        if self.refused.take().is_some() {
            self.status.send_modify(|status| status.error = None);
        }
    }

    /// The database replies again.
    fn reconnected(&mut self) {
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
            // Its errors are to be reported again.
            self.refused = None;
        }
    }
}

/// Subscribes to PostgreSQL's `LISTEN`/`NOTIFY`: notifies `hint` of every change until it is aborted. What it misses while it
/// is cut off, polling finds.
async fn listen(server: PgConnectOptions, hint: Arc<Notify>) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Err(error) = listen_until_lost(&server, &hint, &mut pause).await {
            tracing::debug!(reason = super::database::reason(&error), "no change notifications; polling instead");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens until the connection is lost.
async fn listen_until_lost(server: &PgConnectOptions, hint: &Notify, pause: &mut Duration) -> Result<(), sqlx::Error> {
    // A pool of its own: a listener keeps its connection, and must not keep it from others.
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_LIMIT);
    let pool = pool.max_lifetime(None).idle_timeout(None).connect_lazy_with(server.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    *pause = PAUSE_MIN;
    // Changes before the subscription were not notified.
    hint.notify_one();
    while listener.try_recv().await?.is_some() {
        hint.notify_one();
    }
    Ok(())
}
