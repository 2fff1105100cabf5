//! Tests of concurrent readers and writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::test_database::{TestDatabase, definitions, rule};
use crate::rulebook::{Rulebook, RulebookError};

super::on_both_engines!(
    a_reader_sees_an_edit_whole_or_not_at_all,
    of_many_who_change_the_same_version_one_wins,
    edits_and_changes_by_hand_all_count,
);

async fn a_reader_sees_an_edit_whole_or_not_at_all(home: TestDatabase) {
    let state = |limit: u32| {
        definitions(&format!(
            "{{rules: [{{name: a, key: a, limits: [{limit}/s]}}, {{name: b, key: b, limits: [{limit}/s]}}], \
             overrides: [{{rule: a, subject: a, limits: [{limit}/s]}}]}}"
        ))
    };
    home.rulebook.import(state(1), true).await.unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (book, is_done) = (home.rulebook.clone(), Arc::clone(&is_done));
            tokio::spawn(async move {
                let (mut reached, mut states) = (0, std::collections::HashSet::new());
                while !is_done.load(Ordering::Relaxed) {
                    let seen = book.load().await.unwrap();
                    assert!(seen.revision.version >= reached, "the version went back");
                    reached = seen.revision.version;
                    let definitions = seen.definitions();
                    let limit = definitions.rules[0].quotas[0].spec().amount;
                    let expected = self::definitions(&format!(
                        "{{rules: [{{name: a, key: a, limits: [{limit}/s]}}, {{name: b, key: b, limits: [{limit}/s]}}], \
                         overrides: [{{rule: a, subject: a, limits: [{limit}/s]}}]}}"
                    ));
                    assert_eq!(definitions, expected, "half an edit");
                    states.insert(limit);
                }
                states.len()
            })
        })
        .collect();
    for limit in 2..60 {
        home.rulebook.import(state(limit), true).await.unwrap();
    }
    is_done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() > 1, "the reader saw only one state: it proves nothing");
    }
}

async fn of_many_who_change_the_same_version_one_wins(home: TestDatabase) {
    home.rulebook.add_rule(rule("{name: a, key: a, limits: [1/s]}")).await.unwrap();
    let others = Rulebook::open(&home.url).await.unwrap();
    let writers: Vec<_> = (0..12)
        .map(|number| {
            let book = if number % 2 == 0 { home.rulebook.clone() } else { others.clone() };
            let mine = rule(&format!("{{name: a, key: a, limits: [{}/s]}}", number + 10));
            tokio::spawn(async move { book.set_rule("a", mine, Some(1)).await })
        })
        .collect();
    let mut won = Vec::new();
    for writer in writers {
        match writer.await.unwrap() {
            Ok(stored) => won.push(stored),
            Err(RulebookError::Changed { current: 2, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(won.len(), 1);
    assert_eq!(*home.book().await.rules[0], won[0]);
}

async fn edits_and_changes_by_hand_all_count(home: TestDatabase) {
    let home = Arc::new(home);
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let home = Arc::clone(&home);
        tasks.push(tokio::spawn(async move {
            for number in 0..10 {
                let name = format!("r{writer}-{number}");
                let before = home.version().await;
                if writer % 2 == 0 {
                    let one = rule(&format!("{{name: {name}, key: {name}, limits: [1/s]}}"));
                    home.rulebook.add_rule(one).await.unwrap();
                } else {
                    let insert = "INSERT INTO rate_limit_rule (name, key_pattern, rate_per_second)";
                    home.sql(&format!("{insert} VALUES ('{name}', '{name}', 1)")).await.unwrap();
                }
                assert!(home.version().await > before);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let book = home.book().await;
    assert_eq!((book.rules.len(), book.faults.len()), (40, 0));
    assert!(book.revision.version >= 40);
}
