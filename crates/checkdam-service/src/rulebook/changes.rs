//! The change log: who edited what, and when. A change is written in the transaction of
//! its edit: both are committed, or neither.
//!
//! It is bounded: the oldest changes are removed. Edits that other programs make in SQL
//! are not in it.

use checkdam::time::rfc3339;
use serde_json::{Value as Json, json};

use super::database::{Column, Conditions, Dialect, Kind, Session, Value};
use super::database_rulebook::{LOAD_LIMIT, Rulebook, within};
use super::rows::RowItem;
use super::snapshot::{ImportCounts, RulebookError};

const TABLE: &str = "rate_limit_change";
const COLUMNS: [Column; 8] = [
    ("actor", Kind::Text),
    ("action", Kind::Text),
    ("kind", Kind::Text),
    ("name", Kind::Text),
    ("subject", Kind::Text),
    ("rulebook_version", Kind::Int),
    ("item_before", Kind::Json),
    ("item_after", Kind::Json),
];
/// How many changes are kept by default.
pub const CHANGES_MAX: u32 = 10_000;
/// The longest item that is kept, as JSON in bytes: the log stays below 200 MB.
const ITEM_MAX: usize = 8 << 10;
/// How many bytes are kept of a text in a longer item.
const FIELD_KEPT: usize = 256;
/// How many items of an import are named.
const NAMED_MAX: usize = 100;
/// The most changes of a page.
const PAGE_MAX: u32 = 1_000;

/// One edit.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = ChangeAnswer, description = "One edit.")]
pub struct Change {
    /// Its number.
    #[serde(alias = "change_id")]
    pub id: i64,
    /// When.
    pub changed_at: String,
    /// The name of an admin token, `certificate` for operator certificates, `anonymous` without either, `cli:USER` for
    /// the command line, or `checkdam`.
    pub actor: String,
    /// `add`, `change`, `remove`, `import`, or `seed` for the rules of a first start.
    pub action: String,
    /// `rule`, `override`, `ban`, or `rulebook` for an import.
    pub kind: String,
    /// The rule's name; of a renamed rule the old one.
    pub name: Option<String>,
    /// Whose override or ban it is.
    pub subject: Option<String>,
    /// The rulebook's version after the edit.
    #[serde(alias = "rulebook_version")]
    pub version: i64,
    /// The item before the edit.
    #[serde(alias = "item_before")]
    pub before: Option<Json>,
    /// The item after the edit; of an import how many items it added, changed and removed, and the first 100 of them.
    #[serde(alias = "item_after")]
    pub after: Option<Json>,
}

/// Which changes are asked for; all that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub subject: Option<String>,
    /// At or after.
    pub since_unix_ms: Option<i64>,
    /// Before.
    pub until_unix_ms: Option<i64>,
    /// Earlier than this change.
    pub before_id: Option<i64>,
    /// At most so many, and at most 1,000.
    pub limit: u32,
}

/// What an edit is about to change.
#[derive(Debug)]
pub(super) struct PlannedChange {
    action: &'static str,
    kind: &'static str,
    name: Option<String>,
    subject: Option<String>,
    before: Option<Json>,
    after: Option<Json>,
}

impl PlannedChange {
    /// The change of one item: added without `old`, removed without `new`.
    pub(super) fn of_item<T: RowItem>(is_new: bool, old: Option<&T>, new: Option<&T>) -> Option<Self> {
        let item = old.or(new);
        Some(Self {
            action: match new {
                Some(_) if is_new => "add",
                Some(_) => "change",
                None => "remove",
            },
            kind: T::KIND,
            name: item.and_then(RowItem::rule_name),
            subject: item.and_then(RowItem::subject_text),
            before: old.map(RowItem::spec),
            after: new.map(RowItem::spec),
        })
    }

    /// An import; none if it changes nothing.
    pub(super) fn of_import(action: &'static str, counts: &ImportCounts, items: ImportedItems) -> Option<Self> {
        let ImportCounts { added, changed, removed, unchanged, .. } = *counts;
        if added + changed + removed == 0 {
            return None;
        }
        let ImportedItems(items) = items;
        let after = json!({
            "added": added, "changed": changed, "removed": removed, "unchanged": unchanged, "items": items,
        });
        Some(Self { action, kind: "rulebook", name: None, subject: None, before: None, after: Some(after) })
    }

    fn row(&self, actor: &str, version: u64) -> Json {
        let text = |item: &Option<Json>| item.as_ref().map(item_text);
        json!({
            "actor": actor,
            "action": self.action,
            "kind": self.kind,
            "name": self.name,
            "subject": self.subject,
            "rulebook_version": version,
            "item_before": text(&self.before),
            "item_after": text(&self.after),
        })
    }
}

/// The first items that an import changed.
#[derive(Debug, Default)]
pub(super) struct ImportedItems(Vec<Json>);

impl ImportedItems {
    pub(super) fn push<T: RowItem>(&mut self, action: &str, item: Option<&T>) {
        if self.0.len() < NAMED_MAX {
            let (name, subject) = (item.and_then(RowItem::rule_name), item.and_then(RowItem::subject_text));
            self.0.push(json!({"action": action, "kind": T::KIND, "name": name, "subject": subject}));
        }
    }
}

/// An item as it is kept. Of one that is too long the longest fields are shortened, so that
/// a long description hides no limit.
fn item_text(item: &Json) -> String {
    let mut text = item.to_string();
    let mut shortened = item.clone();
    let fields = shortened.as_object().map_or(0, serde_json::Map::len);
    for _ in 0..fields {
        if text.len() <= ITEM_MAX {
            return text;
        }
        let fields = shortened.as_object_mut().into_iter().flat_map(|fields| fields.values_mut());
        if let Some(longest) = fields.max_by_key(|field| field.to_string().len()) {
            *longest = shortened_field(longest);
        }
        text = shortened.to_string();
    }
    if text.len() <= ITEM_MAX { text } else { json!({"left_out_bytes": item.to_string().len()}).to_string() }
}

/// The beginning of a text, and how long it was; of anything else only that.
fn shortened_field(field: &Json) -> Json {
    match field {
        Json::String(text) => {
            let end = text.floor_char_boundary(FIELD_KEPT);
            format!("{}… ({} bytes)", &text[..end], text.len()).into()
        }
        other => json!({"left_out_bytes": other.to_string().len()}),
    }
}

/// Milliseconds since 1970 as people and programs read them.
pub(super) fn rfc3339_ms(unix_ms: i64) -> String {
    let seconds = rfc3339(u64::try_from(unix_ms / 1_000).unwrap_or_default());
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), unix_ms.rem_euclid(1_000))
}

impl Change {
    fn read(row: &str) -> serde_json::Result<Self> {
        let mut row: Json = serde_json::from_str(row)?;
        row["changed_at"] = rfc3339_ms(row["changed_at"].as_i64().unwrap_or_default()).into();
        for column in ["item_before", "item_after"] {
            if let Some(text) = row[column].as_str() {
                row[column] = serde_json::from_str(text)?;
            }
        }
        serde_json::from_value(row)
    }
}

impl Rulebook {
    /// Writes a change in the transaction of its edit, and removes the oldest beyond the
    /// maximum.
    pub(super) async fn record_change(
        &self,
        session: &mut Session,
        change: &PlannedChange,
        version: u64,
    ) -> Result<(), sqlx::Error> {
        if self.change_rows_max == 0 {
            return Ok(());
        }
        let insert = format!("{} RETURNING change_id", session.dialect().insert(TABLE, &COLUMNS));
        let row = Json::from(vec![change.row(&self.actor, version)]).to_string();
        let id = session.number(&insert, &[Value::Text(row)]).await?.unwrap_or_default();
        let oldest = id - i64::from(self.change_rows_max);
        session.run(&format!("DELETE FROM {TABLE} WHERE change_id <= $1"), &[Value::Int(oldest)]).await.map(drop)
    }

    /// Changes, newest first.
    pub async fn changes(&self, filter: &ChangeFilter) -> Result<Vec<Change>, RulebookError> {
        let rows = within(LOAD_LIMIT, async {
            let mut session = self.engine.read().await?;
            let dialect = session.dialect();
            let (conditions, values) = filter.sql(dialect);
            let rest = format!("{conditions} ORDER BY change_id DESC LIMIT {}", filter.limit.min(PAGE_MAX));
            let columns: Vec<Column> =
                [("change_id", Kind::Int), ("changed_at", Kind::Time)].into_iter().chain(COLUMNS).collect();
            let rows = session.rows(&dialect.select(TABLE, &columns, &rest), &values).await?;
            session.commit().await?;
            Ok(rows)
        });
        let read = |row: &String| {
            Change::read(row).map_err(|error| RulebookError::Invalid { reason: format!("{TABLE}: {error}") })
        };
        rows.await?.iter().map(read).collect()
    }
}

impl ChangeFilter {
    /// A WHERE clause and its values.
    fn sql(&self, dialect: Dialect) -> (String, Vec<Value>) {
        let mut conditions = Conditions::default();
        let texts = [
            ("actor", &self.actor),
            ("action", &self.action),
            ("kind", &self.kind),
            ("name", &self.name),
            ("subject", &self.subject),
        ];
        for (column, wanted) in texts {
            conditions.equal(column, wanted.as_deref());
        }
        conditions.within(dialect, "changed_at", self.since_unix_ms, self.until_unix_ms);
        if let Some(id) = self.before_id {
            let id = conditions.put(Value::Int(id));
            conditions.push(format!("change_id < {id}"));
        }
        conditions.into_sql()
    }
}
