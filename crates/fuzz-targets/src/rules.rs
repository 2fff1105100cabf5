//! Fuzz targets: parsing of quotas and rule files; what is written parses to the same.

use checkdam::rule_file::{parse_ban, parse_definitions, parse_override, parse_rule, write};
use checkdam::{
    Algorithm, Ban, BanSpec, Definitions, Override, OverrideSpec, Quota, QuotaSpec, Request, Rule, RuleSpec,
};

/// A text is a quota whose own text is the same quota again, or an error.
pub fn quota(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<QuotaSpec>() {
        Ok(spec) => {
            for algorithm in Algorithm::ALL {
                let Ok(quota) = Quota::new(spec, algorithm) else { continue };
                let written = quota.to_string().parse().expect("the text of a quota is a quota");
                assert_eq!(Quota::new(written, algorithm).as_ref(), Ok(&quota), "{quota}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file is a rule set or an error with a location; what is parsed is written as text and as JSON
/// that mean the same.
pub fn rule_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match checkdam::rule_file::compile(text) {
        Ok(rules) => {
            let request = Request::new().with("user", "42").and_then(|request| request.with("ip", "10.0.0.1"));
            let _ = rules.explain(&request.expect("the request is valid"), 10);
        }
        Err(error) => assert!(error.line <= 1 + text.len() as u64 && !error.reason.is_empty(), "{error}"),
    }
    // Trees have a format of their own, which is not written.
    let Ok(definitions) = parse_definitions(text) else { return };
    let definitions = Definitions { trees: Vec::new(), ..definitions };
    let written = write(&definitions);
    assert_eq!(parse_definitions(&written).as_ref(), Ok(&definitions), "{written}");
    definitions.rules.iter().for_each(same_rule_from_json);
    definitions.overrides.iter().for_each(same_override_from_json);
    definitions.bans.iter().for_each(same_ban_from_json);
}

fn same_rule_from_json(rule: &Rule) {
    let json = serde_json::to_string(&RuleSpec::from(rule)).expect("a rule has a text");
    let spec: RuleSpec = serde_json::from_str(&json).expect("the JSON of a rule is a rule");
    assert_eq!(spec, RuleSpec::from(rule), "{json}");
    assert_eq!(Rule::try_from(spec).as_ref(), Ok(rule), "{json}");
    assert_eq!(parse_rule(&json).as_ref(), Ok(rule), "{json}");
}

fn same_override_from_json(given: &Override) {
    let json = serde_json::to_string(&OverrideSpec::from(given)).expect("an override has a text");
    let spec: OverrideSpec = serde_json::from_str(&json).expect("the JSON of an override is an override");
    assert_eq!(Override::try_from(spec).as_ref(), Ok(given), "{json}");
    assert_eq!(parse_override(&json).as_ref(), Ok(given), "{json}");
}

fn same_ban_from_json(ban: &Ban) {
    let json = serde_json::to_string(&BanSpec::from(ban)).expect("a ban has a text");
    let spec: BanSpec = serde_json::from_str(&json).expect("the JSON of a ban is a ban");
    assert_eq!(Ban::try_from(spec).as_ref(), Ok(ban), "{json}");
    assert_eq!(parse_ban(&json).as_ref(), Ok(ban), "{json}");
}
