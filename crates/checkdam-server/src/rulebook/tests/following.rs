//! How nodes learn of changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::home::{Home, definitions, rule};
use crate::rulebook::{FollowOptions, Follower, RulebookError};

super::on_both_engines!(
    a_change_by_anybody_is_in_force_by_asking_alone,
    an_edit_of_ones_own_is_in_force_at_once,
    whoever_has_it_looked_at_hears_when_that_was_done,
    an_invalid_book_leaves_the_old_rules_in_force,
);

/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(60);
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The names of the rules in force, as a node would apply them.
pub(super) type InForce = Arc<Mutex<Vec<String>>>;

pub(super) async fn follow(home: &Home, poll: Duration, listens: bool) -> (Follower, InForce) {
    let in_force = InForce::default();
    let applied = Arc::clone(&in_force);
    let version = home.version().await;
    let follower =
        Follower::start(home.rulebook.clone(), version, FollowOptions { poll, listens }, move |rules, book| {
            assert!(book.version > version);
            *applied.lock().unwrap() = rules.rules().map(|rule| rule.name.clone()).collect();
        });
    (follower, in_force)
}

async fn reached(follower: &Follower, version: u64) {
    tokio::time::timeout(PATIENCE, follower.reached(version)).await.expect("the change is in force in time");
}

async fn a_change_by_anybody_is_in_force_by_asking_alone(home: Home) {
    let (follower, in_force) = follow(&home, Duration::from_millis(50), false).await;
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!(*in_force.lock().unwrap(), ["a"]);
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('b', 'b', 1)").await.unwrap();
    let version = home.version().await;
    reached(&follower, version).await;
    assert_eq!(*in_force.lock().unwrap(), ["a", "b"]);
    let status = follower.status();
    assert_eq!((status.version, status.is_connected, status.error), (version, true, None));
    assert!(status.loaded_unix_ms > 1_767_225_600_000);
}

async fn an_edit_of_ones_own_is_in_force_at_once(home: Home) {
    let (follower, in_force) = follow(&home, NEVER, false).await;
    home.rulebook.import(definitions("{rules: [{name: a, key: a, limits: [1/s]}]}"), true).await.unwrap();
    follower.hint();
    reached(&follower, home.version().await).await;
    assert_eq!(*in_force.lock().unwrap(), ["a"]);
    // As a task would that hears of changes from elsewhere.
    home.rulebook.remove_rule("a", None).await.unwrap();
    follower.hints().notify_one();
    reached(&follower, home.version().await).await;
    assert!(in_force.lock().unwrap().is_empty());
}

async fn whoever_has_it_looked_at_hears_when_that_was_done(home: Home) {
    let (follower, in_force) = follow(&home, NEVER, false).await;
    let mut looks = follower.looks();
    for name in ["a", "b", "c"] {
        home.rulebook.add_rule(rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"))).await.unwrap();
        // Another look may be under way, which knows nothing of it yet.
        follower.hint();
        tokio::time::timeout(PATIENCE, looks.look()).await.expect("it is looked at");
        assert!(in_force.lock().unwrap().iter().any(|rule| rule == name), "{name}");
    }
}

async fn an_invalid_book_leaves_the_old_rules_in_force(home: Home) {
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let (follower, in_force) = follow(&home, Duration::from_millis(20), false).await;
    let before = follower.status();
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('bad', '{', 1)").await.unwrap();
    let start = Instant::now();
    while follower.status().error.is_none() && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = follower.status();
    assert!(status.error.as_ref().is_some_and(|error| error.contains("rule \"bad\"")), "{status:?}");
    assert_eq!((status.version, status.is_connected), (before.version, true));
    assert!(in_force.lock().unwrap().is_empty(), "nothing was applied");
    assert!(matches!(home.book().await.compile(), Err(RulebookError::Invalid { .. })));
    home.rulebook.remove_rule("bad", None).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!((in_force.lock().unwrap().clone(), follower.status().error), (vec!["a".to_owned()], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_tells_of_changes_long_before_anybody_asks() {
    let home = Home::postgres().await;
    let (follower, in_force) = follow(&home, NEVER, true).await;
    for number in 0..5 {
        // By hand: nobody on this node knows of it.
        let insert = "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second)";
        home.sql(&format!("{insert} VALUES ('r{number}', 'r{number}', 1)")).await.unwrap();
        let version = home.version().await;
        let start = Instant::now();
        reached(&follower, version).await;
        println!("told of the change and in force after {:?}", start.elapsed());
    }
    assert_eq!(in_force.lock().unwrap().len(), 5);
    // The listener's connection is cut; it comes back by itself.
    home.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' \
              AND datname = current_database()",
    )
    .await
    .unwrap();
    home.rulebook.remove_rule("r0", None).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!(in_force.lock().unwrap().len(), 4);
}
