//! Rows of `rate_limit_rule`.
//!
//! A rule with one limit that fits the classic columns is stored only in them, so
//! that programs that know only those can change it. Any other rule has its limits in
//! a column of their own, and the classic columns have the equivalent of the first.

use checkdam::rule_file::{self, RuleText};
use checkdam::{Algorithm, Definitions, Mode, Rule};
use serde_json::{Map, Value, json};

use super::{ParsedRow, RowItem, flag, limits, text, without_nul};
use crate::rulebook::database::{Column, Kind};
use crate::rulebook::row_cache::{RowCache, Rows};
use crate::rulebook::{classic_columns, duplicates};

impl RowItem for Rule {
    const TABLE: &'static str = "rate_limit_rule";
    const ID: &'static str = "rule_id";
    const COLUMNS: &'static [Column] = &[
        ("name", Kind::Text),
        ("domain", Kind::Text),
        ("key_pattern", Kind::Text),
        ("scope", Kind::Text),
        ("rate_per_second", Kind::Real),
        ("burst_capacity", Kind::Int),
        ("plan", Kind::Text),
        ("is_active", Kind::Flag),
        ("description", Kind::Text),
        ("limits", Kind::Json),
        ("conditions", Kind::Json),
        ("algorithm", Kind::Text),
        ("strict", Kind::Flag),
        ("mode", Kind::Text),
        ("on_store_failure", Kind::Text),
        ("lease", Kind::Text),
        ("priority", Kind::Int),
    ];

    fn key(&self) -> String {
        self.name.clone()
    }

    fn row(&self) -> Result<Value, String> {
        let text = RuleText::from(self);
        let first = self.quotas.first();
        let (rate, burst) = first.map(classic_columns::rate_and_burst).unzip();
        let burst = burst.flatten();
        let algorithm = first.map(checkdam::Quota::algorithm).unwrap_or_default();
        let mut conditions = duplicates::conditions(self);
        let plan = match conditions.as_object_mut() {
            Some(conditions) if conditions.get("plan").is_some_and(Value::is_string) => conditions.remove("plan"),
            _ => None,
        };
        let has_conditions = conditions.as_object().is_some_and(|conditions| !conditions.is_empty());
        // Going off and coming back are one column in the classic table; what it does when it is on is another.
        let mode = if self.mode == Mode::Off { "enforce" } else { text.mode.unwrap_or("enforce") };
        let mut row = json!({
            "name": without_nul("name", &self.name)?,
            "domain": without_nul("domain", &self.domain)?,
            "key_pattern": without_nul("key", self.key.text())?,
            "scope": without_nul("scope", &self.scope)?,
            "rate_per_second": rate,
            "burst_capacity": burst,
            "plan": plan,
            "is_active": self.mode != Mode::Off,
            "description": without_nul("description", &self.description)?,
            "limits": json!(text.limits).to_string(),
            "conditions": has_conditions.then(|| conditions.to_string()),
            "algorithm": algorithm.name(),
            "strict": text.strict,
            "mode": mode,
            "on_store_failure": text.on_store_failure,
            "lease": text.lease,
            "priority": self.priority,
        });
        without_nul("list of conditions", row["conditions"].as_str().unwrap_or_default())?;
        if row.to_string().contains("\\u0000") {
            return Err("a condition contains a NUL character: leave it out".to_owned());
        }
        if self.quotas.len() == 1 && is_classic(self, &row) {
            row["limits"] = Value::Null;
        }
        Ok(row)
    }

    fn rows(snapshot: &RowCache) -> &Rows<Self> {
        &snapshot.rules
    }

    fn rows_mut(snapshot: &mut RowCache) -> &mut Rows<Self> {
        &mut snapshot.rules
    }

    /// A rule's overrides must fit it, and no other rule may apply to the same requests.
    fn affected_definitions(
        snapshot: &RowCache,
        old: Option<&Self>,
        new: Option<&Self>,
    ) -> Result<Definitions, String> {
        let names: Vec<&str> = old.into_iter().chain(new).map(|rule| rule.name.as_str()).collect();
        if let Some(new) = new {
            let rules = snapshot.rules.iter().filter_map(|entry| entry.item());
            duplicates::check_among(new, rules.filter(|rule| !names.contains(&rule.name.as_str())))?;
        }
        let overrides = snapshot.overrides.iter().filter_map(|entry| entry.item());
        let overrides = overrides.filter(|one| names.contains(&one.rule.as_str())).cloned().collect();
        Ok(Definitions { rules: new.cloned().into_iter().collect(), overrides, ..Definitions::default() })
    }

    /// A row keeps conditions by their names, in no other order.
    fn is_same(&self, other: &Self) -> bool {
        let sorted = |rule: &Self| {
            let mut rule = rule.clone();
            rule.when.sort_by(|(name, _), (other, _)| name.cmp(other));
            rule
        };
        sorted(self) == sorted(other)
    }

    fn description(&self) -> String {
        format!("rule {:?}", self.name)
    }

    fn read(row: &Value) -> ParsedRow<Self> {
        let name = text(row, "name").unwrap_or_default();
        ParsedRow { key: name.to_owned(), what: format!("rule {name:?}"), item: rule(row) }
    }
}

/// Whether the classic columns alone say the same.
fn is_classic(rule: &Rule, row: &Value) -> bool {
    let algorithm = rule.quotas.first().map(checkdam::Quota::algorithm).unwrap_or_default();
    let said = classic_limit(row, algorithm);
    said.is_ok_and(|said| rule.quotas.first().is_some_and(|quota| quota.spec().to_string() == said))
}

/// The limit that the classic columns say.
fn classic_limit(row: &Value, algorithm: Algorithm) -> Result<String, String> {
    let Some(rate) = row.get("rate_per_second").and_then(Value::as_f64) else {
        return Err("it has neither limits nor a number in rate_per_second".to_owned());
    };
    let burst = row.get("burst_capacity").filter(|burst| !burst.is_null());
    let burst =
        burst.map(|burst| burst.as_i64().ok_or_else(|| format!("burst_capacity is {burst}: use a whole number")));
    let has_burst = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    Ok(classic_columns::quota_of(rate, burst.transpose()?, has_burst)?.to_string())
}

fn rule(row: &Value) -> Result<Rule, String> {
    let limits = limits(row)?;
    let mut wire = Map::new();
    for (column, field) in [
        ("name", "name"),
        ("domain", "domain"),
        ("key_pattern", "key"),
        ("scope", "scope"),
        ("description", "description"),
        ("algorithm", "algorithm"),
        ("mode", "mode"),
        ("on_store_failure", "on_store_failure"),
        ("lease", "lease"),
        ("priority", "priority"),
    ] {
        if let Some(value) = row.get(column).filter(|value| !value.is_null()) {
            wire.insert(field.to_owned(), value.clone());
        }
    }
    if flag(row, "strict") == Some(true) {
        wire.insert("strict".to_owned(), Value::Bool(true));
    }
    if flag(row, "is_active") != Some(true) {
        wire.insert("mode".to_owned(), "off".into());
    }
    wire.insert("when".to_owned(), Value::Object(conditions(row)?));
    let algorithm = text(row, "algorithm").and_then(Algorithm::by_name).unwrap_or_default();
    let in_force = match &limits {
        Some(limits) => limits.clone(),
        None => vec![classic_limit(row, algorithm)?.into()],
    };
    wire.insert("limits".to_owned(), Value::Array(in_force));
    let rule = rule_file::parse_rule(&Value::Object(wire).to_string()).map_err(|error| {
        // Its location is in generated text, and the name is given anyway.
        let named = format!("rule {:?}: ", text(row, "name").unwrap_or_default());
        error.reason.strip_prefix(&named).map_or(error.reason.clone(), str::to_owned)
    })?;
    if limits.is_some() {
        check_classic_columns(&rule, row)?;
    }
    Ok(rule)
}

/// The conditions of a row, the plan among them.
fn conditions(row: &Value) -> Result<Map<String, Value>, String> {
    let mut conditions = match text(row, "conditions").map(serde_json::from_str) {
        None => Map::new(),
        Some(Ok(Value::Object(conditions))) => conditions,
        Some(_) => return Err("conditions is not a JSON object such as {\"method\": \"GET\"}".to_owned()),
    };
    if let Some(plan) = text(row, "plan") {
        let earlier = conditions.insert("plan".to_owned(), plan.into());
        if earlier.is_some() {
            return Err("its plan is in conditions too: it belongs into only one of them".to_owned());
        }
    }
    Ok(conditions)
}

/// A program that changes the classic columns of a rule with a limits column intends
/// a change, which must not be ignored.
fn check_classic_columns(rule: &Rule, row: &Value) -> Result<(), String> {
    let Some(first) = rule.quotas.first() else { return Ok(()) };
    let (rate, burst) = classic_columns::rate_and_burst(first);
    let said = row.get("rate_per_second").and_then(Value::as_f64);
    let said_burst = row.get("burst_capacity").and_then(Value::as_u64);
    let differs = said.is_some_and(|said| !classic_columns::is_same_rate(rate, said))
        || burst.is_some_and(|burst| said_burst.is_some_and(|said| said != burst));
    if differs {
        return Err(format!(
            "rate_per_second and burst_capacity say something else than its limits, which begin with {first}: \
             change limits, or set limits to NULL"
        ));
    }
    Ok(())
}
