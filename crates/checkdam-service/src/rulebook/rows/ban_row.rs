//! Rows of `rate_limit_ban`.

use checkdam::time::rfc3339;
use checkdam::{Ban, BanSpec, Definitions};
use serde_json::Value;

use super::{ParsedRow, Row, RowItem, build, fields, spec_json, text, without_common};
use crate::rulebook::database::{Column, Kind};
use crate::rulebook::row_cache::{RowCache, Rows};

impl RowItem for Ban {
    const TABLE: &'static str = "rate_limit_ban";
    const ID: &'static str = "ban_id";
    const COLUMNS: &'static [Column] = &[("subject", Kind::Text), ("until", Kind::Time), ("reason", Kind::Text)];

    const KIND: &'static str = "ban";

    fn key(&self) -> String {
        self.subject()
    }

    fn row(&self) -> Result<Row, String> {
        let mut row = fields(&BanSpec::from(self))?;
        row.entry("reason").or_insert("".into());
        let until_ms = self.until_unix_s.map(|until| until.saturating_mul(1_000).min(i64::MAX.unsigned_abs()));
        row.insert("until".to_owned(), until_ms.into());
        Ok(row)
    }

    fn rows(snapshot: &RowCache) -> &Rows<Self> {
        &snapshot.bans
    }

    fn rows_mut(snapshot: &mut RowCache) -> &mut Rows<Self> {
        &mut snapshot.bans
    }

    /// A ban can only be wrong by itself.
    fn affected_definitions(_: &RowCache, _: Option<&Self>, new: Option<&Self>) -> Result<Definitions, String> {
        Ok(Definitions { bans: new.cloned().into_iter().collect(), ..Definitions::default() })
    }

    fn spec(&self) -> Value {
        spec_json(&BanSpec::from(self))
    }

    fn rule_name(&self) -> Option<String> {
        None
    }

    fn subject_text(&self) -> Option<String> {
        Some(self.subject())
    }

    fn description(&self) -> String {
        format!("ban {:?}", self.subject())
    }

    fn read(row: Row) -> ParsedRow<Self> {
        let subject = text(&row, "subject").unwrap_or_default().to_owned();
        let item = ban(without_common::<Self>(row));
        // Other programs may write a network in many ways.
        let key = item.as_ref().map_or_else(|_| subject.clone(), Self::subject);
        ParsedRow { key, what: format!("ban {subject:?}"), item }
    }
}

fn ban(mut row: Row) -> Result<Ban, String> {
    if let Some(until) = row.get_mut("until").filter(|until| !until.is_null()) {
        *until = rfc3339(seconds(until).ok_or("until is not a time after 1970")?).into();
    }
    build::<BanSpec, _>(row)
}

/// Whole seconds, rounded up: a ban never ends early.
fn seconds(until_ms: &Value) -> Option<u64> {
    let until_ms = u64::try_from(until_ms.as_i64()?).ok()?;
    Some(until_ms.div_ceil(1_000))
}
