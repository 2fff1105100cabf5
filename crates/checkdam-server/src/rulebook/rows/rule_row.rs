//! Rows of `rate_limit_rule`.
//!
//! A rule with one limit that fits the classic columns is stored only in them, so
//! that programs that know only those can change it. Any other rule has its limits in
//! a column of their own, and the classic columns have the equivalent of the first.

use checkdam::{Algorithm, Definitions, Mode, Quota, Rule, RuleSpec};
use serde_json::{Map, Value, json};

use super::{ParsedRow, Row, RowItem, build, fields, read_limits, rename, take_flag, text, without_common};
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

    fn row(&self) -> Result<Row, String> {
        let mut row = fields(&RuleSpec::from(self))?;
        rename(&mut row, "key", "key_pattern");
        rename(&mut row, "when", "conditions");
        if let Some(Value::Object(conditions)) = row.get_mut("conditions") {
            let plan =
                if conditions.get("plan").is_some_and(Value::is_string) { conditions.remove("plan") } else { None };
            let conditions = if conditions.is_empty() { Value::Null } else { json!(conditions).to_string().into() };
            row.extend([("plan".to_owned(), plan.into()), ("conditions".to_owned(), conditions)]);
        }
        // Going off and coming back are one column in the classic table; what it does when it is on is another.
        if self.mode == Mode::Off {
            row.remove("mode");
        }
        let algorithm = algorithm(self);
        let (rate, burst) = self.quotas.first().map(classic_columns::rate_and_burst).unzip();
        row.extend([
            ("scope".to_owned(), json!(self.scope)),
            ("rate_per_second".to_owned(), json!(rate)),
            ("burst_capacity".to_owned(), json!(burst.flatten())),
            ("is_active".to_owned(), json!(self.mode != Mode::Off)),
        ]);
        for (column, usual) in [
            ("domain", json!("")),
            ("description", json!("")),
            ("algorithm", json!(algorithm.name())),
            ("strict", json!(false)),
            ("mode", json!("enforce")),
            ("priority", json!(0)),
        ] {
            row.entry(column).or_insert(usual);
        }
        let is_classic = self.quotas.len() == 1
            && classic_limit(&row, algorithm).is_ok_and(|said| self.quotas[0].spec().to_string() == said);
        let limits = row.get("limits").filter(|_| !is_classic).map(Value::to_string);
        row.insert("limits".to_owned(), limits.into());
        Ok(row)
    }

    fn rows(snapshot: &RowCache) -> &Rows<Self> {
        &snapshot.rules
    }

    fn rows_mut(snapshot: &mut RowCache) -> &mut Rows<Self> {
        &mut snapshot.rules
    }

    /// A rule's overrides must fit it, and no other rule may concern the same requests.
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

    fn read(row: Row) -> ParsedRow<Self> {
        let name = text(&row, "name").unwrap_or_default();
        let (key, what) = (name.to_owned(), format!("rule {name:?}"));
        ParsedRow { key, what, item: rule(without_common::<Self>(row)) }
    }
}

fn algorithm(rule: &Rule) -> Algorithm {
    rule.quotas.first().map(Quota::algorithm).unwrap_or_default()
}

/// The limit that the classic columns say.
fn classic_limit(row: &Row, algorithm: Algorithm) -> Result<String, String> {
    let Some(rate) = row.get("rate_per_second").and_then(Value::as_f64) else {
        return Err("it has neither limits nor a number in rate_per_second".to_owned());
    };
    let burst = row.get("burst_capacity").filter(|burst| !burst.is_null());
    let burst =
        burst.map(|burst| burst.as_i64().ok_or_else(|| format!("burst_capacity is {burst}: use a whole number")));
    let has_burst = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    Ok(classic_columns::quota_of(rate, burst.transpose()?, has_burst)?.to_string())
}

fn rule(mut row: Row) -> Result<Rule, String> {
    rename(&mut row, "key_pattern", "key");
    if !take_flag(&mut row, "is_active") {
        row.insert("mode".to_owned(), "off".into());
    }
    if take_flag(&mut row, "strict") {
        row.insert("strict".to_owned(), true.into());
    }
    let when = conditions(&mut row)?;
    row.insert("when".to_owned(), when);
    read_limits(&mut row)?;
    let has_limits = row.get("limits").is_some_and(Value::is_array);
    if !has_limits {
        let algorithm = text(&row, "algorithm").and_then(Algorithm::by_name).unwrap_or_default();
        let limit = classic_limit(&row, algorithm)?;
        row.insert("limits".to_owned(), json!([limit]));
    }
    let classic = ["rate_per_second", "burst_capacity"].map(|name| row.remove(name).unwrap_or_default());
    let rule = build::<RuleSpec, _>(row)?;
    if has_limits {
        check_classic_columns(&rule, &classic)?;
    }
    Ok(rule)
}

/// The conditions of a row, the plan among them.
fn conditions(row: &mut Row) -> Result<Value, String> {
    let plan = row.remove("plan").filter(Value::is_string);
    let mut conditions = match row.remove("conditions").as_ref().and_then(Value::as_str).map(serde_json::from_str) {
        None => Map::new(),
        Some(Ok(Value::Object(conditions))) => conditions,
        Some(_) => return Err("conditions is not a JSON object such as {\"method\": \"GET\"}".to_owned()),
    };
    if let Some(plan) = plan
        && conditions.insert("plan".to_owned(), plan).is_some()
    {
        return Err("its plan is in conditions too: it belongs into only one of them".to_owned());
    }
    Ok(Value::Object(conditions))
}

/// Whoever changes the classic columns of a rule that has limits beside them
/// means to change something, and must not be ignored.
fn check_classic_columns(rule: &Rule, [said, said_burst]: &[Value; 2]) -> Result<(), String> {
    let Some(first) = rule.quotas.first() else { return Ok(()) };
    let (rate, burst) = classic_columns::rate_and_burst(first);
    let (said, said_burst) = (said.as_f64(), said_burst.as_u64());
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
