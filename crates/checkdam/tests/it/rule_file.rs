//! Rule files: the documented example, and every error with its location.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use checkdam::rule_file::{compile, parse};
use checkdam::{Algorithm, FailurePolicy, Lease, Mode};

const DESIGN: &str = r#"
rules:
  - name: user-free
    key: "user:{user}"
    when: { plan: free }
    limits: ["10/s burst 50", "5000/h", "20000/d"]
  - name: search
    key: "endpoint:{endpoint}"
    when: { endpoint: /api/search, method: [GET, POST] }
    limits: ["1000/s burst 2000"]
  - name: per-ip
    key: "ip:{ip}"
    when: { ip: { not_in: [10.0.0.0/8] } }
    limits: ["100/m"]
    algorithm: sliding_window
    mode: shadow
  - name: global
    key: global
    limits: ["50000/s burst 100000"]
    lease: 100ms
    on_store_failure: local
"#;

#[test]
fn the_example_of_the_design_is_read() {
    let rules = parse(DESIGN).unwrap();
    let names: Vec<_> = rules.iter().map(|rule| (rule.name.as_str(), rule.scope.as_str(), rule.quotas.len())).collect();
    assert_eq!(
        names,
        [("user-free", "user", 3), ("search", "endpoint", 1), ("per-ip", "ip", 1), ("global", "global", 1)]
    );
    assert_eq!(rules[2].mode, Mode::Shadow);
    assert_eq!(rules[2].quotas[0].algorithm(), Algorithm::SlidingWindow { strict: false });
    assert_eq!((rules[3].lease, rules[3].on_store_failure), (Lease::For(100_000), FailurePolicy::Local));
    assert_eq!(compile(DESIGN).unwrap().rules().len(), 4);
}

#[test]
fn limits_may_be_given_in_parts() {
    let rules = parse(
        r#"
rules:
  - name: parts
    key: "user:{user}"
    limits:
      - { limit: 10, per: s, burst: 50, initial: 5 }
      - { limit: 100, per: 30s }
  - name: monthly
    key: "tenant:{tenant}"
    algorithm: fixed_window
    limits: [{ limit: 1000, per: calendar month }, "10 per calendar day"]
  - name: strict
    key: "user:{user}"
    algorithm: sliding_window
    strict: true
    limits: ["100/m"]
  - name: mixed
    key: "user:{user}"
    limits: ["500/s burst 1000", "1000000 per calendar month", { limit: 9, per: m, algorithm: sliding_window, strict: true }]
  - name: billing
    key: "user:{user}"
    zone: Europe/Berlin
    limits: [{ limit: 5, per: calendar month, zone: America/New_York, anchor: 15 }, { limit: 4, per: calendar week, week_starts: sunday }]
"#,
    )
    .unwrap();
    let texts: Vec<_> = rules.iter().flat_map(|rule| &rule.quotas).map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "10/s burst 50 initial 5",
            "100/30s",
            "1000 per calendar month",
            "10 per calendar day",
            "100/m",
            "500/s burst 1000",
            "1000000 per calendar month",
            "9/m sliding_window strict",
            "5 per calendar month zone America/New_York anchor 15",
            "4 per calendar week zone Europe/Berlin week_starts sunday",
        ]
    );
    let mixed: Vec<_> = rules[rules.len() - 2].quotas.iter().map(|quota| quota.algorithm().to_string()).collect();
    assert_eq!(mixed, ["token_bucket", "fixed_window", "sliding_window strict"]);
}

/// (what is wrong, the file, the line, words of the message)
const REFUSED: [(&str, &str, u64, &str); 36] = [
    (
        "unknown zone",
        "rules:\n  - name: a\n    key: k\n    zone: Berlin\n    limits: [1 per calendar day]",
        4,
        "zone \"Berlin\" is not a name of the IANA time zone database: write Europe/Berlin",
    ),
    (
        "no such day of a month",
        "rules:\n  - name: a\n    key: k\n    limits: [1 per calendar month]\n    anchor: 32",
        5,
        "anchor 32 is not a day of a month",
    ),
    (
        "no such day of the week",
        "rules:\n  - name: a\n    key: k\n    limits: [1 per calendar week]\n    week_starts: Sunday",
        5,
        "week_starts \"Sunday\" is not a day of the week",
    ),
    (
        "a zone without a calendar limit",
        "rules:\n  - name: a\n    key: k\n    limits: [1/s]\n    zone: Europe/Berlin",
        5,
        "zone Europe/Berlin applies to no limit of the rule",
    ),
    (
        "an anchor without a month",
        "rules:\n  - name: a\n    key: k\n    limits: [1 per calendar year]\n    anchor: 15",
        5,
        "anchor 15 applies to no limit of the rule: write a limit such as \"1000 per calendar month\"",
    ),
    (
        "a first day without a week",
        "rules:\n  - name: a\n    key: k\n    limits: [1 per calendar month]\n    week_starts: sunday",
        5,
        "week_starts sunday applies to no limit",
    ),
    (
        "parts with a zone and no calendar period",
        "rules:\n  - name: a\n    key: k\n    limits: [{ limit: 1, per: s, zone: UTC }]",
        4,
        "zone UTC does not apply to a limit without a calendar period",
    ),
    (
        "parts with an anchor of 0",
        "rules:\n  - name: a\n    key: k\n    limits: [{ limit: 1, per: calendar month, anchor: 0 }]",
        4,
        "anchor 0 is not a day of a month",
    ),
    ("nothing", "", 0, "rules"),
    ("no rules", "version: 1", 1, "version"),
    ("null rules", "rules:\n", 1, "\"rules: []\""),
    (
        "bad network",
        "rules:\n  - name: a\n    key: k\n    when: { ip: 10.0.0.0/33 }\n    limits: [1/s]",
        4,
        "\"10.0.0.0/33\" is no network",
    ),
    ("broken", "rules: [", 1, ""),
    ("a tab", "rules:\n\t- name: a", 2, ""),
    ("rules is text", "rules: all", 1, ""),
    ("unknown key", "rules:\n  - name: a\n    key: k\n    limit: [1/s]\n    limits: [1/s]", 4, "limit"),
    ("no name", "rules:\n  - key: k\n    limits: [1/s]", 2, "name"),
    ("no key", "rules:\n  - name: a\n    limits: [1/s]", 2, "key"),
    ("no limits", "rules:\n  - name: a\n    key: k", 2, "limits"),
    ("empty limits", "rules:\n  - name: a\n    key: k\n    limits: []", 4, "limits is empty"),
    (
        "bad quota",
        "rules:\n  - name: a\n    key: k\n    limits:\n      - 1/s\n      - 10/fortnight",
        6,
        "\"fortnight\" is not a unit",
    ),
    ("zero", "rules:\n  - name: a\n    key: k\n    limits: [0/s]", 4, "limit is 0"),
    ("a number as limit", "rules:\n  - name: a\n    key: k\n    limits: [5]", 4, "limit"),
    (
        "unbalanced brace",
        "rules:\n  - name: a\n    key: \"user:{user\"\n    limits: [1/s]",
        3,
        "unbalanced brace at byte 5",
    ),
    ("other brace", "rules:\n  - name: a\n    key: \"user}\"\n    limits: [1/s]", 3, "unbalanced brace at byte 4"),
    ("empty braces", "rules:\n  - name: a\n    key: \"user:{}\"\n    limits: [1/s]", 3, "names the attribute \"\""),
    ("empty key", "rules:\n  - name: a\n    key: \"\"\n    limits: [1/s]", 3, "the key is empty"),
    (
        "duplicate name",
        "rules:\n  - name: a\n    key: k\n    limits: [1/s]\n  - name: a\n    key: k\n    limits: [1/s]",
        5,
        "the name is used by an earlier rule",
    ),
    (
        "reserved name",
        "rules:\n  - name: ban\n    key: k\n    limits: [1/s]",
        2,
        "the name \"ban\" stands for something else",
    ),
    ("bad name", "rules:\n  - name: \"a\\nb\"\n    key: k\n    limits: [1/s]", 2, "printable ASCII"),
    (
        "bad algorithm",
        "rules:\n  - name: a\n    key: k\n    algorithm: magic\n    limits: [1/s]",
        4,
        "\"magic\" is not one of token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_log",
    ),
    (
        "bad mode",
        "rules:\n  - name: a\n    key: k\n    mode: maybe\n    limits: [1/s]",
        4,
        "\"maybe\" is not one of enforce, shadow, off",
    ),
    (
        "bad lease",
        "rules:\n  - name: a\n    key: k\n    lease: soon\n    limits: [1/s]",
        4,
        "lease \"soon\" is not a time",
    ),
    (
        "bad pattern",
        "rules:\n  - name: a\n    key: k\n    when:\n      path: /v{n}/x\n    limits: [1/s]",
        5,
        "whole path segment",
    ),
    ("empty list", "rules:\n  - name: a\n    key: k\n    when: { plan: [] }\n    limits: [1/s]", 4, "empty list"),
    ("alias", "rules:\n  - &a\n    name: a\n    key: k\n    limits: [1/s]\n  - *a", 0, ""),
];

#[test]
fn refusals_say_where_and_why() {
    for (what, text, line, words) in REFUSED {
        let error = compile(text).expect_err(what);
        assert!(line == 0 || error.line == line, "{what}: {error}");
        assert!(error.reason.contains(words), "{what}: {error}");
        assert!(!error.reason.contains('\n'), "{what}: {error}");
    }
}

#[test]
fn bombs_are_refused() {
    let large = format!("rules: []\n# {}", "x".repeat(2 << 20));
    assert!(compile(&large).unwrap_err().reason.contains("longer than 1048576 bytes"));
    let deep = format!("rules: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(compile(&deep).is_err());
    let laughs = "a: &a [x,x]\nb: &b [*a,*a]\nrules: [*b,*b]";
    assert!(compile(laughs).is_err());
}

#[test]
fn every_example_is_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        compile(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        count += 1;
    }
    assert!(count >= 2);
}
