//! Parses conditions of the command line: `plan=free`, `method=GET,POST`,
//! `ip!=10.0.0.0/8`, `user` (present), `!user` (absent).

use checkdam::ConditionsSpec;
use serde_json::{Map, Value, json};

use crate::cli::command_error::CommandError;

/// Conditions in the shape of a rule file.
pub(super) fn parse(texts: &[String]) -> Result<Value, CommandError> {
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
pub(super) fn to_flags(when: &ConditionsSpec) -> String {
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
            assert_eq!(parse(&texts).unwrap(), when);
            assert_eq!(to_flags(&spec(when)), text);
        }
        for texts in [&["=free"][..], &["plan="], &["plan=a,,b"], &["!"], &[""], &["plan=a", "plan=b"], &["a", "!a"]] {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            assert!(parse(&texts).is_err(), "{texts:?}");
        }
    }

    #[test]
    fn conditions_of_any_shape_are_shown() {
        let when = json!({"path": "/a/*", "n": 5, "b": {"equals": "x*"}, "c": {"all": [{"not": "a"}, "b"]}, "d": [{"equals": "*"}]});
        assert_eq!(to_flags(&spec(when)), "b=x* c!=a c=b d=* n=5 path=/a/*");
    }
}
