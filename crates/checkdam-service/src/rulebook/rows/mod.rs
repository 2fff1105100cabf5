//! The database rows of rules, overrides and bans.
//!
//! A row is its item's written form (`RuleSpec`, `OverrideSpec`, `BanSpec`) as JSON,
//! in which a few fields have other names or are spread over several columns. A
//! column that has the name of a field needs nothing but its entry in `COLUMNS`.

mod ban_row;
mod override_row;
mod rule_row;

pub(super) use self::override_row::override_key;

use std::sync::Arc;

use checkdam::{Definitions, SpecError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::database::{Column, Dialect, Kind};
use super::row_cache::{RowCache, Rows};
use super::snapshot::{InvalidRow, Stored};

/// What every kind can do, so that reading, editing and importing are written once.
pub(super) trait RowItem: Clone + PartialEq + Send + Sync + 'static {
    /// Its table, and the table's key.
    const TABLE: &'static str;
    const ID: &'static str;
    /// The columns that say what it is.
    const COLUMNS: &'static [Column];

    /// What the change log calls its kind.
    const KIND: &'static str;

    /// What no other of its kind shares.
    fn key(&self) -> String;

    /// Its row, without the columns that the database fills by itself.
    ///
    /// # Errors
    /// Says what cannot be kept.
    fn row(&self) -> Result<Row, String>;

    fn rows(snapshot: &RowCache) -> &Rows<Self>;

    /// The same, to be changed.
    fn rows_mut(snapshot: &mut RowCache) -> &mut Rows<Self>;

    /// All that decides whether a valid rulebook stays valid when the item `old`
    /// becomes `new`: a small set that must be valid by itself. What has the same
    /// [`key`](Self::key) was ruled out before.
    ///
    /// # Errors
    /// Says which other item it conflicts with.
    fn affected_definitions(snapshot: &RowCache, old: Option<&Self>, new: Option<&Self>)
    -> Result<Definitions, String>;

    /// Whether both say the same, as far as a row can tell.
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// What it is called, for people.
    fn description(&self) -> String;

    /// Its written form, for the change log.
    fn spec(&self) -> Value;

    /// The rule that it is, or is for.
    fn rule_name(&self) -> Option<String>;

    /// Whom it is for, if it is for one subject.
    fn subject_text(&self) -> Option<String>;

    /// What a row says, beginning with its key and with what it is called.
    fn read(row: Row) -> ParsedRow<Self>;
}

/// A row as JSON: its columns and their values.
pub(super) type Row = Map<String, Value>;

/// What a row says, if anything.
pub(super) struct ParsedRow<T> {
    pub(super) key: String,
    pub(super) what: String,
    pub(super) item: Result<T, String>,
}

/// A row and what it says, if anything.
#[derive(Debug)]
pub(super) struct RowEntry<T> {
    pub(super) id: i64,
    pub(super) version: u64,
    /// Changes whenever the row does, also when the database lost edits and the
    /// row counts through the same versions again.
    pub(super) stamp: String,
    pub(super) key: String,
    pub(super) what: String,
    pub(super) item: Result<Arc<Stored<T>>, String>,
}

/// The columns that every table has.
const COMMON: [Column; 3] = [("version", Kind::Int), ("created_at", Kind::Time), ("updated_at", Kind::Time)];

/// Selects rows of a table as [`RowEntry::read`] takes them; `rest` follows the table's name.
pub(super) fn select<T: RowItem>(dialect: Dialect, rest: &str) -> String {
    let columns: Vec<Column> =
        [(T::ID, Kind::Int)].into_iter().chain(T::COLUMNS.iter().copied()).chain(COMMON).collect();
    dialect.select_stamped(T::TABLE, &columns, rest)
}

impl<T: RowItem> RowEntry<T> {
    /// Reads a row as [`columns`] lists it.
    pub(super) fn read(text: &str) -> Self {
        let row: Row = serde_json::from_str(text).unwrap_or_default();
        let whole = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
        let (id, version) = (whole(T::ID), whole("version").max(0).unsigned_abs());
        let (created_unix_ms, updated_unix_ms) = (whole("created_at"), whole("updated_at"));
        let stored = |item| Arc::new(Stored { id, version, created_unix_ms, updated_unix_ms, item });
        let stamp = self::text(&row, "stamp").unwrap_or_default().to_owned();
        let ParsedRow { key, what, item } = T::read(row);
        Self { id, version, stamp, key, what, item: item.map(stored) }
    }

    /// An item that has no row yet.
    pub(super) fn without_row(item: T) -> Self {
        let (key, what) = (item.key(), item.description());
        Self { id: 0, version: 0, stamp: String::new(), key, what, item: Ok(Arc::new(Stored::without_row(item))) }
    }

    pub(super) fn item(&self) -> Option<&T> {
        self.item.as_ref().ok().map(|stored| &stored.item)
    }

    /// As others see it.
    pub(super) fn stored(&self) -> Result<Arc<Stored<T>>, InvalidRow> {
        let fault =
            |reason: &String| InvalidRow { what: self.what.clone(), version: self.version, reason: reason.clone() };
        self.item.as_ref().map(Arc::clone).map_err(fault)
    }
}

/// The written form of an item, to become its row.
///
/// # Errors
/// Says which field holds a NUL character, which PostgreSQL has no way to keep.
fn fields(spec: &impl Serialize) -> Result<Row, String> {
    fn has_nul(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains('\0'),
            Value::Array(list) => list.iter().any(has_nul),
            Value::Object(map) => map.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
            _ => false,
        }
    }
    let Ok(Value::Object(fields)) = serde_json::to_value(spec) else { return Ok(Row::new()) };
    match fields.iter().find(|(_, value)| has_nul(value)) {
        Some((name, _)) => Err(format!("the field {name:?} contains a NUL character: leave it out")),
        None => Ok(fields),
    }
}

/// The written form of an item as JSON.
fn spec_json(spec: &impl Serialize) -> Value {
    // Specs have nothing that JSON has not.
    serde_json::to_value(spec).unwrap_or_default()
}

/// The item that fields say, beside which only columns that are NULL may stand.
fn build<S: DeserializeOwned, T: TryFrom<S, Error = SpecError>>(mut fields: Row) -> Result<T, String> {
    fields.retain(|_, value| !value.is_null());
    let spec = S::deserialize(Value::Object(fields)).map_err(|error| error.to_string())?;
    T::try_from(spec).map_err(|error| error.reason)
}

/// Leaves out the columns that every table has.
fn without_common<T: RowItem>(mut row: Row) -> Row {
    for name in COMMON.map(|(name, _)| name).into_iter().chain([T::ID, "stamp"]) {
        row.remove(name);
    }
    row
}

/// Gives a column the name of its field, or a field that of its column.
fn rename(row: &mut Row, from: &str, to: &str) {
    if let Some(value) = row.remove(from) {
        row.insert(to.to_owned(), value);
    }
}

/// Text in a column; `None` where it is NULL.
fn text<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Value::as_str)
}

/// Takes a truth value out, which SQLite keeps as a number.
fn take_flag(row: &mut Row, name: &str) -> bool {
    match row.remove(name) {
        Some(Value::Bool(value)) => value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        _ => false,
    }
}

/// Reads the limits in their column: a list of texts.
fn read_limits(row: &mut Row) -> Result<(), String> {
    let Some(text) = text(row, "limits") else { return Ok(()) };
    match serde_json::from_str(text) {
        Ok(limits @ Value::Array(_)) => drop(row.insert("limits".to_owned(), limits)),
        _ => return Err("limits is not a JSON list such as [\"10/s burst 50\"]".to_owned()),
    }
    Ok(())
}
