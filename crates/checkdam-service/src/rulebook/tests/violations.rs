//! Tests of recorded violations.

use super::test_database::{TestDatabase, rule};
use crate::rulebook::{Retention, Violation, ViolationFilter};

super::on_both_engines!(
    violations_are_found_newest_first,
    violations_are_turned_page_by_page,
    old_and_surplus_violations_are_pruned,
    odd_text_does_not_cost_the_batch,
    violations_are_bounded_by_rule_and_by_bytes,
);

/// 2026-01-01, and so many milliseconds.
fn violation(after_ms: i64, user: &str) -> Violation {
    Violation {
        bucket_key: format!("free:user:{user}"),
        user_id: Some(user.to_owned()),
        ip_address: Some(format!("203.0.113.{}", after_ms % 3)),
        endpoint: Some("/api/search".to_owned()),
        requested_at_ms: 1_767_225_600_000 + after_ms,
        tokens_at_time: 0.0,
        rule: Some(if after_ms % 2 == 0 { "free" } else { "gone" }.to_owned()),
        subject: Some(format!("user:{user}")),
        method: Some("GET".to_owned()),
        tenant: None,
        cost: 3,
        limit: Some("10/s burst 50".to_owned()),
        retry_after_ms: Some(250),
        node: Some("n1".to_owned()),
        decided_by: Some("memory".to_owned()),
        ..Violation::default()
    }
}

/// A violation as it was before it was kept.
fn recorded(kept: &Violation) -> Violation {
    Violation { id: 0, rule_id: None, requested_at: String::new(), ..kept.clone() }
}

async fn found(home: &TestDatabase, filter: ViolationFilter) -> Vec<Violation> {
    let limit = if filter.limit == 0 { 1_000 } else { filter.limit };
    home.rulebook.violations(&ViolationFilter { limit, ..filter }).await.unwrap()
}

async fn violations_are_found_newest_first(home: TestDatabase) {
    let free = home.rulebook.add_rule(rule("{name: free, key: 'user:{user}', limits: [1/s]}")).await.unwrap();
    home.rulebook.write_violations(&[]).await.unwrap();
    // Written by two nodes, not in the order in which they happened.
    let late: Vec<Violation> = (5..10).map(|n| violation(n, &(n % 2).to_string())).collect();
    let early: Vec<Violation> = (0..5).map(|n| violation(n, &(n % 2).to_string())).collect();
    home.rulebook.write_violations(&late).await.unwrap();
    home.rulebook.write_violations(&early).await.unwrap();
    let all = found(&home, ViolationFilter::default()).await;
    let expected: Vec<Violation> = (0..10).rev().map(|n| violation(n, &(n % 2).to_string())).collect();
    assert_eq!(all.iter().map(recorded).collect::<Vec<_>>(), expected);
    assert_eq!((all[1].rule_id, all[0].rule_id), (Some(free.id), None), "a rule by its name, if there is one");
    let text = |text: &str| Some(text.to_owned());
    let start = 1_767_225_600_000;
    let table = [
        (ViolationFilter { user: text("1"), ..ViolationFilter::default() }, vec![9, 7, 5, 3, 1]),
        (ViolationFilter { ip: text("203.0.113.0"), ..ViolationFilter::default() }, vec![9, 6, 3, 0]),
        (ViolationFilter { rule: text("free"), ..ViolationFilter::default() }, vec![8, 6, 4, 2, 0]),
        (ViolationFilter { subject: text("user:0"), ..ViolationFilter::default() }, vec![8, 6, 4, 2, 0]),
        (ViolationFilter { since_unix_ms: Some(start + 7), ..ViolationFilter::default() }, vec![9, 8, 7]),
        (ViolationFilter { until_unix_ms: Some(start + 2), ..ViolationFilter::default() }, vec![1, 0]),
        (
            ViolationFilter {
                user: text("1"),
                ip: text("203.0.113.0"),
                since_unix_ms: Some(start + 4),
                ..ViolationFilter::default()
            },
            vec![9],
        ),
        (ViolationFilter { user: text("2"), ..ViolationFilter::default() }, vec![]),
        (ViolationFilter { limit: 2, ..ViolationFilter::default() }, vec![9, 8]),
    ];
    for (filter, expected) in table {
        let after: Vec<i64> =
            found(&home, filter.clone()).await.iter().map(|one| one.requested_at_ms - start).collect();
        assert_eq!(after, expected, "{filter:?}");
    }
}

async fn violations_are_turned_page_by_page(home: TestDatabase) {
    // Many of the same millisecond, and more than fit one statement.
    let many: Vec<Violation> = (0..4_500).map(|n| violation(n / 100, &n.to_string())).collect();
    home.rulebook.write_violations(&many).await.unwrap();
    let (mut before_id, mut seen) = (None, Vec::new());
    loop {
        let page = found(&home, ViolationFilter { before_id, limit: 333, ..ViolationFilter::default() }).await;
        let Some(last) = page.last() else { break };
        before_id = Some(last.id);
        seen.extend(page);
    }
    assert_eq!(seen.len(), 4_500);
    assert!(seen.is_sorted_by(|a, b| (a.requested_at_ms, a.id) > (b.requested_at_ms, b.id)));
    assert_eq!(
        found(&home, ViolationFilter { limit: u32::MAX, ..ViolationFilter::default() }).await.len(),
        1_000,
        "a page has an end"
    );
    assert!(found(&home, ViolationFilter { before_id: Some(i64::MAX), ..ViolationFilter::default() }).await.is_empty());
}

async fn old_and_surplus_violations_are_pruned(home: TestDatabase) {
    // More than one step's worth.
    let many: Vec<Violation> = (0..12_000).map(|n| violation(n, "1")).collect();
    home.rulebook.write_violations(&many).await.unwrap();
    assert_eq!(home.rulebook.prune_violations(Retention::default()).await.unwrap(), 0);
    let since = Retention { since_unix_ms: Some(many[11_000].requested_at_ms), ..Retention::default() };
    assert_eq!(home.rulebook.prune_violations(since).await.unwrap(), 11_000);
    assert_eq!(home.rulebook.prune_violations(since).await.unwrap(), 0);
    let few = Retention { rows_max: Some(10), ..Retention::default() };
    assert_eq!(home.rulebook.prune_violations(few).await.unwrap(), 990);
    let left = found(&home, ViolationFilter::default()).await;
    assert_eq!(left.iter().map(recorded).rev().collect::<Vec<_>>(), many[11_990..]);
    assert_eq!(home.rulebook.prune_violations(Retention { rows_max: Some(0), ..few }).await.unwrap(), 10);
}

async fn odd_text_does_not_cost_the_batch(home: TestDatabase) {
    let odd = "nul \0, quotes ' \" \\, 中文, \u{1f4a7}, \u{7f}\n";
    let kept = odd.replace('\0', "\u{fffd}");
    home.rulebook.write_violations(&[violation(1, "1"), violation(2, odd)]).await.unwrap();
    let all = found(&home, ViolationFilter::default()).await;
    assert_eq!((all.len(), all[0].user_id.as_ref()), (2, Some(&kept)));
    assert_eq!(
        found(&home, ViolationFilter { user: Some(odd.to_owned()), ..ViolationFilter::default() }).await.len(),
        1
    );
}

/// A flood at one rule keeps what others have, and long rows reduce their number.
async fn violations_are_bounded_by_rule_and_by_bytes(home: TestDatabase) {
    let of = |rule: &str, number: i64| Violation { rule: Some(rule.to_owned()), ..violation(number, "42") };
    let quiet = (0..5).map(|number| of("quiet", number));
    let flood = (5..60).map(|number| of("flood", number)).chain((60..90).map(|number| of("other", number)));
    home.rulebook.write_violations(&quiet.chain(flood).collect::<Vec<_>>()).await.unwrap();
    let keep = Retention { rule_rows_max: Some(20), rows_max: Some(1_000), ..Retention::default() };
    assert_eq!(home.rulebook.prune_violations(keep).await.unwrap(), 35 + 10);
    assert_eq!(home.rulebook.prune_violations(keep).await.unwrap(), 0);
    let left = found(&home, ViolationFilter::default()).await;
    let count = |name: &str| left.iter().filter(|one| one.rule.as_deref() == Some(name)).count();
    assert_eq!((count("quiet"), count("flood"), count("other")), (5, 20, 20));
    assert_eq!(left.last().unwrap().rule.as_deref(), Some("quiet"), "the newest of each stay");

    let bytes =
        |bytes_max: u64| Retention { bytes_max: Some(bytes_max), rows_max: Some(1_000), ..Retention::default() };
    assert_eq!(home.rulebook.prune_violations(bytes(1 << 20)).await.unwrap(), 0);
    home.rulebook.prune_violations(bytes(10_000)).await.unwrap();
    let short = found(&home, ViolationFilter::default()).await.len();
    assert!((10..=40).contains(&short), "{short} rows of some hundred bytes");
    let long = |number| Violation { endpoint: Some("x".repeat(1_000)), ..violation(number, "42") };
    home.rulebook.write_violations(&(100..140).map(long).collect::<Vec<_>>()).await.unwrap();
    // The first time the short rows count too.
    for _ in 0..2 {
        home.rulebook.prune_violations(bytes(10_000)).await.unwrap();
    }
    assert!((2..=4).contains(&found(&home, ViolationFilter::default()).await.len()), "rows of more than 2,000 bytes");
}
