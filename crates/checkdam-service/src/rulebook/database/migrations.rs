//! Schema migrations, in one transaction: all steps or none. Nodes that start
//! together run them one after the other.
//!
//! The migrator of sqlx runs every step in a transaction of its own and, on SQLite,
//! takes no lock: of two processes that open a new file together, such as a server
//! and the command line, one fails. On PostgreSQL it holds a session lock, which a
//! pooler in transaction mode such as PgBouncer loses. Existing databases would have
//! to be entered into its table by hand.

use super::transaction::{Session, Value};
use super::{Dialect, Engine, OpenError};

/// The steps, in order. A step that was released is never changed.
const SQLITE: [&str; 5] = [
    include_str!("../migrations/sqlite/0001_rulebook.sql"),
    include_str!("../migrations/sqlite/0002_violations.sql"),
    include_str!("../migrations/sqlite/0003_revision.sql"),
    include_str!("../migrations/sqlite/0004_changes.sql"),
    include_str!("../migrations/sqlite/0005_options.sql"),
];
const POSTGRES: [&str; 5] = [
    include_str!("../migrations/postgres/0001_rulebook.sql"),
    include_str!("../migrations/postgres/0002_violations.sql"),
    include_str!("../migrations/postgres/0003_revision.sql"),
    include_str!("../migrations/postgres/0004_changes.sql"),
    include_str!("../migrations/postgres/0005_options.sql"),
];

/// An arbitrary key of the advisory lock: "checkdam" as bytes.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7163086685010682221)";

impl Engine {
    pub(super) async fn migrate(&self, shown: &str) -> Result<(), OpenError> {
        let failed = |error: sqlx::Error| OpenError::Unavailable { database: shown.to_owned(), reason: reason(&error) };
        let mut session = self.write().await.map_err(failed)?;
        let found = schema(&mut session).await.map_err(failed)?;
        let steps = match session.dialect() {
            Dialect::Sqlite => SQLITE,
            Dialect::Postgres => POSTGRES,
        };
        let known = steps.len() as i64;
        if found > known {
            return Err(OpenError::TooNew { database: shown.to_owned(), found, known });
        }
        for (version, step) in (1..).zip(steps).skip(usize::try_from(found).unwrap_or(0)) {
            session.run_script(step).await.map_err(failed)?;
            let reached = [Value::Int(version)];
            session.run("INSERT INTO checkdam_schema (version) VALUES ($1)", &reached).await.map_err(failed)?;
        }
        session.commit().await.map_err(failed)
    }
}

/// How many steps were taken.
async fn schema(session: &mut Session) -> Result<i64, sqlx::Error> {
    if session.dialect() == Dialect::Postgres {
        session.run_script(LOCK).await?;
    }
    session.run_script("CREATE TABLE IF NOT EXISTS checkdam_schema (version BIGINT PRIMARY KEY)").await?;
    let found = session.number("SELECT COALESCE(MAX(version), 0) FROM checkdam_schema", &[]).await?;
    Ok(found.unwrap_or(0))
}

/// What is wrong, for people.
pub(in crate::rulebook) fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::PoolTimedOut => "it does not answer in time".to_owned(),
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Configuration(error) => error.to_string(),
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            format!("nothing listens there ({error}): start the server, or correct the address")
        }
        sqlx::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
