//! The three kinds of things that a rulebook keeps, and their rows.

mod ban;
mod overriding;
mod rule;

pub(super) use self::overriding::override_key;

use serde_json::Value;

use super::book::{Fault, Stored};
use super::database::{Column, Kind};
use super::store::Pages;

/// What every kind can do, so that reading, editing and importing are written once.
pub(super) trait Item: Clone + PartialEq + Send + Sync + 'static {
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

    /// The entries of its kind.
    fn entries(pages: &mut Pages) -> &mut Vec<Entry<Self>>;

    /// Whether both say the same, as far as a row can tell.
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// What it is called, for people.
    fn what(&self) -> String;

    /// What a row says, beginning with its key and with what it is called.
    fn read(row: &Value) -> Read<Self>;
}

/// What a row says, if anything.
pub(super) struct Read<T> {
    pub(super) key: String,
    pub(super) what: String,
    pub(super) item: Result<T, String>,
}

/// A row and what it says, if anything.
#[derive(Debug, Clone)]
pub(super) struct Entry<T> {
    pub(super) id: i64,
    pub(super) version: u64,
    pub(super) created_unix_ms: i64,
    pub(super) updated_unix_ms: i64,
    pub(super) key: String,
    pub(super) what: String,
    pub(super) item: Result<T, String>,
}

/// The columns that every table has.
const COMMON: [Column; 3] = [("version", Kind::Int), ("created_at", Kind::Time), ("updated_at", Kind::Time)];

/// All columns of a table, its key first.
pub(super) fn columns<T: Item>() -> Vec<Column> {
    [(T::ID, Kind::Int)].into_iter().chain(T::COLUMNS.iter().copied()).chain(COMMON).collect()
}

impl<T: Item> Entry<T> {
    /// Reads a row as [`columns`] lists it.
    pub(super) fn read(text: &str) -> Self {
        let row: Value = serde_json::from_str(text).unwrap_or_default();
        let whole = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
        let Read { key, what, item } = T::read(&row);
        Self {
            id: whole(T::ID),
            version: whole("version").max(0).unsigned_abs(),
            created_unix_ms: whole("created_at"),
            updated_unix_ms: whole("updated_at"),
            key,
            what,
            item,
        }
    }

    /// An item that has no row yet.
    pub(super) fn new(item: T) -> Self {
        let (key, what) = (item.key(), item.what());
        Self { id: 0, version: 0, created_unix_ms: 0, updated_unix_ms: 0, key, what, item: Ok(item) }
    }

    /// As others see it.
    pub(super) fn into_stored(self) -> Result<Stored<T>, Fault> {
        let Self { id, version, created_unix_ms, updated_unix_ms, what, item, .. } = self;
        match item {
            Ok(item) => Ok(Stored { id, version, created_unix_ms, updated_unix_ms, item }),
            Err(reason) => Err(Fault { what, version, reason }),
        }
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

/// Text that a database can keep: PostgreSQL has no way to write NUL.
fn kept<'a>(what: &str, text: &'a str) -> Result<&'a str, String> {
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
