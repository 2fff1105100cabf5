//! Tests of imports.

use std::fmt::Write;

use checkdam::Definitions;
use tokio::time::Instant;

use super::test_database::{TestDatabase, definitions, rule};
use crate::rulebook::{DatabaseUrl, ImportCounts, OpenError, Rulebook, RulebookError, STARTER};

super::on_both_engines!(
    an_import_adds_and_changes_and_removes_only_if_asked,
    an_import_is_all_or_nothing,
    a_rehearsal_changes_nothing,
    rules_may_change_places,
    starter_rules_come_only_once,
    a_database_is_opened_by_many_at_once,
    a_database_of_a_newer_program_is_refused,
    a_hundred_thousand_overrides_are_imported_and_loaded,
);

const BEFORE: &str = "{rules: [{name: a, key: a, limits: [1/s]}, {name: b, key: b, limits: [1/s]}], \
    bans: [{subject: 'user:1'}]}";
const AFTER: &str = "{rules: [{name: b, key: b, limits: [2/s]}, {name: c, key: c, limits: [1/s]}], \
    overrides: [{rule: c, subject: c, scale: 2}], bans: [{subject: 'user:1'}]}";

fn names(definitions: &Definitions) -> Vec<&str> {
    definitions.rules.iter().map(|rule| rule.name.as_str()).collect()
}

async fn an_import_adds_and_changes_and_removes_only_if_asked(home: TestDatabase) {
    let first = home.rulebook.import(definitions(BEFORE), false).await.unwrap();
    assert_eq!(first, ImportCounts { version: home.version().await, added: 3, ..ImportCounts::default() });
    let merged = home.rulebook.import(definitions(AFTER), false).await.unwrap();
    assert_eq!((merged.added, merged.changed, merged.removed, merged.unchanged), (2, 1, 0, 1));
    assert!(merged.version > first.version);
    let book = home.book().await;
    assert_eq!(names(&book.definitions()), ["a", "b", "c"]);
    let replaced = home.rulebook.import(definitions(AFTER), true).await.unwrap();
    assert_eq!((replaced.added, replaced.changed, replaced.removed, replaced.unchanged), (0, 0, 1, 4));
    let after = home.book().await;
    assert_eq!(after.definitions(), definitions(AFTER));
    assert_eq!(after.rules[0], book.rules[1], "what did not change keeps its version");
}

async fn an_import_is_all_or_nothing(home: TestDatabase) {
    home.rulebook.import(definitions(BEFORE), false).await.unwrap();
    let before = home.book().await;
    let good = definitions(AFTER);
    let mut twice = good.clone();
    twice.rules.push(good.rules[1].clone());
    let mut unknown = good.clone();
    unknown.overrides[0].rule = "nobody".to_owned();
    let mut same = good.clone();
    same.rules[1].key = same.rules[0].key.clone();
    same.rules[1].scope = same.rules[0].scope.clone();
    for (bad, said) in [(twice, "\"c\""), (unknown, "nobody"), (same, "same domain, key")] {
        for replace in [false, true] {
            let Err(RulebookError::Invalid { reason }) = home.rulebook.import(bad.clone(), replace).await else {
                panic!("{said}")
            };
            assert!(reason.contains(said), "{reason}");
            assert_eq!(home.book().await, before);
        }
    }
}

async fn a_rehearsal_changes_nothing(home: TestDatabase) {
    home.rulebook.import(definitions(BEFORE), false).await.unwrap();
    let before = home.book().await;
    let would = home.rulebook.dry_run_import(definitions(AFTER), true).await.unwrap();
    assert_eq!((would.added, would.changed, would.removed, would.unchanged), (2, 1, 1, 1));
    assert_eq!((would.version, home.book().await), (before.revision.version, before));
}

async fn rules_may_change_places(home: TestDatabase) {
    let swapped = |one: &str, other: &str| {
        definitions(&format!(
            "{{rules: [{{name: a, key: k, when: {{plan: {one}}}, limits: [1/s]}}, \
             {{name: b, key: k, when: {{plan: {other}}}, limits: [1/s]}}]}}"
        ))
    };
    home.rulebook.import(swapped("free", "pro"), true).await.unwrap();
    let changed = home.rulebook.import(swapped("pro", "free"), true).await.unwrap();
    assert_eq!(changed.changed, 2);
    assert_eq!(home.book().await.definitions(), swapped("pro", "free"));
}

async fn starter_rules_come_only_once(home: TestDatabase) {
    let starter = definitions(STARTER);
    assert_eq!(home.rulebook.seed(starter.clone()).await.unwrap().added, starter.rules.len());
    assert_eq!(home.book().await.definitions(), starter);
    home.rulebook.import(Definitions::default(), true).await.unwrap();
    assert_eq!(home.rulebook.seed(starter).await.unwrap().added, 0);
    assert_eq!(home.book().await.definitions(), Definitions::default(), "their removal was intended");
}

async fn a_database_is_opened_by_many_at_once(home: TestDatabase) {
    home.sql(
        "DROP TABLE checkdam_schema; DROP TABLE rate_limit_rule; DROP TABLE rate_limit_override; \
              DROP TABLE rate_limit_ban; DROP TABLE checkdam_rulebook; DROP TABLE rate_limit_violation; \
              DROP TABLE rate_limit_change",
    )
    .await
    .unwrap();
    if matches!(home.url, DatabaseUrl::Postgres(_)) {
        let functions = ["rules_changed", "only_forward", "name_rule", "row_changed", "new_revision"];
        let drops: String = functions.iter().map(|name| format!("DROP FUNCTION checkdam_{name};")).collect();
        home.sql(&drops).await.unwrap();
    }
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let url = home.url.clone();
            tokio::spawn(async move {
                let book = Rulebook::open(&url).await.unwrap();
                book.seed(definitions(STARTER)).await.unwrap().added
            })
        })
        .collect();
    let mut added = 0;
    for opener in openers {
        added += opener.await.unwrap();
    }
    let starter = definitions(STARTER);
    assert_eq!((added, home.book().await.definitions()), (starter.rules.len(), starter), "one of them planted them");
}

async fn a_database_of_a_newer_program_is_refused(home: TestDatabase) {
    home.sql("INSERT INTO checkdam_schema (version) VALUES (1000)").await.unwrap();
    let refused = Rulebook::open(&home.url).await.unwrap_err();
    assert!(matches!(refused, OpenError::TooNew { found: 1000, .. }), "{refused}");
}

async fn a_hundred_thousand_overrides_are_imported_and_loaded(home: TestDatabase) {
    let mut text = "rules:\n- {name: a, key: 'user:{user}', limits: [10/s burst 50]}\noverrides:\n".to_owned();
    for user in 0..100_000 {
        writeln!(text, "- {{rule: a, subject: 'user:{user}', limits: ['{}/s burst 500']}}", 100 + user % 7).unwrap();
    }
    let given = checkdam::rule_file::parse_definitions_within(&text, 64 << 20).unwrap();
    let timed = |what: &str, since: Instant| println!("{what}: {:?}", since.elapsed());
    let start = Instant::now();
    home.rulebook.import(given.clone(), true).await.unwrap();
    timed("import of 100,000 overrides", start);
    let start = Instant::now();
    let book = home.book().await;
    timed("load", start);
    let start = Instant::now();
    book.compile().unwrap();
    timed("compile", start);
    assert!(book.definitions() == given);
    let start = Instant::now();
    home.rulebook.add_rule(rule("{name: b, key: b, limits: [1/s]}")).await.unwrap();
    timed("one edit beside them", start);
    let start = Instant::now();
    let none = home.rulebook.import(given, false).await.unwrap();
    timed("the same import again", start);
    assert_eq!((none.unchanged, none.changed), (100_001, 0));
    let start = Instant::now();
    home.rulebook.import(Definitions::default(), true).await.unwrap();
    timed("removal", start);
}
