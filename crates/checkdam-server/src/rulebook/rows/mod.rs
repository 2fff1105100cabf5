//! The database rows of rules, overrides and bans.

mod ban_row;
mod override_row;
mod rule_row;

pub(super) use self::override_row::override_key;

use std::sync::Arc;

use checkdam::Definitions;
use serde_json::Value;

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

    /// What no other of its kind shares.
    fn key(&self) -> String;

    /// Its row, without the columns that the database fills by itself.
    ///
    /// # Errors
    /// Says what cannot be kept.
    fn row(&self) -> Result<Value, String>;

    /// The rows of its kind.
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

    /// Whether both are equal, as far as a row can represent them.
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// What it is called, for people.
    fn description(&self) -> String;

    /// What a row says, beginning with its key and with what it is called.
    fn read(row: &Value) -> ParsedRow<Self>;
}

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
        let row: Value = serde_json::from_str(text).unwrap_or_default();
        let whole = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
        let ParsedRow { key, what, item } = T::read(&row);
        let (id, version) = (whole(T::ID), whole("version").max(0).unsigned_abs());
        let (created_unix_ms, updated_unix_ms) = (whole("created_at"), whole("updated_at"));
        let stored = |item| Arc::new(Stored { id, version, created_unix_ms, updated_unix_ms, item });
        let stamp = self::text(&row, "stamp").unwrap_or_default().to_owned();
        Self { id, version, stamp, key, what, item: item.map(stored) }
    }

    /// An item that has no row yet.
    pub(super) fn without_row(item: T) -> Self {
        let (key, what) = (item.key(), item.description());
        Self { id: 0, version: 0, stamp: String::new(), key, what, item: Ok(Arc::new(Stored::without_row(item))) }
    }

    /// What the row says.
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

/// Text in a column; `None` where it is NULL.
fn text<'a>(row: &'a Value, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Value::as_str)
}

/// A truth value, which SQLite keeps as a number.
fn flag(row: &Value, name: &str) -> Option<bool> {
    match row.get(name)? {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        _ => None,
    }
}

/// Text that a database can store: PostgreSQL has no NUL.
fn without_nul<'a>(what: &str, text: &'a str) -> Result<&'a str, String> {
    if text.contains('\0') { Err(format!("the {what} contains a NUL character: leave it out")) } else { Ok(text) }
}

/// The limits in a column: a list of texts.
fn limits(row: &Value) -> Result<Option<Vec<Value>>, String> {
    let Some(text) = text(row, "limits") else { return Ok(None) };
    match serde_json::from_str(text) {
        Ok(Value::Array(limits)) => Ok(Some(limits)),
        _ => Err("limits is not a JSON list such as [\"10/s burst 50\"]".to_owned()),
    }
}
