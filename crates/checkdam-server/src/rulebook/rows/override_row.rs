//! Rows of `rate_limit_override`.

use checkdam::{Allowance, Definitions, Override, QuotaSpec};
use serde_json::{Value, json};

use super::{ParsedRow, RowItem, flag, limits, text, without_nul};
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

    fn key(&self) -> String {
        override_key(&self.rule, self.subject.text())
    }

    fn row(&self) -> Result<Value, String> {
        let (limits, scale) = match &self.allowance {
            Allowance::Limits(specs) => {
                let texts: Vec<String> = specs.iter().map(ToString::to_string).collect();
                (Some(json!(texts).to_string()), None)
            }
            Allowance::Scale(scale) => (None, Some(scale.to_string())),
            Allowance::Unlimited => (None, None),
        };
        Ok(json!({
            "rule_name": without_nul("rule's name", &self.rule)?,
            "subject": without_nul("subject", self.subject.text())?,
            "limits": limits,
            "scale": scale,
            "is_unlimited": self.allowance == Allowance::Unlimited,
            "description": without_nul("description", &self.description)?,
        }))
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

    fn description(&self) -> String {
        format!("override of {:?} for rule {:?}", self.subject.text(), self.rule)
    }

    fn read(row: &Value) -> ParsedRow<Self> {
        let (rule, subject) = (text(row, "rule_name").unwrap_or_default(), text(row, "subject").unwrap_or_default());
        let item = allowance(row).map(|allowance| {
            let description = text(row, "description").unwrap_or_default().to_owned();
            Self { description, ..Self::new(rule, subject, allowance) }
        });
        ParsedRow { key: override_key(rule, subject), what: format!("override of {subject:?} for rule {rule:?}"), item }
    }
}

/// A rule's name is printable, so that no two pairs make the same key.
pub(in crate::rulebook) fn override_key(rule: &str, subject: &str) -> String {
    format!("{rule}\n{subject}")
}

fn allowance(row: &Value) -> Result<Allowance, String> {
    let unlimited = flag(row, "is_unlimited").unwrap_or_default().then_some(Allowance::Unlimited);
    let scale = match text(row, "scale") {
        // PostgreSQL keeps the zeros of 10.00, which mean nothing.
        Some(text) if text.contains('.') => Some(text.trim_end_matches('0').trim_end_matches('.')),
        other => other,
    };
    let scale = scale.map(|text| text.parse().map(Allowance::Scale).map_err(|error| format!("{error}"))).transpose()?;
    let limits = limits(row)?.map(|limits| specs(&limits).map(Allowance::Limits)).transpose()?;
    let mut given = [limits, scale, unlimited].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err("it says nothing: give it limits, a scale, or is_unlimited".to_owned()),
        _ => Err("it says two things: give it limits, a scale, or is_unlimited, and only one of them".to_owned()),
    }
}

fn specs(limits: &[Value]) -> Result<Vec<QuotaSpec>, String> {
    let spec = |limit: &Value| match limit.as_str() {
        Some(text) => text.parse::<QuotaSpec>().map_err(|error| error.to_string()),
        None => Err(format!("the limit {limit} is not text such as \"10/s burst 50\"")),
    };
    limits.iter().map(spec).collect()
}
