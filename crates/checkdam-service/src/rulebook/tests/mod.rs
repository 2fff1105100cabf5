//! One test suite, run on both database engines.
//!
//! - `edits`: single edits of rules, overrides and bans
//! - `external_writes`: rows that other programs write
//! - `imports`: imports of files, and many rows
//! - `changes`: the change log
//! - `concurrency`: concurrent readers and writers
//! - `violations`: recorded violations
//! - `polling`: polling for changes
//! - `outages`: a database that is stopped

mod changes;
mod concurrency;
mod edits;
mod external_writes;
mod imports;
mod outages;
mod polling;
mod test_database;
mod violations;

use self::test_database::TestDatabase;

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! on_both_engines {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($crate::rulebook::tests::TestDatabase::sqlite().await).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($crate::rulebook::tests::TestDatabase::postgres().await).await;
            })*
        }
    };
}
use on_both_engines;
