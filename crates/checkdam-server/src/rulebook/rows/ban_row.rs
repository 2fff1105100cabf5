//! Rows of `rate_limit_ban`.

use checkdam::{Ban, Definitions};
use serde_json::{Value, json};

use super::{ParsedRow, RowItem, text, without_nul};
use crate::rulebook::database::{Column, Kind};
use crate::rulebook::row_cache::{RowCache, Rows};

impl RowItem for Ban {
    const TABLE: &'static str = "rate_limit_ban";
    const ID: &'static str = "ban_id";
    const COLUMNS: &'static [Column] = &[("subject", Kind::Text), ("until", Kind::Time), ("reason", Kind::Text)];

    fn key(&self) -> String {
        self.subject()
    }

    fn row(&self) -> Result<Value, String> {
        let subject = self.subject();
        let until_ms = self.until_unix_s.map(|until| until.saturating_mul(1_000).min(i64::MAX.unsigned_abs()));
        Ok(json!({
            "subject": without_nul("subject", &subject)?,
            "until": until_ms,
            "reason": without_nul("reason", &self.reason)?,
        }))
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

    fn description(&self) -> String {
        format!("ban {:?}", self.subject())
    }

    fn read(row: &Value) -> ParsedRow<Self> {
        let subject = text(row, "subject").unwrap_or_default();
        let item = Self::new(subject).map_err(|error| error.to_string()).and_then(|mut ban| {
            ban.until_unix_s = match row.get("until") {
                None | Some(Value::Null) => None,
                Some(until) => Some(seconds(until).ok_or("until is not a time after 1970")?),
            };
            text(row, "reason").unwrap_or_default().clone_into(&mut ban.reason);
            Ok(ban)
        });
        // Other programs may spell a network in many ways.
        let key = item.as_ref().map_or_else(|_| subject.to_owned(), Self::subject);
        ParsedRow { key, what: format!("ban {subject:?}"), item }
    }
}

/// Whole seconds, rounded up: a ban never ends early.
fn seconds(until_ms: &Value) -> Option<u64> {
    let until_ms = u64::try_from(until_ms.as_i64()?).ok()?;
    Some(until_ms.div_ceil(1_000))
}
