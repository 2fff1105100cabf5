//! The rulebook in a database.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkdam::{Ban, Definitions, Override, Rule, RuleSet};
use sqlx::postgres::PgConnectOptions;

use super::changes::CHANGES_MAX;
use super::database::{Dialect, Engine, OpenError, Session};
use super::database_url::DatabaseUrl;
use super::import::ImportMode;
use super::row_cache::{RawRowCache, RowCache};
use super::rows::override_key;
use super::snapshot::{ImportCounts, Revision, RulebookError, Snapshot, Stored};
use crate::lock;

/// Who edits where nobody else is named.
pub(crate) const ITSELF: &str = "checkdam";
/// How long a question may take.
pub(super) const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Timeout of loading a hundred thousand rows.
pub(super) const LOAD_LIMIT: Duration = Duration::from_secs(30);
/// How long they may take to go.
pub(super) const EDIT_LIMIT: Duration = Duration::from_secs(60);

/// Rules, overrides and bans in a database, and the audit log. Clones share their
/// connections and cache.
#[derive(Debug, Clone)]
pub struct Rulebook {
    pub(super) engine: Engine,
    /// What was last read or written here.
    known: Arc<Mutex<Arc<RowCache>>>,
    /// Who edits, for the change log.
    pub(super) actor: Arc<str>,
    /// The most changes that the change log keeps.
    pub(super) change_rows_max: u32,
}

impl Rulebook {
    /// Opens a database and makes its tables, if they are not there.
    ///
    /// # Errors
    /// Says which database cannot be opened, and why.
    pub async fn open(url: &DatabaseUrl) -> Result<Self, OpenError> {
        let engine = Engine::open(url).await?;
        Ok(Self { engine, known: Arc::default(), actor: ITSELF.into(), change_rows_max: CHANGES_MAX })
    }

    /// The same rulebook, edited by this operator or program.
    pub fn edited_by(&self, actor: &str) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The same with another number of changes that the change log keeps.
    #[must_use]
    pub fn keeping_changes(self, rows_max: u32) -> Self {
        Self { change_rows_max: rows_max, ..self }
    }

    /// Closes all connections: the write-ahead log of a database file is checkpointed.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Everything, at one instant.
    pub async fn load(&self) -> Result<Snapshot, RulebookError> {
        self.refresh_cache().await.map(|snapshot| snapshot.to_snapshot())
    }

    /// The same with what decisions are made by.
    ///
    /// # Errors
    /// Gives also the revision that was read, if it was.
    pub async fn load_compiled(&self) -> Result<(Snapshot, RuleSet), (Option<Revision>, RulebookError)> {
        let snapshot = self.refresh_cache().await.map_err(|error| (None, error))?;
        let revision = snapshot.revision.clone();
        let compiled = blocking(move || {
            let book = snapshot.to_snapshot();
            let rules = book.compile()?;
            snapshot.set_valid();
            Ok((book, rules))
        });
        compiled.await.map_err(|error| (Some(revision), error))
    }

    /// Which state it is in.
    pub async fn revision(&self) -> Result<Revision, RulebookError> {
        within(ASK_LIMIT, async {
            let mut session = self.engine.read().await?;
            let revision = revision(&mut session).await?;
            session.commit().await?;
            Ok(revision)
        })
        .await
    }

    /// The same, by a transaction that may write: a standby rejects it.
    pub(super) async fn revision_of_primary(&self) -> Result<Revision, RulebookError> {
        within(ASK_LIMIT, async {
            let mut session = self.engine.write().await?;
            let revision = revision_for_edit(&mut session).await?;
            session.abort().await?;
            Ok(revision)
        })
        .await
    }

    /// The newest state; only rows that changed since the last one are read.
    async fn refresh_cache(&self) -> Result<Arc<RowCache>, RulebookError> {
        let known = self.cached();
        let read = within(LOAD_LIMIT, async {
            let mut session = self.engine.read().await?;
            let revision = revision(&mut session).await?;
            let raw = if revision == known.revision {
                None
            } else {
                Some(RawRowCache::read(&mut session, revision, Arc::clone(&known)).await?)
            };
            session.commit().await?;
            Ok(raw)
        });
        let Some(raw) = read.await? else { return Ok(known) };
        let snapshot = blocking(move || Ok(Arc::new(raw.parse()))).await?;
        self.set_cached(&snapshot);
        Ok(snapshot)
    }

    pub(super) fn cached(&self) -> Arc<RowCache> {
        Arc::clone(&lock(&self.known))
    }

    pub(super) fn set_cached(&self, snapshot: &Arc<RowCache>) {
        *lock(&self.known) = Arc::clone(snapshot);
    }

    pub async fn add_rule(&self, rule: Rule) -> Result<Stored<Rule>, RulebookError> {
        self.add(rule).await
    }

    /// Replaces the rule of that name, perhaps with one of another name, if it is still the expected version.
    pub async fn set_rule(&self, name: &str, rule: Rule, expected: Option<u64>) -> Result<Stored<Rule>, RulebookError> {
        self.set(name.to_owned(), format!("rule {name:?}"), rule, expected).await
    }

    /// Removes the rule of that name, if it is still the expected version.
    pub async fn remove_rule(&self, name: &str, expected: Option<u64>) -> Result<(), RulebookError> {
        self.remove::<Rule>(name.to_owned(), format!("rule {name:?}"), expected).await
    }

    /// Adds an override, or replaces the one of the same rule and subject.
    pub async fn put_override(&self, one: Override, expected: Option<u64>) -> Result<Stored<Override>, RulebookError> {
        self.put(one, expected).await
    }

    pub async fn remove_override(&self, rule: &str, subject: &str, expected: Option<u64>) -> Result<(), RulebookError> {
        let what = format!("override of {subject:?} for rule {rule:?}");
        self.remove::<Override>(override_key(rule, subject), what, expected).await
    }

    /// Adds a ban, or replaces the one of the same subject.
    pub async fn put_ban(&self, ban: Ban, expected: Option<u64>) -> Result<Stored<Ban>, RulebookError> {
        self.put(ban, expected).await
    }

    pub async fn remove_ban(&self, subject: &str, expected: Option<u64>) -> Result<(), RulebookError> {
        let key = Ban::new(subject).map_or_else(|_| subject.to_owned(), |ban| ban.subject());
        self.remove::<Ban>(key, format!("ban {subject:?}"), expected).await
    }

    /// Imports `definitions`, all or nothing; `replace` removes whatever they do not
    /// name.
    pub async fn import(&self, definitions: Definitions, replace: bool) -> Result<ImportCounts, RulebookError> {
        self.apply_import(definitions, ImportMode::Import { replace }).await
    }

    /// What an import would do; nothing is changed.
    pub async fn dry_run_import(&self, definitions: Definitions, replace: bool) -> Result<ImportCounts, RulebookError> {
        self.apply_import(definitions, ImportMode::DryRun { replace }).await
    }

    /// Imports `definitions` if nothing was ever written here.
    pub async fn seed(&self, definitions: Definitions) -> Result<ImportCounts, RulebookError> {
        // A book that was ever written need not be read to know it.
        let version = self.revision().await?.version;
        if version > 0 {
            return Ok(ImportCounts { version, ..ImportCounts::default() });
        }
        self.apply_import(definitions, ImportMode::Seed).await
    }

    /// Connection options of a server with notifications; `None` if there is none.
    pub(super) fn listen_options(&self) -> Option<&PgConnectOptions> {
        self.engine.listen_options()
    }
}

/// The rulebook's state as this transaction sees it.
pub(super) async fn revision(session: &mut Session) -> Result<Revision, sqlx::Error> {
    let rows = session.rows("SELECT version || ' ' || revision FROM checkdam_rulebook", &[]).await?;
    let read = rows.first().and_then(|row| row.split_once(' '));
    let (version, id) = read.ok_or(sqlx::Error::RowNotFound)?;
    Ok(Revision { version: version.parse().unwrap_or_default(), id: id.to_owned() })
}

/// As [`revision`], with a lock against concurrent edits until this transaction ends:
/// every change of a rule, also by hand, updates this one row.
pub(super) async fn revision_for_edit(session: &mut Session) -> Result<Revision, sqlx::Error> {
    if session.dialect() == Dialect::Postgres {
        session.run_script("SELECT version FROM checkdam_rulebook FOR UPDATE").await?;
    }
    revision(session).await
}

/// Runs `work` with a timeout, whose error is that the database does not reply.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, RulebookError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|error| unavailable(&error)),
        Err(_) => Err(RulebookError::Unavailable { reason: format!("no answer within {limit:?}") }),
    }
}

pub(super) fn unavailable(error: &sqlx::Error) -> RulebookError {
    RulebookError::Unavailable { reason: super::database::reason(error) }
}

/// Does long work where it holds up no request.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RulebookError> + Send + 'static,
) -> Result<T, RulebookError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(RulebookError::Unavailable { reason: error.to_string() }))
}
