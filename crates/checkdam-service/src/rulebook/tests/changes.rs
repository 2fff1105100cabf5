//! Tests of the change log.

use checkdam::{Ban, rule_file};
use serde_json::json;

use super::test_database::{TestDatabase, definitions, rule};
use crate::rulebook::{Change, ChangeFilter, STARTER};

super::on_both_engines!(
    every_edit_is_recorded_with_who_made_it,
    an_import_is_one_change,
    what_is_refused_or_rehearsed_is_not_recorded,
    the_log_keeps_the_newest,
    a_long_description_does_not_hide_the_limits,
    changes_are_filtered_and_paged,
);

async fn all(home: &TestDatabase) -> Vec<Change> {
    home.rulebook.changes(&ChangeFilter { limit: 1_000, ..ChangeFilter::default() }).await.unwrap()
}

async fn every_edit_is_recorded_with_who_made_it(home: TestDatabase) {
    let (alice, bob) = (home.rulebook.edited_by("alice"), home.rulebook.edited_by("bob"));
    let first = rule("{name: free, key: 'user:{user}', limits: [10/s]}");
    alice.add_rule(first).await.unwrap();
    let renamed = rule("{name: plus, key: 'user:{user}', limits: [20/s]}");
    bob.set_rule("free", renamed, None).await.unwrap();
    let one = definitions("rules: []\noverrides: [{rule: plus, subject: 'user:42', scale: 2}]").overrides.remove(0);
    bob.put_override(one.clone(), None).await.unwrap();
    bob.put_override(one, None).await.unwrap();
    bob.remove_override("plus", "user:42", None).await.unwrap();
    alice.put_ban(Ban::new("user:7").unwrap(), None).await.unwrap();
    alice.remove_ban("user:7", None).await.unwrap();
    bob.remove_rule("plus", None).await.unwrap();
    let changes = all(&home).await;
    let told: Vec<_> = changes
        .iter()
        .rev()
        .map(|change| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!(
                "{} {} {} {} {}",
                change.actor,
                change.action,
                change.kind,
                text(&change.name),
                text(&change.subject)
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "alice add rule free ",
            "bob change rule free ",
            "bob add override plus user:42",
            "bob change override plus user:42",
            "bob remove override plus user:42",
            "alice add ban  user:7",
            "alice remove ban  user:7",
            "bob remove rule plus ",
        ]
    );
    let change = &changes[6];
    assert_eq!(change.before.as_ref().unwrap()["limits"], json!(["10/s"]), "{change:?}");
    assert_eq!(change.after.as_ref().unwrap()["name"], "plus", "{change:?}");
    assert_eq!((&changes[7].before, &changes[0].after), (&None, &None));
    assert!(changes.windows(2).all(|pair| pair[0].version > pair[1].version), "{changes:?}");
    assert!(changes.iter().all(|change| *change.changed_at > *"2024" && change.changed_at.ends_with('Z')));
    assert_eq!(changes[0].version.unsigned_abs(), home.version().await, "recording is no edit");
}

async fn an_import_is_one_change(home: TestDatabase) {
    home.rulebook.seed(rule_file::parse_definitions(STARTER).unwrap()).await.unwrap();
    let text = "rules:\n  - {name: a, key: 'a:{a}', limits: [1/s]}\n  - {name: b, key: 'b:{b}', limits: [1/s]}\n\
                bans: [{subject: 'user:1'}]";
    let alice = home.rulebook.edited_by("alice");
    alice.import(definitions(text), true).await.unwrap();
    alice.import(definitions(text), true).await.unwrap();
    let changes = all(&home).await;
    assert_eq!(changes.len(), 2, "an import that changes nothing is no change: {changes:?}");
    let [import, seed] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&*seed.actor, &*seed.action, &*seed.kind), ("checkdam", "seed", "rulebook"));
    assert_eq!((&*import.actor, &*import.action), ("alice", "import"));
    let after = import.after.as_ref().unwrap();
    assert_eq!((&after["added"], &after["changed"]), (&json!(3), &json!(0)), "{after}");
    assert!(after["removed"].as_u64().unwrap() > 0, "{after}");
    let items = after["items"].as_array().unwrap();
    assert!(items.contains(&json!({"action": "add", "kind": "rule", "name": "a", "subject": null})), "{after}");
    assert!(items.contains(&json!({"action": "add", "kind": "ban", "name": null, "subject": "user:1"})), "{after}");
    assert!(items.iter().any(|item| item["action"] == "remove"), "{after}");

    let many: String = (0..300).map(|number| format!("  - {{subject: 'user:{number}'}}\n")).collect();
    alice.import(definitions(&format!("rules: []\nbans:\n{many}")), false).await.unwrap();
    let import = all(&home).await.remove(0);
    let after = import.after.unwrap();
    assert_eq!((&after["added"], after["items"].as_array().unwrap().len()), (&json!(299), 100));
}

async fn what_is_refused_or_rehearsed_is_not_recorded(home: TestDatabase) {
    let book = &home.rulebook;
    assert!(book.remove_rule("nobody", None).await.is_err());
    book.dry_run_import(definitions("rules: [{name: a, key: 'a:{a}', limits: [1/s]}]"), false).await.unwrap();
    assert!(book.remove_ban("user:1", None).await.is_err());
    assert_eq!(all(&home).await, []);
}

async fn the_log_keeps_the_newest(home: TestDatabase) {
    let book = home.rulebook.clone().keeping_changes(5);
    for number in 0..12 {
        book.put_ban(Ban::new(&format!("user:{number}")).unwrap(), None).await.unwrap();
    }
    let subjects: Vec<_> = all(&home).await.into_iter().filter_map(|change| change.subject).collect();
    assert_eq!(subjects, ["user:11", "user:10", "user:9", "user:8", "user:7"]);
    home.rulebook.clone().keeping_changes(0).put_ban(Ban::new("user:99").unwrap(), None).await.unwrap();
    assert_eq!(all(&home).await.len(), 5, "none is recorded");
    let paths: Vec<String> = (0..50).map(|number| format!("/{number}/{}", "x".repeat(200))).collect();
    let long = rule(&format!("{{name: long, key: all, when: {{endpoint: [{}]}}, limits: [1/s]}}", paths.join(", ")));
    book.add_rule(long).await.unwrap();
    let after = all(&home).await.remove(0).after.unwrap();
    assert!(after["when"]["left_out_bytes"].as_u64().unwrap() > 10_000, "long conditions are left out: {after}");
    assert_eq!((&after["name"], &after["limits"]), (&json!("long"), &json!(["1/s"])), "{after}");
}

async fn a_long_description_does_not_hide_the_limits(home: TestDatabase) {
    let described = |limit: &str| {
        let description = "ä".repeat(20_000);
        rule(&format!("{{name: padded, key: all, description: {description}, limits: [{limit}]}}"))
    };
    home.rulebook.add_rule(described("1/s")).await.unwrap();
    home.rulebook.set_rule("padded", described("1000000/s"), None).await.unwrap();
    let change = all(&home).await.remove(0);
    let (before, after) = (change.before.unwrap(), change.after.unwrap());
    assert_eq!((&before["limits"], &after["limits"]), (&json!(["1/s"]), &json!(["1000000/s"])));
    for item in [before, after] {
        let description = item["description"].as_str().unwrap();
        assert!(description.starts_with("ää") && description.ends_with("… (40000 bytes)"), "{description}");
        assert!(item.to_string().len() < 1_000, "{item}");
    }
}

async fn changes_are_filtered_and_paged(home: TestDatabase) {
    for (actor, number) in [("alice", 1), ("bob", 2), ("alice", 3), ("alice", 4)] {
        home.rulebook.edited_by(actor).put_ban(Ban::new(&format!("user:{number}")).unwrap(), None).await.unwrap();
    }
    let subjects = async |filter: ChangeFilter| {
        let found = home.rulebook.changes(&filter).await.unwrap();
        found.into_iter().filter_map(|change| Some((change.id, change.subject?))).collect::<Vec<_>>()
    };
    let names = |found: &[(i64, String)]| found.iter().map(|(_, subject)| subject.clone()).collect::<Vec<_>>();
    let alice = ChangeFilter { actor: Some("alice".to_owned()), limit: 2, ..ChangeFilter::default() };
    let first = subjects(alice.clone()).await;
    assert_eq!(names(&first), ["user:4", "user:3"]);
    let second = subjects(ChangeFilter { before_id: Some(first[1].0), ..alice }).await;
    assert_eq!(names(&second), ["user:1"]);
    for filter in [
        ChangeFilter { subject: Some("user:2".to_owned()), ..ChangeFilter::default() },
        ChangeFilter { actor: Some("bob".to_owned()), kind: Some("ban".to_owned()), ..ChangeFilter::default() },
        ChangeFilter { actor: Some("bob".to_owned()), since_unix_ms: Some(1_000), ..ChangeFilter::default() },
    ] {
        assert_eq!(names(&subjects(ChangeFilter { limit: 10, ..filter }).await), ["user:2"]);
    }
    for filter in [
        ChangeFilter { until_unix_ms: Some(1_000), ..ChangeFilter::default() },
        ChangeFilter { kind: Some("rule".to_owned()), ..ChangeFilter::default() },
        ChangeFilter { action: Some("remove".to_owned()), ..ChangeFilter::default() },
        ChangeFilter { name: Some("user:2".to_owned()), ..ChangeFilter::default() },
    ] {
        assert_eq!(subjects(ChangeFilter { limit: 10, ..filter.clone() }).await, [], "{filter:?}");
    }
}
