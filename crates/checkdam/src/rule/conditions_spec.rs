//! Conditions as they are written: `{plan: free, ip: {not_in: [10.0.0.0/8]}}`. What
//! an attribute must be is a value, a list of values, or a map of tests.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};

use super::condition::{Condition, Matcher};
use super::is_attribute_name;
use super::spec_parts::SpecError;

/// The tests of an attribute, in the order in which they are read and written.
const TESTS: [&str; 6] = ["in", "not_in", "not", "equals", "present", "all"];

/// The conditions of a rule, by attribute, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConditionsSpec(Vec<(String, Value)>);

impl ConditionsSpec {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each attribute and what it must be.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(attribute, condition)| (attribute.as_str(), condition))
    }

    /// A rule's conditions by attribute. Whatever can be built can be written: what
    /// fits no short form is written as `all`, and exact text that would read as a
    /// pattern or a network as `{equals: text}`.
    pub(super) fn of(when: &[(String, Condition)]) -> Self {
        let mut attributes: Vec<(String, Vec<&Condition>)> = Vec::new();
        for (attribute, condition) in when {
            match attributes.iter_mut().find(|(known, _)| known == attribute) {
                Some((_, conditions)) => conditions.push(condition),
                None => attributes.push((attribute.clone(), vec![condition])),
            }
        }
        Self(attributes.into_iter().map(|(attribute, conditions)| (attribute, written(&conditions))).collect())
    }

    pub(super) fn compile(&self) -> Result<Vec<(String, Condition)>, SpecError> {
        let mut when = Vec::new();
        for (attribute, condition) in self.iter() {
            let fail = |reason| SpecError::at("when", reason).key(attribute);
            if !is_attribute_name(attribute) {
                let reason = format!("when names the attribute {attribute:?}: use letters, digits, '_', '-' and '.'");
                return Err(fail(reason));
            }
            let compiled = compile(condition).map_err(fail)?;
            when.extend(compiled.into_iter().map(|condition| (attribute.to_owned(), condition)));
        }
        Ok(when)
    }
}

/// Several conditions of one attribute.
fn written(conditions: &[&Condition]) -> Value {
    match conditions {
        [one] => single(one),
        several => {
            merged(several).unwrap_or_else(|| json!({"all": several.iter().map(|one| single(one)).collect::<Vec<_>>()}))
        }
    }
}

fn single(condition: &Condition) -> Value {
    match condition {
        Condition::In(matchers) => exact(matchers).map_or_else(|| values(matchers), |exact| json!({"equals": exact})),
        Condition::NotIn(matchers) => json!({"not_in": values(matchers)}),
        Condition::Present(expected) => json!({"present": expected}),
    }
}

/// Several conditions as one map, if they stand in the order in which tests are read.
fn merged(conditions: &[&Condition]) -> Option<Value> {
    let mut tests = json!({});
    let mut names = TESTS.iter();
    for condition in conditions {
        let (fits, test): (&[&str], Value) = match condition {
            Condition::In(matchers) => match exact(matchers) {
                Some(exact) => (&["equals"], exact),
                None if matchers.iter().all(|one| matches!(one, Matcher::Exact(_))) => {
                    (&["in", "equals"], values(matchers))
                }
                None => (&["in"], values(matchers)),
            },
            Condition::NotIn(matchers) => (&["not_in", "not"], values(matchers)),
            Condition::Present(expected) => (&["present"], json!(expected)),
        };
        tests[names.find(|name| fits.contains(name))?] = test;
    }
    Some(tests)
}

/// The values, if all are exact and one of them would not read so.
fn exact(matchers: &[Matcher]) -> Option<Value> {
    let text = |matcher: &Matcher| match matcher {
        Matcher::Exact(text) => Some(json!(text)),
        _ => None,
    };
    let mut texts = matchers.iter().map(text).collect::<Option<Vec<Value>>>()?;
    let is_needed = matchers.iter().any(|matcher| !round_trips(matcher));
    is_needed.then(|| if texts.len() == 1 { texts.remove(0) } else { Value::Array(texts) })
}

/// One value as it is, several as a list.
fn values(matchers: &[Matcher]) -> Value {
    let value = |matcher: &Matcher| {
        let text = json!(matcher.to_string());
        if round_trips(matcher) { text } else { json!({"equals": text}) }
    };
    match matchers {
        [one] if round_trips(one) => value(one),
        several => several.iter().map(value).collect(),
    }
}

fn round_trips(matcher: &Matcher) -> bool {
    Matcher::parse(&matcher.to_string()).as_ref() == Ok(matcher)
}

/// The conditions that a written one stands for; all must hold.
fn compile(condition: &Value) -> Result<Vec<Condition>, String> {
    let Value::Object(tests) = condition else { return Ok(vec![Condition::In(matchers(condition)?)]) };
    if let Some(unknown) = tests.keys().find(|name| !TESTS.contains(&name.as_str())) {
        return Err(format!("a condition has the test {unknown:?}, which is not one of {}", TESTS.join(", ")));
    }
    let mut conditions = Vec::new();
    for (name, test) in TESTS.iter().filter_map(|name| Some((*name, tests.get(*name).filter(|test| !test.is_null())?)))
    {
        match (name, test) {
            ("in", values) => conditions.push(Condition::In(matchers(values)?)),
            ("not_in" | "not", values) => conditions.push(Condition::NotIn(matchers(values)?)),
            ("equals", values) => {
                let texts = list(values).iter().map(|value| text(value).map(Matcher::Exact));
                conditions.push(Condition::In(texts.collect::<Result<_, _>>()?));
            }
            ("present", Value::Bool(expected)) => conditions.push(Condition::Present(*expected)),
            ("all", Value::Array(all)) => {
                for condition in all {
                    conditions.extend(compile(condition)?);
                }
            }
            (name, test) => {
                return Err(format!("a condition has the test {name}: {test}: use true or false, or a list"));
            }
        }
    }
    if conditions.is_empty() {
        return Err(format!("a condition is empty: use one of {}", TESTS.join(", ")));
    }
    Ok(conditions)
}

fn matchers(values: &Value) -> Result<Vec<Matcher>, String> {
    let matcher = |value: &Value| match value {
        Value::Object(tests) if tests.len() == 1 && tests.contains_key("equals") => {
            text(&tests["equals"]).map(Matcher::Exact)
        }
        value => Matcher::parse(&text(value)?).map_err(|error| error.to_string()),
    };
    match list(values) {
        [] => Err("a condition has an empty list: nothing could ever match it".to_owned()),
        values => values.iter().map(matcher).collect(),
    }
}

/// One value or a list of them.
fn list(values: &Value) -> &[Value] {
    if let Value::Array(list) = values { list } else { std::slice::from_ref(values) }
}

/// Text; a whole number or truth value is read as text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        other => Err(format!("a condition names {other}: use a value, a list of values, or {{equals: a value}}")),
    }
}

impl Serialize for ConditionsSpec {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.iter().map(|(attribute, condition)| (attribute, Ordered(condition))))
    }
}

/// Tests in the order of [`TESTS`].
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(tests) => {
                out.collect_map(TESTS.iter().filter_map(|name| Some((*name, Ordered(tests.get(*name)?)))))
            }
            Value::Array(list) => out.collect_seq(list.iter().map(Ordered)),
            scalar => scalar.serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for ConditionsSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConditionsVisitor;
        impl<'de> Visitor<'de> for ConditionsVisitor {
            type Value = ConditionsSpec;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("attributes and what they must be, such as {plan: free}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConditionsSpec, A::Error> {
                let mut conditions = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    conditions.push(entry);
                }
                Ok(ConditionsSpec(conditions))
            }
        }
        deserializer.deserialize_map(ConditionsVisitor)
    }
}
