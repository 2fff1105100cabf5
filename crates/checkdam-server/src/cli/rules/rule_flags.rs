//! The fields of a rule as flags. They are not validated here: they become the fields
//! of a rule file, and its parser validates them.

use checkdam::{Rule, rule_file};
use serde_json::{Map, Value, json};

use super::condition_flags;
use crate::cli::command_error::CommandError;

/// Fields of the admin API's responses that are not part of the rule.
const ROW: [&str; 4] = ["id", "version", "created_at", "updated_at"];

/// The parts of a rule, each as far as it is given.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RuleFlags {
    /// Key of the bucket that a request is charged to, such as user:{user}
    #[arg(long, value_name = "PATTERN")]
    key: Option<String>,

    /// Limit, such as "10/s burst 50" or "100 per calendar month"; repeat it for several tiers
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

    /// Mode: enforce, shadow (reports and does not deny) or off
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,

    /// Decision while the store is unavailable: local, closed or open
    #[arg(long, value_name = "POLICY")]
    on_store_failure: Option<String>,

    /// Lease time for tokens, such as 100ms, or auto, or off
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,

    /// Priority; rules of higher priority come first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Kind of subject, shown to people
    #[arg(long, value_name = "WORD")]
    scope: Option<String>,

    /// Domain; only its requests match
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl RuleFlags {
    /// Whether nothing is given.
    pub(super) fn is_empty(&self) -> bool {
        self.to_fields().is_ok_and(|given| given.is_empty())
    }

    /// A new rule.
    pub(super) fn rule(&self, name: &str) -> Result<Rule, CommandError> {
        self.apply_to(json!({"name": name}))
    }

    /// The rule with what is given in place of what it said.
    pub(super) fn apply_to(&self, rule: Value) -> Result<Rule, CommandError> {
        let mut fields = match without_row(rule) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        // Only one algorithm has this option, and choosing another drops it.
        if self.strict.is_none() && self.algorithm.as_deref().is_some_and(|name| name != "sliding_window") {
            fields.remove("strict");
        }
        fields.extend(self.to_fields()?);
        fields.retain(|_, value| !value.is_null());
        parse(&Value::Object(fields))
    }

    /// The given fields, as in a rule file; null for those to be removed.
    fn to_fields(&self) -> Result<Map<String, Value>, CommandError> {
        let mut given = Map::new();
        for (name, value) in [
            ("key", &self.key),
            ("algorithm", &self.algorithm),
            ("mode", &self.mode),
            ("on_store_failure", &self.on_store_failure),
            ("scope", &self.scope),
            ("domain", &self.domain),
            ("description", &self.description),
        ] {
            if let Some(value) = value {
                given.insert(name.to_owned(), json!(value));
            }
        }
        if !self.limits.is_empty() {
            given.insert("limits".to_owned(), json!(self.limits));
        }
        if !self.when.is_empty() {
            given.insert("when".to_owned(), condition_flags::parse(&self.when)?);
        }
        if let Some(strict) = self.strict {
            // Elsewhere even false is rejected.
            given.insert("strict".to_owned(), if strict { json!(true) } else { Value::Null });
        }
        if let Some(lease) = &self.lease {
            given.insert("lease".to_owned(), if lease == "off" { Value::Null } else { json!(lease) });
        }
        if let Some(priority) = self.priority {
            given.insert("priority".to_owned(), json!(priority));
        }
        Ok(given)
    }
}

/// A rule from generated JSON: the location of an error means nothing.
pub(super) fn parse(rule: &Value) -> Result<Rule, CommandError> {
    rule_file::parse_rule(&rule.to_string()).map_err(|error| CommandError::invalid(error.reason))
}

/// The rule in a response of the admin API.
pub(super) fn without_row(mut rule: Value) -> Value {
    if let Some(fields) = rule.as_object_mut() {
        for name in ROW {
            fields.remove(name);
        }
    }
    rule
}
