//! Rows of `rate_limit_rule`.
//!
//! A rule with one limit that fits the classic columns is stored only in them, so
//! that programs that know only those can change it. Any other rule has its limits in
//! a column of their own, and the classic columns have the equivalent of the first.
//!
//! A field of `RuleSpec` without a column of its name is stored in `options`, so that a
//! new field needs no migration.

use checkdam::{Algorithm, Definitions, Mode, Quota, QuotaSpec, Rule, RuleSpec};
use serde_json::{Map, Value, json};

use super::{ParsedRow, Row, RowItem, build, fields, read_limits, rename, spec_json, take_flag, text, without_common};
use crate::rulebook::database::{Column, Kind};
use crate::rulebook::row_cache::{RowCache, Rows};
use crate::rulebook::snapshot::check_duplicate;

/// The period of a rate that is no whole number a second is at most a year.
const SECONDS_MAX: f64 = 31_536_000.0;
/// The tolerated error of a rate written as a fraction: a float loses more when it is
/// converted to text and back.
const LOSS_MAX: f64 = 1e-12;
/// The largest whole number that a float holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
const SECOND_US: u64 = 1_000_000;

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
        ("options", Kind::Json),
    ];

    const KIND: &'static str = "rule";

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
        let algorithm = self.algorithm;
        let (rate, burst) = self.quotas.first().map(rate_and_burst).unzip();
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
        let (columns, options): (Row, Row) =
            row.into_iter().partition(|(name, _)| Self::COLUMNS.iter().any(|(column, _)| column == name));
        row = columns;
        row.insert(
            "options".to_owned(),
            Some(options).filter(|it| !it.is_empty()).map(|it| json!(it).to_string()).into(),
        );
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
            check_duplicate(new, rules.filter(|rule| !names.contains(&rule.name.as_str())))?;
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

    fn spec(&self) -> Value {
        spec_json(&RuleSpec::from(self))
    }

    fn rule_name(&self) -> Option<String> {
        Some(self.name.clone())
    }

    fn subject_text(&self) -> Option<String> {
        None
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

/// The limit that the classic columns say.
fn classic_limit(row: &Row, algorithm: Algorithm) -> Result<String, String> {
    let Some(rate) = row.get("rate_per_second").and_then(Value::as_f64) else {
        return Err("it has neither limits nor a number in rate_per_second".to_owned());
    };
    let burst = row.get("burst_capacity").filter(|burst| !burst.is_null());
    let burst =
        burst.map(|burst| burst.as_i64().ok_or_else(|| format!("burst_capacity is {burst}: use a whole number")));
    Ok(quota_of(rate, burst.transpose()?, algorithm.is_bucket())?.to_string())
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
    read_options(&mut row)?;
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

/// Adds the fields that have no column of their own.
fn read_options(row: &mut Row) -> Result<(), String> {
    let options = match row.remove("options").as_ref().and_then(Value::as_str).map(serde_json::from_str) {
        None => return Ok(()),
        Some(Ok(Value::Object(options))) => options,
        Some(_) => return Err("options is not a JSON object".to_owned()),
    };
    if let Some(name) = options.keys().find(|name| row.contains_key(*name)) {
        return Err(format!("options has {name:?}, which has a column of its own: set that instead"));
    }
    row.extend(options);
    Ok(())
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

/// A program that changes the classic columns of a rule that has limits beside them
/// means to change the rule, and must not be ignored.
fn check_classic_columns(rule: &Rule, [said, said_burst]: &[Value; 2]) -> Result<(), String> {
    let Some(first) = rule.quotas.first() else { return Ok(()) };
    let (rate, burst) = rate_and_burst(first);
    let (said, said_burst) = (said.as_f64(), said_burst.as_u64());
    let differs = said.is_some_and(|said| !is_same_rate(rate, said))
        || burst.is_some_and(|burst| said_burst.is_some_and(|said| said != burst));
    if differs {
        return Err(format!(
            "rate_per_second and burst_capacity say something else than its limits, which begin with {first}: \
             change limits, or set limits to NULL"
        ));
    }
    Ok(())
}

/// A quota's rate per second, and what can pass at once if it is a bucket.
fn rate_and_burst(quota: &Quota) -> (f64, Option<u64>) {
    let spec = quota.spec();
    let rate = spec.amount as f64 * SECOND_US as f64 / spec.period_us as f64;
    (rate, quota.algorithm().is_bucket().then(|| quota.limit()))
}

/// The limit in the classic columns: an amount in the fewest whole seconds, as 0.5 is
/// 1 in 2 seconds.
fn quota_of(rate: f64, burst: Option<i64>, has_burst: bool) -> Result<QuotaSpec, String> {
    if !rate.is_finite() || rate <= 0.0 {
        return Err(format!("rate_per_second is {rate}: it must be more than 0"));
    }
    let Some((amount, seconds)) = fraction(rate) else {
        return Err(format!("rate_per_second is {rate}: use limits for so odd a rate, such as [\"1/d\"]"));
    };
    let burst = match burst {
        Some(burst) if burst < 1 => return Err(format!("burst_capacity is {burst}: it must be at least 1")),
        Some(burst) => Some(burst.unsigned_abs()),
        // Omitted, it is the amount of one second, as everywhere.
        None if seconds == 1 => None,
        None => Some(rate.ceil() as u64),
    };
    Ok(QuotaSpec { burst: burst.filter(|_| has_burst), ..QuotaSpec::new(amount, seconds * SECOND_US) })
}

/// Whether two rates are equal, within the error of conversion.
fn is_same_rate(one: f64, other: f64) -> bool {
    (one - other).abs() <= one.abs() * 1e-9
}

/// The simplest fraction that is the rate, by its continued fraction.
fn fraction(rate: f64) -> Option<(u64, u64)> {
    let (mut above_before, mut below_before) = (1.0, 0.0);
    let (mut above, mut below) = (rate.floor(), 1.0);
    let mut rest = rate;
    while (above / below - rate).abs() > rate * LOSS_MAX {
        rest = 1.0 / (rest - rest.floor());
        let whole = rest.floor();
        (above, above_before) = (whole * above + above_before, above);
        (below, below_before) = (whole * below + below_before, below);
        if !rest.is_finite() || below > SECONDS_MAX || above > WHOLE_MAX {
            return None;
        }
    }
    (1.0..=WHOLE_MAX).contains(&above).then_some((above as u64, below as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_the_simplest_limits() {
        let table = [
            (10.0, Some(50), "10/s burst 50"),
            (10.0, None, "10/s"),
            (0.5, Some(5), "1/2s burst 5"),
            (0.5, None, "1/2s burst 1"),
            (2.5, None, "5/2s burst 3"),
            (1.0 / 60.0, Some(1), "1/m burst 1"),
            // As a float reads that was written with fifteen digits.
            (0.0166666666666667, Some(1), "1/m burst 1"),
            (5_000.0 / 3_600.0, Some(5_000), "25/18s burst 5000"),
            (0.1, Some(1), "1/10s burst 1"),
            (1.0 / 31_536_000.0, Some(1), "1/y burst 1"),
            (10_000_000.0, Some(10_000_000), "10000000/s burst 10000000"),
        ];
        for (rate, burst, expected) in table {
            assert_eq!(quota_of(rate, burst, true).unwrap().to_string(), expected, "{rate}");
        }
        assert_eq!(quota_of(10.0, Some(50), false).unwrap().to_string(), "10/s");
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12, 1e300] {
            assert!(quota_of(rate, None, true).is_err(), "{rate}");
        }
        for burst in [0, -1] {
            assert!(quota_of(1.0, Some(burst), true).is_err(), "{burst}");
        }
    }
}
