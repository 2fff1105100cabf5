//! SQLite and PostgreSQL behind one interface: pools, sessions, migrations.
//!
//! Callers do not depend on the engine, and this module does not depend on rules.

mod migrations;
mod sql_dialect;
mod transaction;

use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, PgConnection, PgPool, Postgres, SqlitePool};

pub(super) use self::migrations::reason;
pub(super) use self::sql_dialect::{Column, Conditions, Dialect, Kind, without_nul};
pub(super) use self::transaction::{Session, Value};
use super::database_url::DatabaseUrl;

/// Timeout of acquiring a connection: a server that is gone must be noticed before a
/// client times out.
const ACQUIRE_LIMIT: Duration = Duration::from_millis(1_500);
/// How long is taken to find out why there was none.
const CAUSE_LIMIT: Duration = Duration::from_secs(1);
/// A file has one writer at a time, and an import of a hundred thousand
/// overrides holds it for seconds.
const SQLITE_WAIT: Duration = Duration::from_secs(10);
const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 8;

/// A database with bounded waits.
#[derive(Debug, Clone)]
pub(super) enum Engine {
    /// One connection writes, so that writers queue instead of failing.
    Sqlite {
        file: Arc<OpenedFile>,
        readers: SqlitePool,
        writer: SqlitePool,
    },
    Postgres {
        pool: PgPool,
        options: Box<PgConnectOptions>,
    },
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("cannot make the directory {path}: {reason}")]
    Directory { path: String, reason: std::io::Error },
    #[error("cannot open the database {database}: {reason}")]
    Unavailable { database: String, reason: String },
    #[error(
        "the database {database} was made by a newer checkdam (schema {found}, this one knows {known}): upgrade it"
    )]
    TooNew { database: String, found: i64, known: i64 },
}

impl Engine {
    /// Opens the database and brings its tables up to date.
    pub(super) async fn open(url: &DatabaseUrl) -> Result<Self, OpenError> {
        let engine = match url {
            DatabaseUrl::Sqlite(path) => {
                let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
                if let Some(directory) = directory {
                    let failed = |reason| OpenError::Directory { path: directory.display().to_string(), reason };
                    // The audit log is private.
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
                }
                // The files beside it take its permissions. If this fails, opening it says why.
                let _ = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
                Self::sqlite(OpenedFile::open(path), SqliteConnectOptions::new().filename(path))
            }
            DatabaseUrl::Postgres(options) => Self::postgres(options.as_ref().clone()),
        };
        engine.migrate(&url.to_string()).await?;
        Ok(engine)
    }

    /// Ends all connections; the last one of a file puts its log into it.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { readers, writer, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres { pool, .. } => pool.close().await,
        }
    }

    fn sqlite(file: OpenedFile, options: SqliteConnectOptions) -> Self {
        // FULL: an edit that was acknowledged survives the loss of the machine, not only of the process.
        // It exists already: one that was deleted since must not be made anew, without tables.
        let options = options
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(SQLITE_WAIT);
        let pool = |most| SqlitePoolOptions::new().max_connections(most).acquire_timeout(SQLITE_WAIT);
        Self::Sqlite {
            file: Arc::new(file),
            readers: pool(SQLITE_READERS).connect_lazy_with(options.clone()),
            writer: pool(1).connect_lazy_with(options),
        }
    }

    fn postgres(options: PgConnectOptions) -> Self {
        let options = options.application_name("checkdam");
        let pool = PgPoolOptions::new().max_connections(POSTGRES_CONNECTIONS).acquire_timeout(ACQUIRE_LIMIT);
        Self::Postgres { pool: pool.connect_lazy_with(options.clone()), options: Box::new(options) }
    }

    /// A transaction with a consistent snapshot (repeatable read).
    pub(super) async fn read(&self) -> Result<Session, sqlx::Error> {
        match self {
            Self::Sqlite { file, readers, .. } => {
                file.check()?;
                Session::sqlite(readers.acquire().await?, "BEGIN").await
            }
            Self::Postgres { pool, options } => {
                let connection = acquire(pool, options).await?;
                Session::postgres(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
            }
        }
    }

    /// A transaction that may write. On a file it is the only one.
    pub(super) async fn write(&self) -> Result<Session, sqlx::Error> {
        match self {
            // IMMEDIATE: a reader that became a writer would find the file changed under it.
            Self::Sqlite { file, writer, .. } => {
                file.check()?;
                Session::sqlite(writer.acquire().await?, "BEGIN IMMEDIATE").await
            }
            Self::Postgres { pool, options } => Session::postgres(acquire(pool, options).await?, "BEGIN").await,
        }
    }

    /// Connection options of a server with notifications; `None` for a file.
    pub(super) fn listen_options(&self) -> Option<&PgConnectOptions> {
        match self {
            Self::Sqlite { .. } => None,
            Self::Postgres { options, .. } => Some(options),
        }
    }
}

/// A connection, or why there is none. A pool retries until its timeout and reports
/// only that: one more attempt finds the cause.
async fn acquire(pool: &PgPool, options: &PgConnectOptions) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    match pool.acquire().await {
        Err(sqlx::Error::PoolTimedOut) => {
            match tokio::time::timeout(CAUSE_LIMIT, PgConnection::connect_with(options)).await {
                Ok(Err(cause)) => Err(cause),
                Ok(Ok(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut),
            }
        }
        acquired => acquired,
    }
}

/// A database file, by its device and inode.
///
/// SQLite goes on reading and writing a deleted file: edits would succeed and be lost at
/// the next restart. So the path is checked before every transaction.
#[derive(Debug)]
pub(super) struct OpenedFile {
    path: PathBuf,
    /// None if it could not be read: opening it reports why.
    identity: Option<(u64, u64)>,
}

impl OpenedFile {
    fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path).ok() }
    }

    /// Fails if the file is no longer the one at its path.
    fn check(&self) -> std::io::Result<()> {
        let Some(opened) = self.identity else { return Ok(()) };
        let path = self.path.display();
        match identity(&self.path) {
            Ok(found) if found == opened => Ok(()),
            Ok(_) => Err(std::io::Error::other(format!(
                "the database file {path} was replaced while it was open: restart the server, which then reads the new one"
            ))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(std::io::Error::other(format!(
                "the database file {path} was deleted or moved while it was open: put it back, or restart the server, \
                 which then begins with an empty one"
            ))),
            Err(error) => Err(error),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
