//! One suite, on both engines.
//!
//! - `edits`: rules, overrides and bans, one by one
//! - `by_hand`: what others write past this program
//! - `imports`: whole files, and many rows
//! - `together`: several who read and write at once
//! - `violations`: who was denied
//! - `following`: how nodes learn of changes
//! - `outages`: a server that goes away

mod by_hand;
mod edits;
mod following;
mod home;
mod imports;
mod outages;
mod together;
mod violations;

use self::home::Home;

/// Runs each test on SQLite and on PostgreSQL.
macro_rules! on_both_engines {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($crate::rulebook::tests::Home::sqlite().await).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($crate::rulebook::tests::Home::postgres().await).await;
            })*
        }
    };
}
use on_both_engines;
