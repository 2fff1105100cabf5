//! Rules that concern exactly the same requests.

use std::collections::HashMap;

use checkdam::{Mode, Rule};
use serde_json::Value;

/// Refuses two enforced rules with the same domain, key, scope and conditions:
/// nobody could tell which of them is meant. The database's own index does the
/// same for whoever writes past this program.
pub(super) fn check(rules: &[Rule]) -> Result<(), String> {
    let mut known = HashMap::new();
    for rule in rules.iter().filter(|rule| rule.mode == Mode::Enforce) {
        let concerns = (&rule.domain, rule.key.text(), &rule.scope, conditions(rule).to_string());
        if let Some(earlier) = known.insert(concerns, &rule.name) {
            return Err(format!(
                "rule {:?}: it has the same domain, key, scope and conditions as the rule {earlier:?}: \
                 join their limits, or make one of them a shadow",
                rule.name
            ));
        }
    }
    Ok(())
}

/// The conditions as an object, in the order of their names.
pub(super) fn conditions(rule: &Rule) -> Value {
    let text = checkdam::rule_file::RuleText::from(rule);
    // The text has nothing that JSON has not.
    serde_json::to_value(text.when).unwrap_or_default()
}
