//! The rulebook: rules that are kept in a database.

use std::time::Duration;

use checkdam::{Ban, Definitions, Override, Rule};
use sqlx::postgres::PgConnectOptions;

use super::book::{Book, Imported, RulebookError, Stored};
use super::database::{Dialect, Engine, OpenError, Session};
use super::import::How;
use super::item::{Entry, Item, columns, override_key};
use super::url::DatabaseUrl;

/// How long a question may take.
pub(super) const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How long a hundred thousand rows may take to come.
pub(super) const LOAD_LIMIT: Duration = Duration::from_secs(30);
/// How long they may take to go.
pub(super) const EDIT_LIMIT: Duration = Duration::from_secs(60);
/// Fewer rows than this are not worth a thread.
const ROWS_A_THREAD: usize = 1_000;

/// Rules, overrides and bans in a database, and who was denied by them. Copies
/// share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Rulebook {
    pub(super) engine: Engine,
}

/// Everything in the three tables at one instant, valid or not.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) version: u64,
    pub(super) rules: Vec<Entry<Rule>>,
    pub(super) overrides: Vec<Entry<Override>>,
    pub(super) bans: Vec<Entry<Ban>>,
}

impl Rulebook {
    /// Opens a database and makes its tables, if they are not there.
    ///
    /// # Errors
    /// Says which database cannot be opened, and why.
    pub(crate) async fn open(url: &DatabaseUrl) -> Result<Self, OpenError> {
        Engine::open(url).await.map(|engine| Self { engine })
    }

    /// Ends all connections: what stands beside a database file is put into it.
    pub(crate) async fn close(&self) {
        self.engine.close().await;
    }

    /// Everything, as it stood at one instant.
    pub(crate) async fn load(&self) -> Result<Book, RulebookError> {
        let pages = within(LOAD_LIMIT, async {
            let mut session = self.engine.read().await?;
            let version = version(&mut session).await?;
            let raw = RawPages::read(&mut session).await?;
            session.commit().await?;
            Ok((version, raw))
        });
        let (version, raw) = pages.await?;
        blocking(move || Ok(raw.pages(version).into_book())).await
    }

    /// Which state it is in: never lower than it was.
    pub(crate) async fn version(&self) -> Result<u64, RulebookError> {
        within(ASK_LIMIT, async {
            let mut session = self.engine.read().await?;
            let version = version(&mut session).await?;
            session.commit().await?;
            Ok(version)
        })
        .await
    }

    /// Adds a rule.
    pub(crate) async fn add_rule(&self, rule: Rule) -> Result<Stored<Rule>, RulebookError> {
        self.add(rule).await
    }

    /// Replaces the rule of that name, perhaps with one of another name, if it is still the expected version.
    pub(crate) async fn set_rule(
        &self,
        name: &str,
        rule: Rule,
        expected: Option<u64>,
    ) -> Result<Stored<Rule>, RulebookError> {
        self.set(name.to_owned(), format!("rule {name:?}"), rule, expected).await
    }

    /// Removes the rule of that name, if it is still the expected version.
    pub(crate) async fn remove_rule(&self, name: &str, expected: Option<u64>) -> Result<(), RulebookError> {
        self.remove::<Rule>(name.to_owned(), format!("rule {name:?}"), expected).await
    }

    /// Adds an override, or replaces the one of the same rule and subject.
    pub(crate) async fn put_override(
        &self,
        one: Override,
        expected: Option<u64>,
    ) -> Result<Stored<Override>, RulebookError> {
        self.put(one, expected).await
    }

    /// Removes an override.
    pub(crate) async fn remove_override(
        &self,
        rule: &str,
        subject: &str,
        expected: Option<u64>,
    ) -> Result<(), RulebookError> {
        let what = format!("override of {subject:?} for rule {rule:?}");
        self.remove::<Override>(override_key(rule, subject), what, expected).await
    }

    /// Adds a ban, or replaces the one of the same subject.
    pub(crate) async fn put_ban(&self, ban: Ban, expected: Option<u64>) -> Result<Stored<Ban>, RulebookError> {
        self.put(ban, expected).await
    }

    /// Removes the ban of a subject.
    pub(crate) async fn remove_ban(&self, subject: &str, expected: Option<u64>) -> Result<(), RulebookError> {
        let key = Ban::new(subject).map_or_else(|_| subject.to_owned(), |ban| ban.subject());
        self.remove::<Ban>(key, format!("ban {subject:?}"), expected).await
    }

    /// Takes over what `definitions` say, all or nothing; `replace` removes
    /// whatever they do not name.
    pub(crate) async fn import(&self, definitions: Definitions, replace: bool) -> Result<Imported, RulebookError> {
        self.take_over(definitions, How::Import { replace }).await
    }

    /// What an import would do; nothing is changed.
    pub(crate) async fn rehearse(&self, definitions: Definitions, replace: bool) -> Result<Imported, RulebookError> {
        self.take_over(definitions, How::Rehearse { replace }).await
    }

    /// Takes over `definitions` if nobody has ever written anything here.
    pub(crate) async fn seed(&self, definitions: Definitions) -> Result<Imported, RulebookError> {
        // A book that was ever written need not be read to know it.
        let version = self.version().await?;
        if version > 0 {
            return Ok(Imported { version, ..Imported::default() });
        }
        self.take_over(definitions, How::Seed).await
    }

    /// How to reach a server that tells of changes; `None` if there is none.
    pub(super) fn listen_options(&self) -> Option<&PgConnectOptions> {
        self.engine.listen_options()
    }
}

/// The rows of the three tables, not yet understood.
pub(super) struct RawPages {
    rules: Vec<String>,
    overrides: Vec<String>,
    bans: Vec<String>,
}

impl RawPages {
    pub(super) async fn read(session: &mut Session) -> Result<Self, sqlx::Error> {
        async fn rows<T: Item>(session: &mut Session) -> Result<Vec<String>, sqlx::Error> {
            let order = format!("ORDER BY {}", T::ID);
            let sql = session.dialect().select(T::TABLE, &columns::<T>(), &order);
            session.rows(&sql, &[]).await
        }
        Ok(Self {
            rules: rows::<Rule>(session).await?,
            overrides: rows::<Override>(session).await?,
            bans: rows::<Ban>(session).await?,
        })
    }

    /// Understands them: for a thread that may take its time.
    pub(super) fn pages(self, version: u64) -> Pages {
        fn entries<T: Item>(rows: &[String]) -> Vec<Entry<T>> {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let share = rows.len().div_ceil(threads).max(ROWS_A_THREAD);
            std::thread::scope(|scope| {
                let read = |part: &'_ [String]| part.iter().map(|row| Entry::read(row)).collect::<Vec<_>>();
                let parts: Vec<_> = rows.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
                let joined = |part: std::thread::ScopedJoinHandle<'_, Vec<_>>| match part.join() {
                    Ok(entries) => entries,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                parts.into_iter().flat_map(joined).collect()
            })
        }
        Pages { version, rules: entries(&self.rules), overrides: entries(&self.overrides), bans: entries(&self.bans) }
    }
}

impl Pages {
    /// How many rows say nothing valid.
    pub(super) fn faults(&self) -> usize {
        fn count<T>(entries: &[Entry<T>]) -> usize {
            entries.iter().filter(|entry| entry.item.is_err()).count()
        }
        count(&self.rules) + count(&self.overrides) + count(&self.bans)
    }

    fn into_book(self) -> Book {
        let mut faults = Vec::new();
        let book = Book {
            version: self.version,
            rules: split(self.rules, &mut faults),
            overrides: split(self.overrides, &mut faults),
            bans: split(self.bans, &mut faults),
            faults: Vec::new(),
            ..Book::default()
        };
        Book { faults, ..book }
    }
}

fn split<T: Item>(entries: Vec<Entry<T>>, faults: &mut Vec<super::Fault>) -> Vec<Stored<T>> {
    let stored = |entry: Entry<T>| entry.into_stored().map_err(|fault| faults.push(fault)).ok();
    entries.into_iter().filter_map(stored).collect()
}

/// The rulebook's version as this transaction sees it.
pub(super) async fn version(session: &mut Session) -> Result<u64, sqlx::Error> {
    let version = session.number("SELECT version FROM checkdam_rulebook", &[]).await?;
    version.map(|version| version.max(0).unsigned_abs()).ok_or(sqlx::Error::RowNotFound)
}

/// As [`version`], and nobody else edits before this transaction ends: every
/// change of a rule, by whomever, moves the version of this one row.
pub(super) async fn version_for_edit(session: &mut Session) -> Result<u64, sqlx::Error> {
    if session.dialect() == Dialect::Postgres {
        session.script("SELECT version FROM checkdam_rulebook FOR UPDATE").await?;
    }
    version(session).await
}

/// Does `work` in time, or says that the database does not answer.
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
