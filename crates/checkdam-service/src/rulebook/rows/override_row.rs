//! Rows of `rate_limit_override`.

use checkdam::{Definitions, Override, OverrideSpec};
use serde_json::Value;

use super::{ParsedRow, Row, RowItem, build, fields, read_limits, rename, spec_json, take_flag, text, without_common};
use crate::rulebook::database::{Column, Kind};
use crate::rulebook::row_cache::{RowCache, Rows};

impl RowItem for Override {
    const TABLE: &'static str = "rate_limit_override";
    const ID: &'static str = "override_id";
    const COLUMNS: &'static [Column] = &[
        ("rule_name", Kind::Text),
        ("subject", Kind::Text),
        ("limits", Kind::Json),
        ("scale", Kind::Decimal),
        ("is_unlimited", Kind::Flag),
        ("description", Kind::Text),
    ];

    const KIND: &'static str = "override";

    fn key(&self) -> String {
        override_key(&self.rule, self.subject.text())
    }

    fn row(&self) -> Result<Row, String> {
        let spec = OverrideSpec::from(self);
        let mut row = fields(&spec)?;
        rename(&mut row, "rule", "rule_name");
        if let Some(limits) = row.get_mut("limits") {
            *limits = limits.to_string().into();
        }
        row.insert("scale".to_owned(), spec.scale.map(|scale| scale.to_string()).into());
        let is_unlimited = row.remove("unlimited").is_some();
        row.insert("is_unlimited".to_owned(), is_unlimited.into());
        row.entry("description").or_insert("".into());
        Ok(row)
    }

    fn rows(snapshot: &RowCache) -> &Rows<Self> {
        &snapshot.overrides
    }

    fn rows_mut(snapshot: &mut RowCache) -> &mut Rows<Self> {
        &mut snapshot.overrides
    }

    /// An override needs its rule.
    fn affected_definitions(snapshot: &RowCache, _: Option<&Self>, new: Option<&Self>) -> Result<Definitions, String> {
        let Some(new) = new else { return Ok(Definitions::default()) };
        let rule = snapshot.rules.iter().filter_map(|entry| entry.item()).find(|rule| rule.name == new.rule);
        let (rules, overrides) = (rule.cloned().into_iter().collect(), vec![new.clone()]);
        Ok(Definitions { rules, overrides, ..Definitions::default() })
    }

    fn spec(&self) -> Value {
        spec_json(&OverrideSpec::from(self))
    }

    fn rule_name(&self) -> Option<String> {
        Some(self.rule.clone())
    }

    fn subject_text(&self) -> Option<String> {
        Some(self.subject.text().to_owned())
    }

    fn description(&self) -> String {
        format!("override of {:?} for rule {:?}", self.subject.text(), self.rule)
    }

    fn read(row: Row) -> ParsedRow<Self> {
        let (rule, subject) = (text(&row, "rule_name").unwrap_or_default(), text(&row, "subject").unwrap_or_default());
        let (key, what) = (override_key(rule, subject), format!("override of {subject:?} for rule {rule:?}"));
        ParsedRow { key, what, item: one_override(without_common::<Self>(row)) }
    }
}

/// A rule's name is printable, so that no two pairs make the same key.
pub(in crate::rulebook) fn override_key(rule: &str, subject: &str) -> String {
    format!("{rule}\n{subject}")
}

fn one_override(mut row: Row) -> Result<Override, String> {
    if take_flag(&mut row, "is_unlimited") {
        row.insert("unlimited".to_owned(), true.into());
    }
    // PostgreSQL keeps the zeros of 10.00, which mean nothing.
    if let Some(scale) = text(&row, "scale").filter(|scale| scale.contains('.')) {
        let scale = scale.trim_end_matches('0').trim_end_matches('.').to_owned();
        row.insert("scale".to_owned(), scale.into());
    }
    read_limits(&mut row)?;
    rename(&mut row, "rule_name", "rule");
    match ["limits", "scale", "unlimited"]
        .iter()
        .filter(|name| row.get(**name).is_some_and(|one| *one != Value::Null))
        .count()
    {
        0 => Err("it says nothing: give it limits, a scale, or is_unlimited".to_owned()),
        1 => build::<OverrideSpec, _>(row),
        _ => Err("it says two things: give it limits, a scale, or is_unlimited, and only one of them".to_owned()),
    }
}
