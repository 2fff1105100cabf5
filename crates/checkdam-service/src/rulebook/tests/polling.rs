//! Tests of polling for changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::test_database::{TestDatabase, definitions, rule};
use crate::rulebook::{DatabasePoller, PollOptions, RulebookError};

super::on_both_engines!(
    a_change_by_anybody_is_in_force_by_asking_alone,
    an_edit_of_ones_own_is_in_force_at_once,
    a_requested_poll_reports_when_it_is_done,
    an_invalid_book_leaves_the_old_rules_in_force,
    only_what_changed_is_read_again,
);

/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(60);
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The names of the active rules, as a node would apply them.
pub(super) type ActiveRules = Arc<Mutex<Vec<String>>>;

pub(super) async fn follow(home: &TestDatabase, poll: Duration, listens: bool) -> (DatabasePoller, ActiveRules) {
    let active = ActiveRules::default();
    let applied = Arc::clone(&active);
    let revision = home.rulebook.revision().await.unwrap();
    let follower =
        DatabasePoller::start(home.rulebook.clone(), revision, PollOptions { poll, listens }, move |rules, _| {
            *applied.lock().unwrap() = rules.rules().map(|rule| rule.name.clone()).collect();
        });
    (follower, active)
}

async fn reached(follower: &DatabasePoller, version: u64) {
    tokio::time::timeout(PATIENCE, follower.wait_for_version(version)).await.expect("the change is active in time");
}

async fn a_change_by_anybody_is_in_force_by_asking_alone(home: TestDatabase) {
    let (follower, active) = follow(&home, Duration::from_millis(50), false).await;
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!(*active.lock().unwrap(), ["a"]);
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('b', 'b', 1)").await.unwrap();
    let version = home.version().await;
    reached(&follower, version).await;
    assert_eq!(*active.lock().unwrap(), ["a", "b"]);
    let status = follower.status();
    assert_eq!((status.revision.version, status.is_connected, status.error), (version, true, None));
    assert!(status.loaded_unix_ms > 1_767_225_600_000);
}

async fn an_edit_of_ones_own_is_in_force_at_once(home: TestDatabase) {
    let (follower, active) = follow(&home, NEVER, false).await;
    home.rulebook.import(definitions("{rules: [{name: a, key: a, limits: [1/s]}]}"), true).await.unwrap();
    follower.poll_hint().notify_one();
    reached(&follower, home.version().await).await;
    assert_eq!(*active.lock().unwrap(), ["a"]);
    // As a task would that is notified of changes from elsewhere.
    home.rulebook.remove_rule("a", None).await.unwrap();
    follower.poll_hint().notify_one();
    reached(&follower, home.version().await).await;
    assert!(active.lock().unwrap().is_empty());
}

async fn a_requested_poll_reports_when_it_is_done(home: TestDatabase) {
    let (follower, active) = follow(&home, NEVER, false).await;
    let mut looks = follower.poll_requests();
    for name in ["a", "b", "c"] {
        home.rulebook.add_rule(rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"))).await.unwrap();
        // Another poll may be running, which has not seen it yet.
        follower.poll_hint().notify_one();
        tokio::time::timeout(PATIENCE, looks.poll()).await.expect("it is looked at");
        assert!(active.lock().unwrap().iter().any(|rule| rule == name), "{name}");
    }
}

async fn an_invalid_book_leaves_the_old_rules_in_force(home: TestDatabase) {
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let (follower, active) = follow(&home, Duration::from_millis(20), false).await;
    let before = follower.status();
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('bad', '{', 1)").await.unwrap();
    let start = Instant::now();
    while follower.status().error.is_none() && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = follower.status();
    assert!(status.error.as_ref().is_some_and(|error| error.contains("rule \"bad\"")), "{status:?}");
    assert_eq!((status.revision, status.is_connected), (before.revision, true));
    assert!(active.lock().unwrap().is_empty(), "nothing was applied");
    assert!(matches!(home.book().await.compile(), Err(RulebookError::Invalid { .. })));
    home.rulebook.remove_rule("bad", None).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!((active.lock().unwrap().clone(), follower.status().error), (vec!["a".to_owned()], None));
}

/// Rules, overrides and bans that two rulebooks on one database see, each through its own cache.
async fn only_what_changed_is_read_again(home: TestDatabase) {
    let other = crate::rulebook::Rulebook::open(&home.url).await.unwrap();
    let many = (0..20).map(|number| format!("{{name: r{number}, key: k{number}, limits: [1/s]}}"));
    let many = format!("{{rules: [{}]}}", many.collect::<Vec<_>>().join(", "));
    home.rulebook.import(definitions(&many), true).await.unwrap();
    let (before, theirs) = (home.book().await, other.load().await.unwrap());
    assert_eq!(before, theirs);
    let statements = [
        "UPDATE rate_limit_rule SET description = 'x' WHERE name = 'r3'",
        "DELETE FROM rate_limit_rule WHERE name = 'r5'",
        "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('new', 'new', 1)",
        "INSERT INTO rate_limit_ban (subject) VALUES ('user:1')",
        "INSERT INTO rate_limit_override (rule_name, subject, scale) VALUES ('r1', 'k1', 2)",
        "UPDATE rate_limit_ban SET reason = 'x'",
        "DELETE FROM rate_limit_override",
    ];
    for statement in statements {
        home.sql(statement).await.unwrap();
        let (mine, fresh) = (home.book().await, crate::rulebook::Rulebook::open(&home.url).await.unwrap());
        assert_eq!(mine, fresh.load().await.unwrap(), "{statement}");
        let is_shared = |(one, other): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, other);
        assert!(
            mine.rules.iter().zip(&before.rules).take(3).all(is_shared),
            "{statement}: the first rules are parsed anew"
        );
        fresh.close().await;
    }
    // Edits of the one, then of the other, each on what the other wrote.
    home.rulebook.set_rule("r7", rule("{name: r7, key: k7, limits: [2/s]}"), Some(1)).await.unwrap();
    other.set_rule("r7", rule("{name: r7, key: k7, limits: [3/s]}"), Some(2)).await.unwrap();
    other.remove_rule("r8", Some(1)).await.unwrap();
    home.rulebook.add_rule(rule("{name: r8, key: k8, limits: [4/s]}")).await.unwrap();
    assert_eq!(home.book().await, other.load().await.unwrap());
    assert_eq!((home.limits("r7").await, home.limits("r8").await), (vec!["3/s".to_owned()], vec!["4/s".to_owned()]));
    // What an edit of one item can conflict with is still looked at.
    for refused in [
        home.rulebook.add_rule(rule("{name: twin, key: k9, limits: [1/s]}")).await.map(drop),
        other
            .put_override(
                definitions("{rules: [], overrides: [{rule: gone, subject: k9, scale: 2}]}").overrides.remove(0),
                None,
            )
            .await
            .map(drop),
    ] {
        assert!(matches!(refused, Err(RulebookError::Invalid { .. })), "{refused:?}");
    }
}

/// What PostgreSQL holds, put back as it was: as a replica that takes over without the last edits.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lost_edits_is_loaded_and_told() {
    const TABLES: [&str; 4] = ["checkdam_rulebook", "rate_limit_rule", "rate_limit_override", "rate_limit_ban"];
    let home = TestDatabase::postgres().await;
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let copies: String = TABLES.iter().map(|table| format!("CREATE TABLE old_{table} AS TABLE {table};")).collect();
    home.sql(&copies).await.unwrap();
    let kept = home.version().await;
    let (follower, active) = follow(&home, Duration::from_millis(20), false).await;
    for name in ["b", "c"] {
        home.rulebook.add_rule(rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"))).await.unwrap();
    }
    let lost = home.version().await;
    reached(&follower, lost).await;
    let back =
        TABLES.iter().map(|table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM old_{table};"));
    let back = format!("SET LOCAL session_replication_role = replica; {}", back.collect::<String>());
    home.sql(&back).await.unwrap();
    // By the numbers alone this node would be ahead, and after two edits nothing would have changed.
    for (number, name) in ["x", "y", "z"].into_iter().enumerate() {
        home.rulebook.add_rule(rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"))).await.unwrap();
        assert!(tokio::time::timeout(PATIENCE, follower.poll_requests().poll_until_read()).await.unwrap());
        let expected: Vec<&str> = ["a", "x", "y", "z"].into_iter().take(number + 2).collect();
        assert_eq!(*active.lock().unwrap(), expected);
    }
    let edits = follower.status().lost.expect("it is reported");
    assert_eq!(edits.from_version, lost);
    assert!((kept..=lost).contains(&edits.to_version), "{edits:?}");
    assert_eq!(follower.status().error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_tells_of_changes_long_before_anybody_asks() {
    let home = TestDatabase::postgres().await;
    let (follower, active) = follow(&home, NEVER, true).await;
    for number in 0..5 {
        // By hand: this node is not notified.
        let insert = "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second)";
        home.sql(&format!("{insert} VALUES ('r{number}', 'r{number}', 1)")).await.unwrap();
        let version = home.version().await;
        let start = Instant::now();
        reached(&follower, version).await;
        println!("change noticed and active after {:?}", start.elapsed());
    }
    assert_eq!(active.lock().unwrap().len(), 5);
    // The listener's connection is cut; it comes back by itself.
    home.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' \
              AND datname = current_database()",
    )
    .await
    .unwrap();
    home.rulebook.remove_rule("r0", None).await.unwrap();
    reached(&follower, home.version().await).await;
    assert_eq!(active.lock().unwrap().len(), 4);
}
