//! Invalid rule files: rejected by `rules check`, and by `serve` at startup.

use crate::server_process::{rule_file, run, text};

/// A file, the line that is wrong, and what the message must name.
const CASES: &[(&str, u64, &str)] = &[
    ("rules:\n  - name: a\n   key: b\n", 3, ""),
    ("rules:\n  - name: a\n    key: [\n", 3, ""),
    ("rules:\n- {name: a, key: k, limits: [1/s]}\n- {name: a, key: k, limits: [1/s]}\n", 3, "\"a\""),
    ("rules:\n  - name: a\n    key: \"user:{user\"\n    limits: [1/s]\n", 3, "user:{user"),
    ("rules:\n  - name: a\n    key: \"user:user}\"\n    limits: [1/s]\n", 3, "user:user}"),
    ("rules:\n  - name: a\n    key: k\n    limits:\n      - 1/s\n      - lots\n", 6, "lots"),
    ("rules:\n  - name: a\n    key: k\n    limits: [10/fortnight]\n", 4, "fortnight"),
    ("rules:\n  - name: a\n    key: k\n    limits: [0/s]\n", 4, "limit"),
    ("rules:\n  - name: a\n    key: k\n    limits: [1/s burst 0]\n", 4, "burst"),
    ("rules:\n  - name: a\n    key: k\n    limits: []\n", 4, "empty"),
    ("rules:\n  - name: a\n    key: k\n    limits: [1/s]\n    colour: red\n", 5, "colour"),
    ("rules:\n  - name: a\n    key: k\n    limits: [1/s]\n    mode: loud\n", 5, "loud"),
    ("rules:\n  - name: a\n    key: k\n    limits: [1/s]\n    algorithm: dice\n", 5, "dice"),
    ("rules:\n  - name: a\n    key: k\n", 2, "limits"),
    ("ruels: []\n", 1, "ruels"),
    ("rules: 5\n", 1, ""),
];

#[test]
fn a_bad_rule_file_is_refused_with_its_place_and_the_value() {
    for (rules, line, named) in CASES {
        let path = rule_file(rules);
        let path = path.to_str().unwrap();
        for (arguments, code) in [(["rules", "check", path], 1), (["serve", "--rules", path], 2)] {
            let output = run(&arguments);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {rules}\n{said}");
            assert!(output.stdout.is_empty(), "{rules}");
            let place = format!("{path}:{line}:");
            assert!(said.starts_with(&place), "not at line {line}:\n{rules}\n{said}");
            assert!(said.contains(named), "{named:?} is not named:\n{rules}\n{said}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_wrong_usage() {
    for arguments in [["rules", "check", "/does/not/exist.yaml"], ["serve", "--rules", "/does/not/exist.yaml"]] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("/does/not/exist.yaml: cannot be read"), "{output:?}");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let path = rule_file(&format!("rules: []\n{}", "# filling\n".repeat(110_000)));
    let output = run(&["rules", "check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("1048576"), "{output:?}");
}

#[test]
fn refusals_are_json_when_asked() {
    let path = rule_file("rules:\n  - name: a\n    key: k\n    limits: [0/s]\n");
    let output = run(&["rules", "check", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["ok"], &answer["error"]["line"]), (&false.into(), &4.into()));
    assert_eq!(answer["file"], path.to_str().unwrap());
}

#[test]
fn every_example_file_is_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect();
    assert!(!files.is_empty());
    for file in files {
        let output = run(&["rules", "check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", file.display(), text(&output.stderr));
    }
}
