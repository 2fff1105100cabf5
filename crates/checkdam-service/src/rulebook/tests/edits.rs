//! Tests of single edits.

use std::sync::Arc;

use checkdam::{Ban, Mode, Override, rule_file};

use super::test_database::{TestDatabase, definitions, rule};
use crate::rulebook::{RulebookError, STARTER};

super::on_both_engines!(
    a_rule_is_added_changed_and_removed,
    a_change_of_what_somebody_else_changed_is_refused,
    rules_come_back_as_they_went,
    a_rule_is_renamed,
    two_enforced_rules_for_the_same_requests_are_refused,
    an_invalid_edit_changes_nothing,
    overrides_come_and_go,
    bans_come_and_go,
    text_that_a_database_cannot_keep_is_refused,
);

async fn a_rule_is_added_changed_and_removed(home: TestDatabase) {
    let book = &home.rulebook;
    let free = rule("{name: free, key: 'user:{user}', when: {plan: free}, limits: [10/s burst 50]}");
    let added = book.add_rule(free.clone()).await.unwrap();
    assert_eq!((added.version, &added.item), (1, &free));
    assert!(added.created_unix_ms > 1_700_000_000_000 && added.updated_unix_ms >= added.created_unix_ms);
    let first = home.version().await;
    assert!(first > 0);
    let again = book.add_rule(free.clone()).await.unwrap_err();
    assert_eq!(again, RulebookError::Exists { what: "rule \"free\"".to_owned() });
    let more = rule("{name: free, key: 'user:{user}', when: {plan: free}, limits: [20/s, 5000/h], mode: shadow}");
    let changed = book.set_rule("free", more.clone(), None).await.unwrap();
    assert_eq!((changed.id, changed.version, &changed.item), (added.id, 2, &more));
    assert_eq!(changed.created_unix_ms, added.created_unix_ms);
    let second = home.version().await;
    assert!(second > first);
    let loaded = home.book().await;
    assert_eq!((loaded.revision.version, loaded.rules), (second, vec![Arc::new(changed)]));
    book.remove_rule("free", None).await.unwrap();
    assert_eq!(home.book().await.rules, []);
    let missing = RulebookError::NotFound { what: "rule \"free\"".to_owned() };
    assert_eq!(book.remove_rule("free", None).await, Err(missing.clone()));
    assert_eq!(book.set_rule("free", more.clone(), None).await, Err(missing));
    let anew = book.add_rule(more).await.unwrap();
    assert!(anew.version == 1 && anew.id != added.id, "numbers are not used again");
}

async fn a_change_of_what_somebody_else_changed_is_refused(home: TestDatabase) {
    let book = &home.rulebook;
    let one = |limit: &str| rule(&format!("{{name: a, key: global, limits: [{limit}]}}"));
    book.add_rule(one("1/s")).await.unwrap();
    assert_eq!(book.set_rule("a", one("2/s"), Some(1)).await.unwrap().version, 2);
    let changed = RulebookError::Changed { what: "rule \"a\"".to_owned(), current: 2 };
    let before = home.version().await;
    assert_eq!(book.set_rule("a", one("3/s"), Some(1)).await, Err(changed.clone()));
    assert_eq!(book.remove_rule("a", Some(1)).await, Err(changed));
    assert_eq!((home.limits("a").await, home.version().await), (vec!["2/s".to_owned()], before));
    assert_eq!(book.set_rule("a", one("4/s"), Some(2)).await.unwrap().version, 3);
    book.remove_rule("a", Some(3)).await.unwrap();
}

async fn rules_come_back_as_they_went(home: TestDatabase) {
    let text = r#"
rules:
  - { name: classic, key: "user:{user}", when: { plan: free }, limits: ["10/s burst 50"] }
  - { name: no-burst, key: "a:{user}", limits: ["10/s"] }
  - { name: slow, key: "b:{user}", limits: ["1/2s burst 3"] }
  - { name: several, key: "c:{user}", limits: ["10/s burst 50", "5000/h", "20000/d initial 5"] }
  - { name: leaky, key: "d:{user}", limits: ["5/s burst 9"], algorithm: leaky_bucket }
  - { name: window, key: "e:{user}", limits: ["100/m", "10/s"], algorithm: fixed_window }
  - { name: seconds, key: "f:{user}", limits: ["10/s"], algorithm: fixed_window }
  - { name: calendar, key: "g:{user}", limits: ["10000 per calendar month"], algorithm: fixed_window }
  - { name: billing, key: "r:{user}", zone: America/New_York, anchor: 15, week_starts: sunday,
      limits: ["10000 per calendar month", "5000 per calendar week", "100 per calendar day zone UTC"] }
  - { name: mixed, key: "p:{user}", limits: ["500/s burst 1000", "1000000 per calendar month", "9/m sliding_window strict"] }
  - { name: classic-named, key: "q:{user}", limits: ["10/s burst 50 token_bucket"], algorithm: sliding_window, strict: true }
  - { name: sliding, key: "h:{user}", limits: ["100/m"], algorithm: sliding_window, mode: shadow }
  - { name: strict, key: "i:{user}", limits: ["100/m"], algorithm: sliding_window, strict: true }
  - { name: log, key: "j:{user}", limits: ["100/m"], algorithm: sliding_log, on_store_failure: closed }
  - { name: leased, key: "k:{user}", limits: ["1000/s burst 2000"], lease: 100ms, on_store_failure: open }
  - { name: auto, key: "l:{user}", limits: ["1000/s burst 2000"], lease: auto, priority: -7, domain: edge }
  - name: conditions
    key: "m:{user}"
    when: { endpoint: ["/users/{id}", "/static/*"], ip: { not_in: [10.0.0.0/8] }, method: { in: [GET, POST], not: GET },
            plan: [free, pro], tenant: { present: true }, who: { equals: "a*b" } }
    limits: ["1/s"]
    scope: customers
    description: "Quotes ' and \" and \\, 中文, and\nlines"
    priority: 2147483647
  - { name: pattern, key: "n:{user}", when: { plan: "pro-*" }, limits: ["1/s"] }
  - { name: off, key: "o:{user}", limits: ["1/s"], mode: "off" }
overrides:
  - { rule: classic, subject: "user:42", limits: ["100/s burst 500", "5/m"], description: a friend }
  - { rule: classic, subject: "user:bot-*", scale: 0.125 }
  - { rule: several, subject: "c:1", scale: 10 }
  - { rule: several, subject: "c:2", unlimited: true }
bans:
  - { subject: "user:13", reason: "scraping, 中文" }
  - { subject: "ip:198.51.100.0/24", until: "2036-12-01T00:00:00Z" }
  - { subject: "user:evil-*" }
"#;
    let given = definitions(text);
    home.rulebook.import(given.clone(), true).await.unwrap();
    let book = home.book().await;
    assert_eq!(book.faults, []);
    assert_eq!(book.definitions(), given);
    book.compile().unwrap();
    // What was written and what is read are equal for another import.
    let again = home.rulebook.import(given.clone(), true).await.unwrap();
    assert_eq!((again.unchanged, again.changed, again.version), (26, 0, book.revision.version));
    let starter = definitions(STARTER);
    home.rulebook.import(starter.clone(), true).await.unwrap();
    assert_eq!(home.book().await.definitions(), starter);
    let exported = rule_file::write(&home.book().await.definitions());
    assert_eq!(definitions(&exported), starter);
}

async fn a_rule_is_renamed(home: TestDatabase) {
    let book = &home.rulebook;
    let named = |name: &str, key: &str| rule(&format!("{{name: {name}, key: '{key}:{{user}}', limits: [1/s]}}"));
    let added = book.add_rule(named("a", "a")).await.unwrap();
    book.add_rule(named("b", "b")).await.unwrap();
    assert!(matches!(book.set_rule("a", named("b", "a"), None).await, Err(RulebookError::Exists { .. })));
    let renamed = book.set_rule("a", named("c", "a"), Some(1)).await.unwrap();
    assert_eq!((renamed.id, renamed.item.name.as_str()), (added.id, "c"));
    book.put_override(rule_file::parse_override("{rule: c, subject: 'a:1', scale: 2}").unwrap(), None).await.unwrap();
    // Neither the old name nor no rule at all may leave an override without its rule.
    for refused in [book.set_rule("c", named("d", "a"), None).await.map(drop), book.remove_rule("c", None).await] {
        let Err(RulebookError::Invalid { reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("a:1") && reason.contains('c'), "{reason}");
    }
}

async fn two_enforced_rules_for_the_same_requests_are_refused(home: TestDatabase) {
    let book = &home.rulebook;
    let named = |name: &str, rest: &str| rule(&format!("{{name: {name}, key: 'user:{{user}}', limits: [1/s]{rest}}}"));
    book.add_rule(named("a", "")).await.unwrap();
    let Err(RulebookError::Invalid { reason }) = book.add_rule(named("b", "")).await else { panic!() };
    assert!(reason.contains("\"a\"") && reason.contains("\"b\""), "{reason}");
    for (name, rest) in [
        ("plan", ", when: {plan: free}"),
        ("domain", ", domain: edge"),
        ("scope", ", scope: other"),
        ("condition", ", when: {method: GET}"),
        ("shadow", ", mode: shadow"),
        ("off", ", mode: 'off'"),
    ] {
        book.add_rule(named(name, rest)).await.unwrap();
    }
    let wakes = book.set_rule("off", named("off", ""), None).await;
    assert!(matches!(wakes, Err(RulebookError::Invalid { .. })), "{wakes:?}");
    assert_eq!(home.book().await.rules.last().unwrap().item.mode, Mode::Off);
}

async fn an_invalid_edit_changes_nothing(home: TestDatabase) {
    let book = &home.rulebook;
    let text = "{rules: [{name: a, key: a, limits: [1/s]}], overrides: [{rule: a, subject: a, scale: 2}], bans: [{subject: 'user:1'}]}";
    book.import(definitions(text), true).await.unwrap();
    let before = home.book().await;
    let unknown = Override { rule: "b".to_owned(), ..before.overrides[0].item.clone() };
    let mut nameless = before.rules[0].item.clone();
    nameless.name = "\u{7}".to_owned();
    let late = Ban { until_unix_s: Some(u64::MAX), ..Ban::new("user:2").unwrap() };
    let refused = [
        book.put_override(unknown, None).await.map(drop),
        book.add_rule(nameless.clone()).await.map(drop),
        book.set_rule("a", nameless, None).await.map(drop),
        book.remove_rule("a", None).await,
        book.put_ban(late, None).await.map(drop),
        book.import(definitions("{rules: [{name: b, key: b, limits: [1/s]}]}"), true).await.map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        // The last one only removes what it does not name, override and all.
        assert_eq!(matches!(refused, Err(RulebookError::Invalid { .. })), number < 5, "{number}: {refused:?}");
    }
    let after = home.book().await;
    assert_eq!((after.rules.len(), after.overrides.len(), after.bans.len()), (1, 0, 0));
    assert_eq!(after.rules[0].item.name, "b");
}

async fn overrides_come_and_go(home: TestDatabase) {
    let book = &home.rulebook;
    book.add_rule(rule("{name: a, key: 'user:{user}', limits: [1/s]}")).await.unwrap();
    let one = |text: &str| rule_file::parse_override(text).unwrap();
    let tenfold = one("{rule: a, subject: 'user:42', scale: 10}");
    let added = book.put_override(tenfold.clone(), None).await.unwrap();
    assert_eq!((added.version, &added.item), (1, &tenfold));
    let free = one("{rule: a, subject: 'user:42', unlimited: true}");
    let changed = book.put_override(free.clone(), Some(1)).await.unwrap();
    assert_eq!((changed.id, changed.version, &changed.item), (added.id, 2, &free));
    let late = book.put_override(tenfold, Some(1)).await;
    assert!(matches!(late, Err(RulebookError::Changed { current: 2, .. })), "{late:?}");
    assert_eq!(home.book().await.overrides, [Arc::new(changed)]);
    let missing = book.remove_override("a", "user:43", None).await;
    assert!(matches!(missing, Err(RulebookError::NotFound { .. })), "{missing:?}");
    let late = book.remove_override("a", "user:42", Some(1)).await;
    assert!(matches!(late, Err(RulebookError::Changed { current: 2, .. })), "{late:?}");
    book.remove_override("a", "user:42", Some(2)).await.unwrap();
    assert_eq!(home.book().await.overrides, []);
}

async fn bans_come_and_go(home: TestDatabase) {
    let book = &home.rulebook;
    let mut ban = Ban::new("ip:198.51.100.7/24").unwrap();
    ban.until_unix_s = Some(2_000_000_001);
    ban.reason = "scraping".to_owned();
    let added = book.put_ban(ban.clone(), None).await.unwrap();
    assert_eq!((added.version, &added.item), (1, &ban));
    ban.until_unix_s = None;
    let before = home.version().await;
    let changed = book.put_ban(ban.clone(), None).await.unwrap();
    assert_eq!((changed.id, changed.version, &changed.item), (added.id, 2, &ban));
    assert!(home.version().await > before);
    assert_eq!(home.book().await.bans, [Arc::new(changed)]);
    // The same network, however it is spelled.
    book.remove_ban("ip:198.51.100.0/24", Some(2)).await.unwrap();
    let missing = book.remove_ban("user:1", None).await;
    assert_eq!(missing, Err(RulebookError::NotFound { what: "ban \"user:1\"".to_owned() }));
}

async fn text_that_a_database_cannot_keep_is_refused(home: TestDatabase) {
    let mut one = rule("{name: a, key: a, when: {user: \"x\\0y\"}, limits: [1/s]}");
    let by_condition = home.rulebook.add_rule(one.clone()).await;
    one.when.clear();
    one.description = "\0".to_owned();
    let by_description = home.rulebook.add_rule(one).await;
    for refused in [by_condition, by_description] {
        let Err(RulebookError::Invalid { reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains("NUL"), "{reason}");
    }
    assert_eq!(home.version().await, 0);
}
