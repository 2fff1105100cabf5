//! What a rule says, as flags. Nothing is validated here: the flags become the
//! fields of a `RuleSpec`, which are validated where a rule is made of it.

use checkdam::{Rule, RuleSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::condition_flags;
use crate::cli::command_error::CommandError;
use crate::rulebook::WithoutRow;

/// The fields of a rule, each as far as it is given.
#[derive(Debug, Default, clap::Args, Serialize)]
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

    /// The rule, as the admin API answers it, with what is given in place of what it said.
    pub(super) fn apply_to(&self, mut rule: Value) -> Result<Rule, CommandError> {
        if let Value::Object(fields) = &mut rule {
            // Only one algorithm knows the word, and who chooses another means to leave it.
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
            given.insert("when".to_owned(), condition_flags::parse(&self.when)?);
        }
        // Elsewhere even false is refused.
        for (name, off) in [("strict", json!(false)), ("lease", json!("off"))] {
            if given.get(name) == Some(&off) {
                given.insert(name.to_owned(), Value::Null);
            }
        }
        Ok(given)
    }
}
