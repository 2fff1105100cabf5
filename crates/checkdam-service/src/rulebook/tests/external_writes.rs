//! Tests of rows that other programs write.

use super::test_database::{TestDatabase, rule};
use crate::rulebook::RulebookError;

super::on_both_engines!(
    a_row_with_the_classic_columns_is_a_rule,
    classic_columns_may_be_changed_by_hand,
    every_change_by_hand_moves_the_version,
    rules_for_the_same_requests_are_refused_by_the_database,
    an_invalid_row_is_reported_and_can_be_mended,
    rows_that_say_nothing_valid_are_named,
    the_version_only_moves_forward,
);

const CLASSIC: &str = "INSERT INTO rate_limit_rule \
    (key_pattern, scope, rate_per_second, burst_capacity, plan, is_active, description) VALUES ";

async fn a_row_with_the_classic_columns_is_a_rule(home: TestDatabase) {
    let before = home.version().await;
    let rows = "('user:{user}', 'user', 10, 50, 'free', TRUE, 'The free plan'), \
        ('user:{user}', 'user', 0.5, 5, NULL, TRUE, NULL), ('global', NULL, 1000, NULL, NULL, FALSE, NULL)";
    home.sql(&format!("{CLASSIC}{rows}")).await.unwrap();
    assert!(home.version().await > before);
    let book = home.book().await;
    book.compile().unwrap();
    let [free, any, off] = book.rules.as_slice() else { panic!("{book:?}") };
    assert_eq!(free.item, {
        let mut expected = rule("{name: x, key: 'user:{user}', when: {plan: free}, limits: [10/s burst 50]}");
        expected.name = format!("rule-{}", free.id);
        expected.description = "The free plan".to_owned();
        expected
    });
    assert_eq!((free.version, any.version), (1, 1));
    assert_eq!(any.item.quotas[0].to_string(), "1/2s burst 5");
    assert_eq!((off.item.mode, off.item.scope.as_str()), (checkdam::Mode::Off, "global"));
    let (id, name) = (free.id, free.item.name.clone());
    let changed = home.rulebook.set_rule(&name, free.item.clone(), Some(1)).await.unwrap();
    assert_eq!((changed.id, changed.version), (id, 2));
}

async fn classic_columns_may_be_changed_by_hand(home: TestDatabase) {
    let book = &home.rulebook;
    book.add_rule(rule("{name: one, key: a, limits: [10/s burst 50]}")).await.unwrap();
    book.add_rule(rule("{name: two, key: b, limits: [10/s burst 50, 5000/h]}")).await.unwrap();
    home.sql("UPDATE rate_limit_rule SET rate_per_second = 20, burst_capacity = 60 WHERE name = 'one'").await.unwrap();
    assert_eq!(home.limits("one").await, ["20/s burst 60"]);
    let one = home.book().await.rules[0].clone();
    assert_eq!(one.version, 2);
    // Two conflicting limits are reported, not ignored.
    home.sql("UPDATE rate_limit_rule SET rate_per_second = 20 WHERE name = 'two'").await.unwrap();
    let faults = home.book().await.faults;
    assert_eq!(faults.len(), 1);
    assert!(faults[0].what == "rule \"two\"" && faults[0].reason.contains("10/s burst 50"), "{faults:?}");
    home.sql("UPDATE rate_limit_rule SET limits = NULL WHERE name = 'two'").await.unwrap();
    assert_eq!(home.limits("two").await, ["20/s burst 50"]);
    home.sql("UPDATE rate_limit_rule SET is_active = FALSE WHERE name = 'two'").await.unwrap();
    assert_eq!(home.book().await.rules[1].item.mode, checkdam::Mode::Off);
}

async fn every_change_by_hand_moves_the_version(home: TestDatabase) {
    let mut reached = home.version().await;
    for statement in [
        "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('a', 'a', 1)",
        "UPDATE rate_limit_rule SET description = 'x'",
        "INSERT INTO rate_limit_override (rule_name, subject, scale) VALUES ('a', 'a', 2.50)",
        "UPDATE rate_limit_override SET scale = 3",
        "INSERT INTO rate_limit_ban (subject, until, reason) VALUES ('user:1', '2036-01-01 00:00:00+00:00', 'x')",
        "UPDATE rate_limit_ban SET until = NULL",
        "DELETE FROM rate_limit_ban",
        "DELETE FROM rate_limit_override",
        "DELETE FROM rate_limit_rule",
    ] {
        home.sql(statement).await.unwrap();
        let book = home.book().await;
        assert!(book.revision.version > reached, "{statement}");
        book.compile().unwrap();
        reached = book.revision.version;
        if statement.contains("2.50") {
            assert_eq!(book.overrides[0].item.allowance, checkdam::Allowance::Scale("2.5".parse().unwrap()));
        }
        if statement.contains("2036") {
            assert_eq!(book.bans[0].item.until_unix_s, Some(2_082_758_400));
        }
        let rows = book.overrides.iter().map(|row| row.version).chain(book.bans.iter().map(|row| row.version));
        let is_update = statement.starts_with("UPDATE") && !statement.contains("rule");
        assert!(rows.max().unwrap_or_default() == u64::from(is_update) + 1 || !is_update, "{statement}");
    }
}

async fn rules_for_the_same_requests_are_refused_by_the_database(home: TestDatabase) {
    let insert = |plan: &str, mode: &str, conditions: &str| {
        format!(
            "INSERT INTO rate_limit_rule (key_pattern, rate_per_second, plan, mode, conditions) \
             VALUES ('user:{{user}}', 1, {plan}, '{mode}', {conditions})"
        )
    };
    home.sql(&insert("NULL", "enforce", "NULL")).await.unwrap();
    home.sql(&insert("'free'", "enforce", "NULL")).await.unwrap();
    home.sql(&insert("''", "enforce", "NULL")).await.unwrap();
    home.sql(&insert("NULL", "enforce", "'{\"method\": \"GET\"}'")).await.unwrap();
    let before = home.version().await;
    assert!(home.sql(&insert("NULL", "enforce", "NULL")).await.is_err(), "no plan is a plan like any other");
    assert!(home.sql(&insert("'free'", "enforce", "'{}'")).await.is_err(), "no conditions are none");
    assert!(home.sql(&insert("NULL", "enforce", "'{ \"method\":\"GET\"}'")).await.is_err(), "spaces say nothing");
    assert_eq!(home.version().await, before);
    home.sql(&insert("NULL", "shadow", "NULL")).await.unwrap();
    assert!(home.sql("UPDATE rate_limit_rule SET mode = 'enforce'").await.is_err());
}

async fn an_invalid_row_is_reported_and_can_be_mended(home: TestDatabase) {
    let book = &home.rulebook;
    let good = rule("{name: good, key: good, limits: [1/s]}");
    book.add_rule(good.clone()).await.unwrap();
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second) VALUES ('bad', 'user:{user', 1)")
        .await
        .unwrap();
    let loaded = home.book().await;
    assert_eq!((loaded.rules.len(), loaded.faults.len()), (1, 1));
    let Err(RulebookError::Invalid { reason }) = loaded.compile() else { panic!() };
    assert!(reason.starts_with("rule \"bad\": ") && reason.contains("user:{user"), "{reason}");
    // Edits that leave it there are rejected, those that fix or remove it are not.
    let refused = book.add_rule(rule("{name: other, key: other, limits: [1/s]}")).await;
    let Err(RulebookError::Invalid { reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("rule \"bad\"") && reason.contains("correct or remove it first"), "{reason}");
    let mended = book.set_rule("bad", rule("{name: bad, key: 'user:{user}', limits: [1/s]}"), Some(1)).await.unwrap();
    assert_eq!(mended.version, 2);
    home.book().await.compile().unwrap();
    home.sql("UPDATE rate_limit_rule SET algorithm = 'magic' WHERE name = 'bad'").await.unwrap();
    assert_eq!(home.book().await.faults.len(), 1);
    // Of two, one may go before the other.
    home.sql("INSERT INTO rate_limit_rule (name, key_pattern) VALUES ('worse', 'worse')").await.unwrap();
    book.remove_rule("bad", Some(3)).await.unwrap();
    book.remove_rule("worse", None).await.unwrap();
    home.book().await.compile().unwrap();
}

async fn rows_that_say_nothing_valid_are_named(home: TestDatabase) {
    let rule = |columns: &str, values: &str| {
        format!("INSERT INTO rate_limit_rule (name, key_pattern, {columns}) VALUES ('bad', 'k:{{user}}', {values})")
    };
    let table = [
        (rule("rate_per_second", "0"), "rule \"bad\": rate_per_second is 0"),
        (rule("rate_per_second, burst_capacity", "1, -5"), "rule \"bad\": burst_capacity is -5"),
        (rule("description", "'x'"), "rule \"bad\": it has neither limits nor"),
        (rule("limits", "'[\"many\"]'"), "rule \"bad\":"),
        (rule("limits", "'[]'"), "rule \"bad\":"),
        (rule("rate_per_second, mode", "1, 'maybe'"), "rule \"bad\":"),
        (rule("rate_per_second, lease", "1, 'soon'"), "rule \"bad\":"),
        (rule("rate_per_second, plan, conditions", "1, 'x', '{\"plan\": \"y\"}'"), "rule \"bad\": its plan"),
        (rule("rate_per_second, options", "1, '{\"mode\": \"off\"}'"), "rule \"bad\": options has \"mode\""),
        (rule("rate_per_second, options", "1, '{\"colour\": 1}'"), "rule \"bad\": unknown field `colour`"),
        (
            "INSERT INTO rate_limit_override (rule_name, subject) VALUES ('x', 'y')".to_owned(),
            "override of \"y\" for rule \"x\": it says nothing",
        ),
        (
            "INSERT INTO rate_limit_override (rule_name, subject, scale, is_unlimited) VALUES ('x', 'y', 2, TRUE)"
                .to_owned(),
            "override of \"y\" for rule \"x\": it says two things",
        ),
        ("INSERT INTO rate_limit_ban (subject) VALUES ('nobody')".to_owned(), "ban \"nobody\":"),
    ];
    for (statement, expected) in table {
        home.sql(&statement).await.unwrap();
        let Err(RulebookError::Invalid { reason }) = home.book().await.compile() else { panic!("{statement}") };
        assert!(reason.starts_with(expected), "{statement}: {reason}");
        home.sql("DELETE FROM rate_limit_rule; DELETE FROM rate_limit_override; DELETE FROM rate_limit_ban")
            .await
            .unwrap();
    }
    for malformed in ["'{'", "'{}'"] {
        assert!(home.sql(&rule("limits", malformed)).await.is_err(), "{malformed}");
    }
}

async fn the_version_only_moves_forward(home: TestDatabase) {
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let before = home.version().await;
    for statement in ["SET version = 0", "SET version = version", "SET version = version - 1"] {
        assert!(home.sql(&format!("UPDATE checkdam_rulebook {statement}")).await.is_err(), "{statement}");
    }
    assert!(home.sql("INSERT INTO checkdam_rulebook (version) VALUES (7)").await.is_err(), "there is only one");
    assert_eq!(home.version().await, before);
}
