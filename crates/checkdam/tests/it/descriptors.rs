//! Trees of descriptors: envoyproxy/ratelimit's file format, and requests that
//! are decided together. The clauses are those of its own documentation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use checkdam::rule_file::{self, FileOptions};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Algorithm, Batch, Limiter, Outcome, Request, RequestLimit, Unit};
use pollster::block_on;

type Path<'a> = &'a [(&'a str, &'a str)];

/// A minute of the Unix clock begins here.
const NOW_US: u64 = 60_000_000 * 1_000;

struct Dam {
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
}

impl Dam {
    fn new(text: &str) -> Self {
        Self::of_files(&[text], &FileOptions::default())
    }

    fn of_files(files: &[&str], options: &FileOptions) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_US));
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, Arc::clone(&clock));
        let (rules, _) = rule_file::compile_all(files, options).unwrap();
        Self { limiter: Limiter::new(rules, store), clock }
    }

    fn together(&self, requests: &[Request<'_>]) -> Batch {
        block_on(self.limiter.check_batch(requests))
    }

    fn check(&self, path: Path<'_>) -> Outcome {
        block_on(self.limiter.check(&request(path)))
    }

    /// How many of `tries` pass.
    fn passing(&self, path: Path<'_>, tries: usize) -> usize {
        (0..tries).filter(|_| self.check(path).is_allowed()).count()
    }
}

fn request<'a>(path: Path<'a>) -> Request<'a> {
    Request::from_entries("edge", path.iter().copied()).unwrap()
}

fn shown(outcome: &Outcome) -> (bool, Option<(u64, u64)>) {
    let tier = outcome.tiers().next();
    (outcome.is_allowed(), tier.map(|tier| (tier.decision.limit, tier.decision.remaining)))
}

const NESTED: &str = r#"
domain: edge
descriptors:
  - key: database
    value: users
    rate_limit: { unit: SECOND, requests_per_unit: 500 }
  - key: database
    value: default
    rate_limit: { unit: Minute, requests_per_unit: 3 }
  - key: database
    value: de*
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: database
    value: "*fault-*-x"
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: database
    rate_limit: { unit: minute, requests_per_unit: 6 }
  - key: path
    value: /open
  - key: path
    descriptors:
      - key: method
        value: POST
        rate_limit: { unit: hour, requests_per_unit: 7 }
      - key: method
        rate_limit: { unit: week, requests_per_unit: 8 }
"#;

#[test]
fn an_entry_matches_exactly_then_by_pattern_then_by_key() {
    let dam = Dam::new(NESTED);
    let table: [(Path<'_>, Option<u64>); 14] = [
        (&[("database", "users")], Some(500)),
        (&[("database", "default")], Some(3)),
        (&[("database", "devel")], Some(4)),
        (&[("database", "de")], Some(4)),
        (&[("database", "a fault-1-x")], Some(5)),
        (&[("database", "default-fault-1-x")], Some(4)),
        (&[("database", "other")], Some(6)),
        (&[("database", "")], Some(6)),
        // A limit counts only for paths of its own depth.
        (&[("database", "users"), ("more", "x")], None),
        (&[("path", "/a")], None),
        (&[("path", "/a"), ("method", "POST")], Some(7)),
        (&[("path", "/a"), ("method", "GET")], Some(8)),
        // No way back: the exact level has nothing below it.
        (&[("path", "/open"), ("method", "POST")], None),
        (&[("unknown", "x")], None),
    ];
    for (path, limit) in table {
        let outcome = dam.check(path);
        assert_eq!(outcome.tiers().next().map(|tier| tier.decision.limit), limit, "{path:?}");
        assert!(outcome.is_allowed(), "{path:?}");
    }
    let elsewhere = Request::from_entries("other", [("database", "users")]).unwrap();
    assert_eq!(block_on(dam.limiter.check(&elsewhere)).tiers().len(), 0);
}

#[test]
fn windows_begin_with_the_epoch_and_values_are_counted_apart() {
    let dam = Dam::new(NESTED);
    assert_eq!(dam.passing(&[("database", "default")], 5), 3);
    assert_eq!(dam.passing(&[("database", "devel")], 6), 4);
    assert_eq!(dam.passing(&[("database", "denim")], 6), 4);
    let denied = dam.check(&[("database", "default")]);
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(Duration::from_secs(60))));
    dam.clock.advance(59_999_999);
    assert_eq!(dam.passing(&[("database", "default")], 5), 0);
    dam.clock.advance(1);
    assert_eq!(dam.passing(&[("database", "default")], 5), 3);
}

#[test]
fn all_descriptors_are_charged_or_none() {
    let dam = Dam::new(NESTED);
    let both: [Path<'_>; 2] = [&[("database", "default")], &[("database", "other")]];
    let ask = || dam.together(&both.map(request));
    for left in (0..3).rev() {
        let together = ask();
        assert!(together.is_allowed());
        assert_eq!(
            together.outcomes().iter().map(shown).collect::<Vec<_>>(),
            [(true, Some((3, left))), (true, Some((6, left + 3)))]
        );
    }
    let denied = ask();
    assert!(!denied.is_allowed());
    // The second would pass, and is not charged.
    assert_eq!(denied.outcomes().iter().map(shown).collect::<Vec<_>>(), [(false, Some((3, 0))), (true, Some((6, 3)))]);
    assert_eq!(dam.passing(both[1], 9), 3);
}

#[test]
fn a_bucket_named_twice_is_charged_with_the_sum() {
    let dam = Dam::new(NESTED);
    let path: Path<'_> = &[("database", "other")];
    assert!(dam.together(&[request(path).costing(2), request(path)]).is_allowed());
    assert_eq!(shown(&dam.check(path)), (true, Some((6, 2))));
    assert!(!dam.together(&[request(path).costing(2), request(path)]).is_allowed());
    assert_eq!(dam.passing(path, 9), 2);
}

#[test]
fn costs_count_and_nothing_costs_nothing() {
    let dam = Dam::new(NESTED);
    let path: Path<'_> = &[("database", "default")];
    let ask = |cost| dam.together(&[request(path).costing(cost)]).is_allowed();
    assert!(ask(0) && ask(2) && !ask(2) && ask(1) && !ask(1) && ask(0) && !ask(9));
}

#[test]
fn zero_bans_and_unlimited_counts_nothing() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: banned, rate_limit: { unit: minute, requests_per_unit: 0 } }\n\
         - { key: free, rate_limit: { unlimited: true, name: all } }\n\
         - { key: some, rate_limit: { unit: minute, requests_per_unit: 2 } }\n",
    );
    let denied = dam.check(&[("banned", "x")]);
    assert_eq!((shown(&denied), denied.retry_after()), ((false, Some((0, 0))), Some(Duration::from_secs(60))));
    assert!(dam.together(&[request(&[("banned", "x")]).costing(0)]).is_allowed());
    let free = dam.check(&[("free", "x")]);
    assert_eq!(shown(&free), (true, None));
    assert!(matches!(free.descriptor().unwrap().allowance(), Some(checkdam::DescriptorAllowance::Unlimited)));
    // Who is banned takes nothing from the others.
    assert!(!dam.together(&[request(&[("banned", "x")]), request(&[("some", "x")])]).is_allowed());
    assert_eq!(dam.passing(&[("some", "x")], 9), 2);
}

#[test]
fn a_matched_limit_replaces_others_by_name() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: a, rate_limit: { name: small, unit: minute, requests_per_unit: 1 } }\n\
         - { key: b, rate_limit: { name: big, unit: minute, requests_per_unit: 3, replaces: [{ name: small }] } }\n\
         - { key: c, rate_limit: { unlimited: true, replaces: [{ name: small }, { name: big }] } }\n",
    );
    let ask = |keys: &[&'static str]| {
        let requests: Vec<_> = keys.iter().map(|key| Request::from_entries("edge", [(*key, "x")]).unwrap()).collect();
        dam.together(&requests)
    };
    for _ in 0..3 {
        let together = ask(&["a", "b"]);
        assert!(together.is_allowed());
        assert!(together.outcomes()[0].tiers().next().is_none() && together.outcomes()[0].descriptor().is_none());
    }
    assert!(!ask(&["a", "b"]).is_allowed());
    // The small one was never charged.
    assert!(ask(&["a"]).is_allowed() && !ask(&["a"]).is_allowed());
    assert!((0..9).all(|_| ask(&["a", "b", "c"]).is_allowed()));
}

#[test]
fn shadows_never_deny() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: a, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
         - { key: z, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }\n\
         - { key: b, rate_limit: { unit: minute, requests_per_unit: 2 } }\n",
    );
    let paths: [Path<'_>; 3] = [&[("a", "x")], &[("z", "x")], &[("b", "x")]];
    let ask = || dam.together(&paths.map(request));
    assert!(ask().is_allowed());
    let second = ask();
    assert!(second.is_allowed());
    let tier = second.outcomes()[0].tiers().next().unwrap();
    assert!(second.outcomes()[0].is_allowed() && !tier.decision.is_allowed() && tier.decision.remaining == 0);
    assert!(!ask().is_allowed());
}

#[test]
fn quotas_deny_only_when_all_of_them_do() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: a, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
         - { key: b, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }\n\
         - { key: c, rate_limit: { unit: minute, requests_per_unit: 4 } }\n",
    );
    let paths: [Path<'_>; 3] = [&[("a", "x")], &[("b", "x")], &[("c", "x")]];
    let codes = || {
        let together = dam.together(&paths.map(request));
        (together.is_allowed(), together.outcomes().iter().map(Outcome::is_allowed).collect::<Vec<_>>())
    };
    assert_eq!(codes(), (true, vec![true, true, true]));
    assert_eq!(codes(), (true, vec![false, true, true]));
    let denied = dam.together(&paths.map(request));
    assert!(!denied.is_allowed());
    // What was denied took nothing from the limit beside them, which says so.
    assert_eq!(
        denied.outcomes().iter().map(shown).collect::<Vec<_>>(),
        [(false, Some((1, 0))), (false, Some((2, 0))), (true, Some((4, 2)))]
    );
    assert_eq!(dam.passing(paths[2], 9), 2);
    assert_eq!(codes(), (false, vec![false, false, false]));
    // One alone is all of them.
    assert!(!dam.together(&[request(paths[0])]).is_allowed());
}

/// The same for a token bucket: its reset time too is as if nothing had been charged.
#[test]
fn a_bucket_beside_quotas_tells_what_it_holds_when_they_deny() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
         - { key: t, rate_limit: { unit: minute, requests_per_unit: 6, algorithm: token_bucket } }\n",
    );
    let paths: [Path<'_>; 2] = [&[("q", "x")], &[("t", "x")]];
    let held = |together: &Batch| {
        let tier = together.outcomes()[1].tiers().next().unwrap();
        (together.is_allowed(), tier.decision.remaining, tier.decision.reset_after_us)
    };
    let ask = || held(&dam.together(&paths.map(request)));
    assert_eq!([ask(), ask(), ask()], [(true, 5, 10_000_000), (false, 5, 10_000_000), (false, 5, 10_000_000)]);
}

/// Every descriptor may be asked to deny only together with all others, also those
/// without a limit and those that bring one; but for those without any bound.
#[test]
fn requests_may_deny_only_together() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
         - { key: b, rate_limit: { unit: minute, requests_per_unit: 2 } }\n\
         - { key: none, rate_limit: { unlimited: true } }\n",
    );
    let ask = |paths: &[Path<'_>]| {
        let requests: Vec<_> = paths.iter().map(|path| request(path).in_quota_mode()).collect();
        dam.together(&requests).is_allowed()
    };
    let (a, b, none, other): (Path<'_>, Path<'_>, Path<'_>, Path<'_>) =
        (&[("a", "x")], &[("b", "x")], &[("none", "x")], &[("other", "x")]);
    assert_eq!([ask(&[a, b]), ask(&[a, b]), ask(&[a, b])], [true, true, false]);
    assert!(ask(&[a, b, other]), "what matches no limit passes");
    assert!(!ask(&[a, b, none]), "what has no bound does not count");
    let given = || request(&[("c", "x")]).with_limit(RequestLimit { amount: 1, unit: Unit::Minute }).in_quota_mode();
    let together = || dam.together(&[given(), request(a).in_quota_mode()]).is_allowed();
    assert_eq!([together(), together()], [true, false]);
}

/// A descriptor without entries matches no limit, and those beside it count.
#[test]
fn a_path_without_entries_is_limited_only_by_what_it_brings() {
    let dam = Dam::new(NESTED);
    let path: Path<'_> = &[("database", "default")];
    let ask = || dam.together(&[request(&[]), request(path)]);
    assert_eq!(ask().outcomes().iter().map(shown).collect::<Vec<_>>(), [(true, None), (true, Some((3, 2)))]);
    assert_eq!([ask(), ask(), ask()].map(|asked| asked.is_allowed()), [true, true, false]);
    let given = || request(&[]).with_limit(RequestLimit { amount: 1, unit: Unit::Minute });
    assert!(dam.together(&[given()]).is_allowed() && !dam.together(&[given()]).is_allowed());
}

/// A limit that denies only together with others takes no ban and no rule along.
#[test]
fn bans_and_rules_deny_beside_quotas() {
    let tree = "domain: edge\ndescriptors:\n\
        - { key: user, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 9 } }\n\
        - { key: tenant, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 9 } }\n";
    let ours = "rules: [{ name: few, domain: edge, key: \"user:{user}\", limits: [2/d] }]\n\
        bans: [{ subject: \"user:bad\" }]\n";
    let dam = Dam::of_files(&[tree, ours], &FileOptions::default());
    let ask = |user: &'static str| {
        let paths: [Path<'_>; 2] = [&[("user", user)], &[("tenant", "t")]];
        dam.together(&paths.map(request)).is_allowed()
    };
    assert!(!ask("bad"));
    assert!(ask("good") && ask("good") && !ask("good") && !ask("good"));
}

/// Of two limits of one bucket the one counts that denies, and the smaller.
#[test]
fn a_limit_is_not_lost_in_another_of_its_bucket() {
    let text = "domain: edge\ndescriptors:\n\
        - { key: a, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 9 } }\n";
    let dam = Dam::new(text);
    let own = || request(&[("a", "x")]).with_limit(RequestLimit { amount: 4, unit: Unit::Minute });
    let ask = || dam.together(&[request(&[("a", "x")]), own()]).is_allowed();
    assert!(ask() && ask() && !ask());
}

#[test]
fn shared_values_are_counted_together() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - { key: path, value: /files/*, share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 3 } }\n",
    );
    // A limit that a request brings counts the request's own value.
    for value in ["/files/1", "/files/2"] {
        let path = [("path", value)];
        let own = || request(&path).with_limit(RequestLimit { amount: 1, unit: Unit::Minute });
        assert!(dam.together(&[own()]).is_allowed(), "{value}");
        assert!(!dam.together(&[own()]).is_allowed(), "{value}");
    }
    assert_eq!(dam.passing(&[("path", "/files/1")], 2) + dam.passing(&[("path", "/files/2")], 9), 3);
    // There may be any number of such values: their buckets are evicted as all others are.
    for number in 0..30_000 {
        let value = format!("/files/{number}");
        let path = [("path", value.as_str())];
        let _ = dam.together(&[request(&path).with_limit(RequestLimit { amount: 1, unit: Unit::Day })]);
    }
    let stats = dam.limiter.store().stats();
    assert!(stats.buckets <= stats.buckets_max, "{stats:?}");
}

#[test]
fn a_request_may_bring_its_own_limit() {
    let dam = Dam::new(NESTED);
    let with = |path: Path<'_>, amount, unit| {
        let request = request(path).with_limit(RequestLimit { amount, unit });
        let together = dam.together(&[request]);
        shown(&together.outcomes()[0])
    };
    let path: Path<'_> = &[("database", "default")];
    assert_eq!(with(path, 9, Unit::Minute), (true, Some((9, 8))));
    // It counts what the written limit of its unit counts.
    assert_eq!(shown(&dam.check(path)), (true, Some((3, 1))));
    assert_eq!(with(path, 2, Unit::Minute), (false, Some((2, 0))));
    assert_eq!(with(path, 2, Unit::Hour), (true, Some((2, 1))));
    assert_eq!(with(path, 0, Unit::Hour), (false, Some((0, 0))));
    assert_eq!(with(&[("unknown", "x")], 5, Unit::Second), (true, Some((5, 4))));
    let elsewhere = Request::from_entries("other", [("a", "b")]).unwrap();
    let elsewhere = elsewhere.with_limit(RequestLimit { amount: 0, unit: Unit::Hour });
    assert_eq!(shown(&dam.together(&[elsewhere]).outcomes()[0]), (true, None));
}

/// The counts of a window hold for any limit: what requests bring with them
/// never frees what the written limit counted, in any algorithm.
#[test]
fn limits_that_requests_bring_free_nothing() {
    for algorithm in Algorithm::ALL {
        let text = "domain: edge\ndescriptors: [{ key: path, rate_limit: { unit: minute, requests_per_unit: 1000 } }]";
        let dam = Dam::of_files(&[text], &FileOptions { descriptor_algorithm: algorithm, ..FileOptions::default() });
        let path = [("path", "/a")];
        let brings = RequestLimit { amount: 10, unit: Unit::Minute };
        let (mut written, mut brought) = (0, 0);
        for _ in 0..1_500 {
            written += usize::from(dam.check(&path).is_allowed());
            let request = request(&path).with_limit(brings);
            brought += usize::from(block_on(dam.limiter.check(&request)).is_allowed());
        }
        // Windows of one period are counted together, buckets by themselves.
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let expected = if is_bucket { (1_000, 10) } else { (995, 5) };
        assert_eq!((written, brought), expected, "{algorithm:?}");
    }
}

/// Requests that were decided together are given back one by one, and only if all
/// of them were charged.
#[test]
fn outcomes_of_paths_are_given_back_to_their_buckets() {
    let dam = Dam::new(NESTED);
    let (path, users): (Path<'_>, Path<'_>) = (&[("database", "default")], &[("database", "users")]);
    let both = [request(path), request(users)];
    for _ in 0..3 {
        assert!(dam.together(&both).is_allowed());
    }
    let denied = dam.together(&both);
    assert!(!denied.is_allowed() && denied.outcomes()[1].is_allowed());
    block_on(dam.limiter.refund_outcome(&both[1], &denied.outcomes()[1]));
    let left = |path: Path<'_>| shown(&block_on(dam.limiter.peek(&request(path)))).1;
    assert_eq!((left(path), left(users)), (Some((3, 0)), Some((500, 497))));
    let users_alone = dam.check(users);
    dam.limiter.set_rules(rule_file::compile("rules: []").unwrap());
    block_on(dam.limiter.refund_outcome(&both[1], &users_alone));
    dam.limiter.set_rules(rule_file::compile_all(&[NESTED], &FileOptions::default()).unwrap().0);
    assert_eq!((left(path), left(users)), (Some((3, 0)), Some((500, 497))));
}

#[test]
fn our_own_rules_stand_beside_a_tree() {
    let ours = "rules:\n\
        - { name: by-db, domain: edge, key: \"db:{database}\", when: { descriptor: database }, limits: [2/m] }\n\
        - { name: elsewhere, domain: other, key: \"db:{database}\", limits: [2/m] }\n";
    let dam = Dam::of_files(&[NESTED, ours], &FileOptions::default());
    let outcome = dam.check(&[("database", "default")]);
    let rules: Vec<_> = outcome.tiers().map(|tier| tier.rule.name.clone()).collect();
    assert_eq!(rules, ["by-db", "edge.database_default"]);
    assert_eq!(dam.passing(&[("database", "default")], 9), 1);
    assert_eq!(dam.check(&[("database", "default"), ("more", "x")]).tiers().len(), 0);
    assert_eq!(dam.limiter.rules().rules().len(), 9);
}

#[test]
fn a_whole_file_becomes_exact_by_one_setting() {
    let options = FileOptions { descriptor_algorithm: Algorithm::TokenBucket, ..FileOptions::default() };
    let dam = Dam::of_files(&[NESTED], &options);
    assert_eq!(dam.passing(&[("database", "default")], 9), 3);
    dam.clock.advance(20_000_000);
    assert_eq!(dam.passing(&[("database", "default")], 9), 1);
    let text = "default_algorithm: sliding_log\ndomain: edge\ndescriptors:\n\
        - { key: a, rate_limit: { unit: second, unit_multiplier: 30, requests_per_unit: 2 } }\n\
        - { key: b, rate_limit: { unit: second, requests_per_unit: 2, burst: 5, algorithm: token_bucket, \
            on_store_failure: closed } }\n";
    let dam = Dam::new(text);
    assert_eq!(dam.passing(&[("b", "x")], 9), 5);
    assert_eq!(dam.passing(&[("a", "x")], 9), 2);
    dam.clock.advance(29_999_999);
    assert_eq!(dam.passing(&[("a", "x")], 9), 0);
    dam.clock.advance(1);
    assert_eq!(dam.passing(&[("a", "x")], 9), 2);
}

#[test]
fn metrics_name_what_is_written_and_values_where_asked() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n\
         - key: a\n  descriptors:\n  - { key: b, value: x*, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - key: c\n  value_to_metric: true\n  descriptors:\n  - { key: d, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - key: e\n  descriptors:\n  - { key: f, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - { key: g, value: s*, share_threshold: true, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n",
    );
    let name = |path: Path<'_>| dam.check(path).metric_name(&request(path)).unwrap();
    assert_eq!(name(&[("a", "1"), ("b", "x2")]), "edge.a.b_x*");
    assert_eq!(name(&[("c", "1"), ("d", "2")]), "edge.c_1.d");
    assert_eq!(name(&[("e", "1"), ("f", "2")]), "edge.e_1.f_2");
    assert_eq!(name(&[("g", "s7")]), "edge.g_s*");
    assert!(!dam.check(&[("a", "1"), ("b", "x2")]).has_detailed_metric());
    assert!(
        dam.check(&[("c", "1"), ("d", "2")]).has_detailed_metric()
            && dam.check(&[("e", "1"), ("f", "2")]).has_detailed_metric()
    );
}

#[test]
fn repeated_and_long_entries_are_understood() {
    let dam = Dam::new(
        "domain: edge\ndescriptors:\n- key: a\n  value: one\n  descriptors:\n\
         \x20 - { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - { key: path, value: /x/*/end, rate_limit: { unit: day, requests_per_unit: 1 } }\n",
    );
    assert_eq!(dam.passing(&[("a", "one"), ("a", "two")], 3), 1);
    // Nobody passes unlimited because a value is long, and long values differ.
    let (long, other) = (format!("/x/{}/end", "y".repeat(5_000)), format!("/x/{}z/end", "y".repeat(4_999)));
    assert_eq!(dam.passing(&[("path", &long)], 3), 1);
    assert_eq!(dam.passing(&[("path", &other)], 3), 1);
}

#[test]
fn what_is_refused_is_named() {
    let limit = |rest: &str| format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {rest} }}\n");
    let table = [
        ("descriptors: []".to_owned(), "1:1 the file has no domain"),
        ("domain: \"\"\ndescriptors: []".to_owned(), "no domain"),
        ("domain: d\nfoo: 1".to_owned(), "2:1 the key \"foo\" is not known here"),
        ("domain: d\n1: 1".to_owned(), "2:1 the key \"1\" is not known"),
        ("domain: d\ndescriptors: [a]".to_owned(), "2:1 a list holds something that is no map"),
        ("domain: d\ndescriptors:\n  - value: v".to_owned(), "3:5 a descriptor of \"d\" has no key"),
        (
            "domain: d\ndescriptors:\n  - { key: k, value: v }\n  - { key: k, value: v }".to_owned(),
            "4:5 there are two descriptors \"d.k_v\"",
        ),
        ("domain: d\ndescriptors:\n  - { key: k, value: v, share_threshold: true }".to_owned(), "has no *"),
        ("domain: d\ndescriptors:\n  - { key: k, metadata: [1] }".to_owned(), "the metadata of \"d.k\" is no map"),
        (limit("requests_per_unit: 1"), "4:17 the limit of \"d.k\": it has no unit"),
        (limit("unit: fortnight, requests_per_unit: 1"), "the unit \"fortnight\" is not one of second,"),
        (limit("unlimited: true, unit: day"), "it is unlimited, and has the unit \"day\""),
        (limit("unit: day, requests_per_unit: -1"), "4:"),
        (limit("unit: day, requests_per_unit: 4294967296"), "4:"),
        (limit("unit: day, requests_per_unit: 1, name: n, replaces: [{ name: n }]"), "names the limit itself"),
        (limit("unit: day, requests_per_unit: 1, replaces: [{ name: \"\" }]"), "without a name"),
        (limit("unit: day, requests_per_unit: 1, replaces: [n]"), "4:"),
        (limit("unit: day, requests_per_unit: 1, unit_multiplier: 0"), "unit_multiplier is 0"),
        (limit("unit: day, requests_per_unit: 1, algorithm: guess"), "\"guess\" is not one of token_bucket,"),
        (limit("unit: day, requests_per_unit: 1, burst: 5"), "burst"),
        (limit("unit: day, requests_per_unit: 1, on_store_failure: maybe"), "\"maybe\" is not one of"),
    ];
    for (text, expected) in table {
        let error = rule_file::compile(&text).expect_err(&text);
        let shown = format!("{}:{} {}", error.line, error.column, error.reason);
        assert!(shown.contains(expected), "{text}\n{shown}\n{expected}");
    }
    let files = [NESTED, NESTED];
    let (file, error) = rule_file::compile_all(&files, &FileOptions::default()).unwrap_err();
    assert_eq!((file, error.line), (1, 2));
    assert!(error.reason.contains("domain \"edge\": there are two trees of that domain"), "{}", error.reason);
}

#[test]
fn domains_are_merged_if_asked() {
    let options = FileOptions { merge_domains: true, ..FileOptions::default() };
    let more = "domain: edge\ndescriptors: [{ key: more, rate_limit: { unit: day, requests_per_unit: 1 } }]";
    let dam = Dam::of_files(&[NESTED, more], &options);
    assert_eq!((dam.passing(&[("more", "x")], 3), dam.passing(&[("database", "default")], 9)), (1, 3));
    assert!(rule_file::compile_all(&[NESTED, NESTED], &options).is_err());
}

#[test]
fn keys_in_the_wrong_place_are_remarked_on_and_anchors_work() {
    let text = "domain: edge\ndescriptors:\n\
        - { key: a, requests_per_unit: 5, rate_limit: &minute { unit: minute, requests_per_unit: 1, shadow_mode: true } }\n\
        - { key: b, rate_limit: *minute, metadata: { a: [1, 2.5, \"x\\\"\"], b: { c: null } } }\n";
    let (rules, definitions) = rule_file::compile_all(&[text], &FileOptions::default()).unwrap();
    assert_eq!(rules.rules().len(), 2);
    let tree = &definitions.trees[0];
    assert!(tree.warnings[0].contains("\"requests_per_unit\" means nothing where it stands"), "{:?}", tree.warnings);
    assert_eq!(tree.descriptors[1].metadata, r#"{"a":[1,2.5,"x\""],"b":{"c":null}}"#);
}

/// Every limit that a rule can say is said by one, and decides alike.
#[test]
fn a_tree_becomes_rules_that_decide_the_same() {
    let definitions = rule_file::parse_definitions(NESTED).unwrap();
    let translated = definitions.trees[0].rules();
    assert_eq!(translated.left_out, Vec::<String>::new());
    // As text and back, as an import takes them.
    let text = rule_file::write(&translated.rules.into());
    let (tree, rules) = (Dam::new(NESTED), Dam::new(&text));
    let values = ["users", "default", "devel", "de", "a fault-1-x", "default-fault-1-x", "other", "", "/open", "/a"];
    let mut paths: Vec<Vec<(&str, &str)>> = Vec::new();
    for value in values {
        paths.extend([vec![("database", value)], vec![("path", value)], vec![("database", value), ("more", "x")]]);
        paths.extend(["POST", "GET"].map(|method| vec![("path", value), ("method", method)]));
        paths.push(vec![("method", "GET"), ("path", value)]);
    }
    for path in &paths {
        for round in 0..5 {
            assert_eq!(shown(&tree.check(path)), shown(&rules.check(path)), "round {round} of {path:?}\n{text}");
        }
    }
}

#[test]
fn what_no_rule_can_say_is_left_out_by_name() {
    let text = "domain: edge\ndescriptors:\n\
        - { key: a, rate_limit: { unit: day, requests_per_unit: 0 } }\n\
        - { key: b, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: x }] } }\n\
        - { key: c, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
        - { key: d, rate_limit: { unlimited: true } }\n\
        - { key: \"e f\", rate_limit: { unit: day, requests_per_unit: 1 } }\n\
        - { key: g, descriptors: [{ key: g, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n\
        - { key: h, value: \"{*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n\
        - { key: i, value: s*, share_threshold: true, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let translated = rule_file::parse_definitions(text).unwrap().trees[0].rules();
    let left: Vec<&str> = translated.left_out.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(left, ["edge.a", "edge.b", "edge.c", "edge.e f", "edge.g.g", "edge.h_{*"]);
    assert_eq!(translated.rules.len(), 1);
    assert_eq!(translated.rules[0].key.text(), "i=s*");
}
