//! Command-line flags for the fields of a rule. Nothing is validated here: the flags become
//! a `RuleSpec`, which is validated when it becomes a rule.

use checkdam::{ConditionsSpec, Rule, RuleSpec};
use checkdam_service::rulebook::WithoutRow;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cli::command_error::CommandError;

/// The fields of a rule, each as far as it is given.
#[derive(Debug, Default, clap::Args, Serialize)]
pub(crate) struct RuleFlags {
    /// Key of the bucket that a request is charged to, such as user:{user}
    #[arg(long, value_name = "PATTERN")]
    key: Option<String>,

    /// Limit, such as "10/s burst 50" or "100 per calendar month zone Europe/Berlin"; repeat it for several tiers
    #[arg(long = "limit", value_name = "LIMIT")]
    limits: Vec<String>,

    /// Condition: plan=free, method=GET,POST, ip!=10.0.0.0/8, user (is present), !user (is absent); repeat it to
    /// require several. Use --file for other conditions
    #[arg(long, value_name = "CONDITION")]
    when: Vec<String>,

    /// Algorithm: token_bucket, leaky_bucket, fixed_window, sliding_window or sliding_log
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,

    /// For sliding_window: never allow more than the limit in any window
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    strict: Option<bool>,

    /// Time zone of calendar limits, such as Europe/Berlin; none removes it (UTC)
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,

    /// Day on which calendar months begin, 1 to 31 (in a shorter month, its last day); none removes it (the first)
    #[arg(long, value_name = "DAY")]
    anchor: Option<String>,

    /// Day on which calendar weeks begin, such as sunday; none removes it (monday)
    #[arg(long, value_name = "WEEKDAY")]
    week_starts: Option<String>,

    /// Mode: enforce, shadow (counts and reports, never denies) or off
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,

    /// Decision while the store is unavailable: local, closed or open
    #[arg(long, value_name = "POLICY")]
    on_store_failure: Option<String>,

    /// How long tokens are leased from Redis, such as 100ms, or auto, or off
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,

    /// Priority; rules with a higher priority come first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Scope: the kind of subject, for display
    #[arg(long, value_name = "WORD")]
    scope: Option<String>,

    /// Domain; the rule matches only requests of this domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl RuleFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.to_fields().is_ok_and(|given| given.is_empty())
    }

    pub(super) fn rule(&self, name: &str) -> Result<Rule, CommandError> {
        self.apply_to(json!({"name": name}))
    }

    /// The rule, as the admin API answers it, with what is given in place of what it said.
    pub(super) fn apply_to(&self, mut rule: Value) -> Result<Rule, CommandError> {
        if let Value::Object(fields) = &mut rule {
            // Only sliding_window has it: another algorithm drops it.
            if self.strict.is_none() && self.algorithm.as_deref().is_some_and(|name| name != "sliding_window") {
                fields.remove("strict");
            }
            fields.extend(self.to_fields()?);
            fields.retain(|_, value| !value.is_null());
        }
        let spec = WithoutRow::<RuleSpec>::deserialize(rule).map_err(|error| CommandError::invalid(error.to_string()));
        Ok(Rule::try_from(spec?.0)?)
    }

    /// What is given, as a rule file has it; null for what is to be left out.
    fn to_fields(&self) -> Result<Map<String, Value>, CommandError> {
        let Ok(Value::Object(mut given)) = serde_json::to_value(self) else { return Ok(Map::new()) };
        given.retain(|_, value| !value.is_null() && *value != json!([]));
        if !self.when.is_empty() {
            given.insert("when".to_owned(), parse_conditions(&self.when)?);
        }
        if let Some(day) = self.anchor.as_deref().filter(|day| *day != "none") {
            let no_day =
                || CommandError::invalid(format!("--anchor {day} is not a day of a month: use 1 to 31 or none"));
            given.insert("anchor".to_owned(), day.parse::<u64>().map_err(|_| no_day())?.into());
        }
        // Other algorithms reject even false.
        let none = || json!("none");
        let absent = [
            ("strict", json!(false)),
            ("lease", json!("off")),
            ("zone", none()),
            ("anchor", none()),
            ("week_starts", none()),
        ];
        for (name, off) in absent {
            if given.get(name) == Some(&off) {
                given.insert(name.to_owned(), Value::Null);
            }
        }
        Ok(given)
    }
}

/// Parses conditions of the command line to the form of a rule file: `plan=free`,
/// `method=GET,POST`, `ip!=10.0.0.0/8`, `user` (present), `!user` (absent).
fn parse_conditions(texts: &[String]) -> Result<Value, CommandError> {
    let mut when = Map::new();
    for text in texts {
        let (attribute, test, value) = if let Some((attribute, values)) = text.split_once("!=") {
            (attribute, "not_in", list(values))
        } else if let Some((attribute, values)) = text.split_once('=') {
            (attribute, "in", list(values))
        } else if let Some(attribute) = text.strip_prefix('!') {
            (attribute, "present", json!(false))
        } else {
            (text.as_str(), "present", json!(true))
        };
        let is_empty = value.as_array().is_some_and(|values| values.iter().any(|value| value == ""));
        if attribute.is_empty() || is_empty {
            let reason =
                format!("the condition {text:?} is not understood: write plan=free, method=GET,POST or ip!=10.0.0.0/8");
            return Err(CommandError::invalid(reason));
        }
        let tests = when.entry(attribute).or_insert_with(|| json!({}));
        if !tests[test].is_null() {
            let reason =
                format!("the condition {text:?} is the second of its kind: write several values as {attribute}=a,b");
            return Err(CommandError::invalid(reason));
        }
        tests[test] = value;
    }
    Ok(Value::Object(when))
}

fn list(values: &str) -> Value {
    values.split(',').collect()
}

/// Conditions as the command line writes them.
pub(super) fn conditions_to_flags(when: &ConditionsSpec) -> String {
    let mut texts = Vec::new();
    for (attribute, condition) in when.iter() {
        push_flags(attribute, condition, &mut texts);
    }
    texts.join(" ")
}

fn push_flags(attribute: &str, condition: &Value, texts: &mut Vec<String>) {
    let Value::Object(tests) = condition else {
        texts.push(format!("{attribute}={}", values(condition)));
        return;
    };
    for (test, value) in tests {
        match (test.as_str(), value) {
            ("not_in" | "not", value) => texts.push(format!("{attribute}!={}", values(value))),
            ("present", Value::Bool(false)) => texts.push(format!("!{attribute}")),
            ("present", _) => texts.push(attribute.to_owned()),
            ("all", Value::Array(all)) => all.iter().for_each(|one| push_flags(attribute, one, texts)),
            (_, value) => texts.push(format!("{attribute}={}", values(value))),
        }
    }
}

fn values(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(values).collect::<Vec<_>>().join(","),
        Value::Object(tests) => tests.values().map(values).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_options_are_set_and_removed() {
        let rule = json!({"name": "a", "key": "k", "limits": ["1 per calendar month"], "anchor": 3});
        let set =
            RuleFlags { zone: Some("Europe/Berlin".to_owned()), anchor: Some("15".to_owned()), ..RuleFlags::default() };
        let set = set.apply_to(rule.clone()).unwrap();
        assert_eq!(set.quotas[0].to_string(), "1 per calendar month zone Europe/Berlin anchor 15");
        let none = RuleFlags { anchor: Some("none".to_owned()), ..RuleFlags::default() };
        assert_eq!(none.apply_to(rule.clone()).unwrap().quotas[0].to_string(), "1 per calendar month");
        for (anchor, reason) in [("soon", "--anchor soon is not a day"), ("32", "anchor 32 is not a day")] {
            let flags = RuleFlags { anchor: Some(anchor.to_owned()), ..RuleFlags::default() };
            let error = flags.apply_to(rule.clone()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    fn spec(when: Value) -> ConditionsSpec {
        serde_json::from_value(when).unwrap()
    }

    #[test]
    fn conditions_are_read_and_shown_alike() {
        let table = [
            (vec![], json!({}), ""),
            (vec!["plan=free"], json!({"plan": {"in": ["free"]}}), "plan=free"),
            (vec!["method=GET,POST"], json!({"method": {"in": ["GET", "POST"]}}), "method=GET,POST"),
            (vec!["user", "!tenant"], json!({"user": {"present": true}, "tenant": {"present": false}}), "!tenant user"),
            (
                vec!["ip=10.0.0.0/8", "ip!=10.1.0.0/16"],
                json!({"ip": {"in": ["10.0.0.0/8"], "not_in": ["10.1.0.0/16"]}}),
                "ip=10.0.0.0/8 ip!=10.1.0.0/16",
            ),
            (vec!["query=a=b"], json!({"query": {"in": ["a=b"]}}), "query=a=b"),
        ];
        for (texts, when, text) in table {
            let texts: Vec<String> = texts.into_iter().map(str::to_owned).collect();
            assert_eq!(parse_conditions(&texts).unwrap(), when);
            assert_eq!(conditions_to_flags(&spec(when)), text);
        }
        for texts in [&["=free"][..], &["plan="], &["plan=a,,b"], &["!"], &[""], &["plan=a", "plan=b"], &["a", "!a"]] {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            assert!(parse_conditions(&texts).is_err(), "{texts:?}");
        }
    }

    #[test]
    fn conditions_of_any_shape_are_shown() {
        let when = json!({"path": "/a/*", "n": 5, "b": {"equals": "x*"}, "c": {"all": [{"not": "a"}, "b"]}, "d": [{"equals": "*"}]});
        assert_eq!(conditions_to_flags(&spec(when)), "b=x* c!=a c=b d=* n=5 path=/a/*");
    }
}
