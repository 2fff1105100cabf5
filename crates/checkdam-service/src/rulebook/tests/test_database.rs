//! A temporary rulebook for one test.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use checkdam::{Definitions, Rule, rule_file};
use tempfile::TempDir;
use testkit::Postgres;

use crate::rulebook::{DatabaseUrl, Rulebook, Snapshot};

/// An empty rulebook; its database is removed with it.
pub(super) struct TestDatabase {
    pub(super) rulebook: Rulebook,
    pub(super) url: DatabaseUrl,
    // Whatever holds the database.
    _directory: Option<TempDir>,
    _server: Option<Arc<Postgres>>,
}

impl TestDatabase {
    pub(super) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::in_directory(&directory.path().join("data"));
        Self { rulebook: Rulebook::open(&url).await.unwrap(), url, _directory: Some(directory), _server: None }
    }

    pub(super) async fn postgres() -> Self {
        let server = tokio::task::spawn_blocking(shared_server).await.unwrap();
        let url: DatabaseUrl = server.create_database().parse().unwrap();
        Self { rulebook: Rulebook::open(&url).await.unwrap(), url, _directory: None, _server: Some(server) }
    }

    /// Statements as another program would send them.
    pub(super) async fn sql(&self, statements: &str) -> Result<(), sqlx::Error> {
        let mut session = self.rulebook.engine.write().await?;
        session.run_script(statements).await?;
        session.commit().await
    }

    pub(super) async fn book(&self) -> Snapshot {
        self.rulebook.load().await.unwrap()
    }

    pub(super) async fn version(&self) -> u64 {
        self.rulebook.revision().await.unwrap().version
    }

    /// The limits of a rule as people write them.
    pub(super) async fn limits(&self, name: &str) -> Vec<String> {
        let book = self.book().await;
        assert_eq!(book.faults, []);
        let rule = book.rules.iter().find(|stored| stored.item.name == name).unwrap();
        rule.item.quotas.iter().map(ToString::to_string).collect()
    }
}

/// One server for all tests that run at the same time: each has a database of
/// its own there.
fn shared_server() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::builder().fsync(false).setting("max_connections=300").start());
        *shared = Arc::downgrade(&server);
        server
    })
}

pub(super) fn rule(text: &str) -> Rule {
    rule_file::parse_rule(text).unwrap()
}

pub(super) fn definitions(text: &str) -> Definitions {
    rule_file::parse_definitions(text).unwrap()
}
