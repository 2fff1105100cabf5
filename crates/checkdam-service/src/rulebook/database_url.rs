//! Parses the URL of the rulebook's database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// The file in the data directory that is used if nothing else is said.
const FILE_DEFAULT: &str = "checkdam.db";

/// A database: `sqlite://path` or `postgres://…`.
#[derive(Clone)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PgConnectOptions>),
}

/// Why a database URL is invalid. It never contains the URL, which may have a
/// password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseUrlError {
    #[error("the database's address is neither sqlite://path nor postgres://user@host:port/name")]
    UnknownScheme,
    #[error("the database's address names no file: write for example sqlite:///var/lib/checkdam/checkdam.db")]
    NoPath,
    #[error("the database's address is not understood: {reason}")]
    Invalid { reason: String },
}

impl DatabaseUrl {
    /// The database of a server for which only the data directory is set.
    pub fn in_directory(directory: &Path) -> Self {
        Self::Sqlite(directory.join(FILE_DEFAULT))
    }

    /// Whether it is a server, which may start late.
    pub const fn is_server(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, DatabaseUrlError> {
        if let Some(path) = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")) {
            // A database in memory would be another one on every connection.
            if path.is_empty() || path.starts_with(':') {
                return Err(DatabaseUrlError::NoPath);
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(DatabaseUrlError::UnknownScheme);
        }
        let (_, rest) = text.split_once("://").unwrap_or_default();
        if rest.split('?').next().unwrap_or_default().matches('@').count() > 1 {
            let reason = "it has more than one @: write %40 for those in a name or password".to_owned();
            return Err(DatabaseUrlError::Invalid { reason });
        }
        let options = text.parse::<PgConnectOptions>();
        options.map(|options| Self::Postgres(Box::new(options))).map_err(|error| {
            let reason = match error {
                sqlx::Error::Configuration(reason) => reason.to_string(),
                other => other.to_string(),
            };
            DatabaseUrlError::Invalid { reason }
        })
    }
}

/// For people: without user and password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(out, "sqlite://{}", path.display()),
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(out, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        let table = [
            ("sqlite://rules.db", "sqlite://rules.db"),
            ("sqlite:rules.db", "sqlite://rules.db"),
            ("sqlite:///var/lib/rules.db", "sqlite:///var/lib/rules.db"),
            ("postgres://me:secret@db.example:6543/rules", "postgres://db.example:6543/rules"),
            ("postgresql://db.example/rules?sslmode=require", "postgres://db.example:5432/rules"),
        ];
        for (text, shown) in table {
            assert_eq!(text.parse::<DatabaseUrl>().unwrap().to_string(), shown);
        }
        assert_eq!(DatabaseUrl::in_directory("data".as_ref()).to_string(), "sqlite://data/checkdam.db");
        for text in [
            "",
            "rules.db",
            "mysql://host",
            "sqlite://",
            "sqlite::memory:",
            "postgres://me:secret@host:x/db",
            "postgres://me:p@secret/x@host/db",
        ] {
            let error = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
