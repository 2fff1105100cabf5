//! One transaction on one connection.

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Postgres, Row, Sqlite};

use super::sql_dialect::Dialect;

/// What a statement is given.
#[derive(Debug, Clone)]
pub(in crate::rulebook) enum Value {
    Int(i64),
    Text(String),
}

/// A transaction. Dropped before its end it closes its connection, so that a timeout
/// on a server that hangs leaves nothing half done, and no broken connection in the
/// pool.
#[derive(Debug)]
pub(in crate::rulebook) struct Session {
    /// `None` only once it was returned to the pool.
    connection: Option<EngineConnection>,
}

#[derive(Debug)]
enum EngineConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// Does the same with either connection.
macro_rules! on {
    ($session:expr, $connection:ident => $work:expr) => {
        match $session.connection.as_mut() {
            Some(EngineConnection::Sqlite($connection)) => $work,
            Some(EngineConnection::Postgres($connection)) => $work,
            None => Err(sqlx::Error::PoolClosed),
        }
    };
}

/// A query with its values; both engines count parameters from `$1`.
macro_rules! query {
    ($text:expr, $values:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($text.to_owned()));
        for value in $values {
            query = match value {
                Value::Int(value) => query.bind(*value),
                Value::Text(value) => query.bind(value.as_str()),
            };
        }
        query
    }};
}

impl Session {
    pub(super) async fn sqlite(connection: PoolConnection<Sqlite>, begin: &str) -> Result<Self, sqlx::Error> {
        Self { connection: Some(EngineConnection::Sqlite(connection)) }.begin(begin).await
    }

    pub(super) async fn postgres(connection: PoolConnection<Postgres>, begin: &str) -> Result<Self, sqlx::Error> {
        Self { connection: Some(EngineConnection::Postgres(connection)) }.begin(begin).await
    }

    async fn begin(mut self, begin: &str) -> Result<Self, sqlx::Error> {
        self.run_script(begin).await?;
        Ok(self)
    }

    pub(in crate::rulebook) fn dialect(&self) -> Dialect {
        match self.connection {
            Some(EngineConnection::Postgres(_)) => Dialect::Postgres,
            _ => Dialect::Sqlite,
        }
    }

    /// The first column of every row, which is text.
    pub(in crate::rulebook) async fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<String>, sqlx::Error> {
        on!(self, connection => {
            let rows = query!(sql, values).fetch_all(&mut **connection).await?;
            rows.iter().map(|row| row.try_get::<String, _>(0)).collect()
        })
    }

    /// The first column of the first row, which is an integer; `None` without a row.
    pub(in crate::rulebook) async fn number(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<i64>, sqlx::Error> {
        on!(self, connection => {
            let row = query!(sql, values).fetch_optional(&mut **connection).await?;
            row.map(|row| row.try_get::<i64, _>(0)).transpose()
        })
    }

    /// Executes a statement; how many rows it concerned.
    pub(in crate::rulebook) async fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, sqlx::Error> {
        on!(self, connection => Ok(query!(sql, values).execute(&mut **connection).await?.rows_affected()))
    }

    pub(in crate::rulebook) async fn run_script(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        on!(self, connection => sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **connection).await.map(drop))
    }

    /// Commits. Without a reply the result is unknown.
    pub(in crate::rulebook) async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    /// Makes it as if it had never been.
    pub(in crate::rulebook) async fn abort(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &str) -> Result<(), sqlx::Error> {
        self.run_script(how).await?;
        // Only a connection whose transaction has ended can be reused.
        drop(self.connection.take());
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(EngineConnection::Sqlite(connection)) => drop(connection.detach()),
            Some(EngineConnection::Postgres(connection)) => drop(connection.detach()),
            None => {}
        }
    }
}
