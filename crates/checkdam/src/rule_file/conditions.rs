//! Conditions in the schema of a rule file.

use super::yaml_value::YamlValue;
use crate::rule::{Condition, Matcher};

/// A rule's conditions by attribute. Whatever can be built can be written: what
/// fits no short form is written as `all`, and exact text that would read as a
/// pattern or a network as `{equals: text}`.
pub(super) fn conditions(when: &[(String, Condition)]) -> Vec<(String, YamlValue)> {
    let mut attributes: Vec<(String, Vec<&Condition>)> = Vec::new();
    for (attribute, condition) in when {
        match attributes.iter_mut().find(|(known, _)| known == attribute) {
            Some((_, conditions)) => conditions.push(condition),
            None => attributes.push((attribute.clone(), vec![condition])),
        }
    }
    attributes.into_iter().map(|(attribute, conditions)| (attribute, of(&conditions))).collect()
}

fn of(conditions: &[&Condition]) -> YamlValue {
    match conditions {
        [one] => alone(one),
        several => together(several)
            .unwrap_or_else(|| YamlValue::map("all", YamlValue::List(several.iter().map(|one| alone(one)).collect()))),
    }
}

fn alone(condition: &Condition) -> YamlValue {
    match condition {
        Condition::In(matchers) => match equals(matchers) {
            Some(exact) => YamlValue::map("equals", exact),
            None => values(matchers),
        },
        Condition::NotIn(matchers) => YamlValue::map("not_in", values(matchers)),
        Condition::Present(expected) => YamlValue::map("present", YamlValue::Truth(*expected)),
    }
}

/// Several conditions as one set of tests, in the order in which tests are read.
fn together(conditions: &[&Condition]) -> Option<YamlValue> {
    const ORDER: [&str; 5] = ["in", "not_in", "not", "equals", "present"];
    let mut tests = Vec::new();
    let mut names = ORDER.iter();
    for condition in conditions {
        let (fits, test): (&[&str], YamlValue) = match condition {
            Condition::In(matchers) => match equals(matchers) {
                Some(exact) => (&["equals"], exact),
                None if matchers.iter().all(|one| matches!(one, Matcher::Exact(_))) => {
                    (&["in", "equals"], values(matchers))
                }
                None => (&["in"], values(matchers)),
            },
            Condition::NotIn(matchers) => (&["not_in", "not"], values(matchers)),
            Condition::Present(expected) => (&["present"], YamlValue::Truth(*expected)),
        };
        let name = names.find(|name| fits.contains(name))?;
        tests.push(((*name).to_owned(), test));
    }
    Some(YamlValue::Map(tests))
}

/// The values, if all are exact and one of them would not read so.
fn equals(matchers: &[Matcher]) -> Option<YamlValue> {
    let texts = matchers.iter().map(|matcher| match matcher {
        Matcher::Exact(text) => Some(text.clone()),
        _ => None,
    });
    let texts: Vec<String> = texts.collect::<Option<_>>()?;
    let is_needed = matchers.iter().any(|matcher| !reads_so(matcher));
    is_needed.then(|| if let [one] = texts.as_slice() { YamlValue::text(one) } else { YamlValue::texts(&texts) })
}

/// One value as it is, several as a list.
fn values(matchers: &[Matcher]) -> YamlValue {
    let value = |matcher: &Matcher| {
        let text = YamlValue::Text(matcher.to_string());
        if reads_so(matcher) { text } else { YamlValue::map("equals", text) }
    };
    match matchers {
        [one] if reads_so(one) => value(one),
        several => YamlValue::List(several.iter().map(value).collect()),
    }
}

fn reads_so(matcher: &Matcher) -> bool {
    Matcher::parse(&matcher.to_string()).as_ref() == Ok(matcher)
}
