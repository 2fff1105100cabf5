//! Tests with a database that is stopped.

use std::time::Duration;

use testkit::{FaultProxy, Mode, Postgres};
use tokio::time::Instant;

use super::polling::PATIENCE;
use super::test_database::rule;
use crate::rulebook::{DatabasePoller, DatabaseUrl, OpenError, PollOptions, Rulebook, RulebookError, Violation};

/// What was promised, and some time for a machine with other things to do.
const PROMPTLY: Duration = Duration::from_secs(4);

async fn assert_unavailable(book: &Rulebook, what: &str) {
    let start = Instant::now();
    let one = rule("{name: lost, key: lost, limits: [1/s]}");
    let denied = [Violation::default()];
    let (loaded, version, edited, written) =
        tokio::join!(book.load(), book.revision(), book.add_rule(one), book.write_violations(&denied));
    let elapsed = start.elapsed();
    let answers = [loaded.map(drop), version.map(drop), edited.map(drop), written];
    for answer in answers {
        assert!(matches!(answer, Err(RulebookError::Unavailable { .. })), "{what}: {answer:?}");
    }
    assert!(elapsed < PROMPTLY, "{what}: {elapsed:?}");
    println!("{what}: said after {elapsed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_or_killed_is_missed_in_time_and_found_again() {
    let server = Postgres::start();
    let url: DatabaseUrl = server.create_database().parse().unwrap();
    let book = Rulebook::open(&url).await.unwrap();
    book.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let options = PollOptions { poll: Duration::from_millis(50), listens: true };
    let follower = DatabasePoller::start(book.clone(), book.revision().await.unwrap(), options, |_, _| {});
    for (round, end) in [Postgres::stop, Postgres::kill].into_iter().enumerate() {
        end(&server);
        Box::pin(assert_unavailable(&book, "gone")).await;
        let start = Instant::now();
        while follower.status().is_connected && start.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = follower.status();
        assert!(!status.is_connected && status.error.is_some(), "{status:?}");
        let start = Instant::now();
        assert!(matches!(Rulebook::open(&url).await, Err(OpenError::Unavailable { .. })));
        assert!(start.elapsed() < PROMPTLY);
        server.start_again();
        let kept = book.load().await.unwrap();
        assert_eq!(kept.rules.len(), round + 1, "what was acknowledged is there, and nothing else");
        let name = format!("round{round}");
        book.add_rule(rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"))).await.unwrap();
        let version = book.revision().await.unwrap().version;
        tokio::time::timeout(PATIENCE, follower.wait_for_version(version)).await.unwrap();
        assert_eq!((follower.status().is_connected, follower.status().error), (true, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_missed_in_time_and_found_again() {
    let server = Postgres::builder().fsync(false).start();
    let url = server.create_database();
    let proxy = FaultProxy::start(server.addr());
    let through: DatabaseUrl = url.replace(&server.addr().to_string(), &proxy.addr().to_string()).parse().unwrap();
    let book = Rulebook::open(&through).await.unwrap();
    book.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    proxy.set_replies(Mode::Drop);
    Box::pin(assert_unavailable(&book, "silent")).await;
    proxy.set_replies(Mode::Pass);
    let start = Instant::now();
    while book.load().await.is_err() && start.elapsed() < PATIENCE {}
    assert_eq!(book.load().await.unwrap().rules.len(), 1);
    book.remove_rule("a", Some(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_deleted_or_replaced_is_noticed() {
    let home = super::TestDatabase::sqlite().await;
    let DatabaseUrl::Sqlite(path) = home.url.clone() else { panic!() };
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let options = PollOptions { poll: Duration::from_millis(20), listens: false };
    let follower =
        DatabasePoller::start(home.rulebook.clone(), home.rulebook.revision().await.unwrap(), options, |_, _| {});
    let moved = path.with_extension("moved");
    for (is_replaced, word) in [(false, "deleted or moved"), (true, "replaced")] {
        std::fs::rename(&path, &moved).unwrap();
        if is_replaced {
            std::fs::copy(&moved, &path).unwrap();
        }
        Box::pin(assert_unavailable(&home.rulebook, word)).await;
        let refused = home.rulebook.remove_rule("a", None).await.unwrap_err().to_string();
        assert!(refused.contains(word) && refused.contains("restart the server"), "{refused}");
        let start = Instant::now();
        while follower.status().is_connected && start.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = follower.status();
        assert!(status.error.as_ref().is_some_and(|error| error.contains(word)), "{status:?}");
        std::fs::rename(&moved, &path).unwrap();
        assert!(tokio::time::timeout(PATIENCE, follower.poll_requests().poll_until_read()).await.unwrap());
        assert_eq!((follower.status().is_connected, follower.status().error), (true, None));
    }
    home.rulebook.remove_rule("a", Some(1)).await.unwrap();
}
