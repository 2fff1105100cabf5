//! Differences between the SQL dialects of SQLite and PostgreSQL.
//!
//! Rows are passed as JSON in both directions: one parameter carries any number of
//! rows in, and each row is returned as one object. Both engines support this, so
//! every statement is written once.

use super::transaction::Value;

/// An engine's SQL dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rulebook) enum Dialect {
    Sqlite,
    Postgres,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rulebook) enum Kind {
    Text,
    Int,
    Real,
    /// A decimal number, as text.
    Decimal,
    Flag,
    /// JSON, as text.
    Json,
    /// An instant, as milliseconds since 1970.
    Time,
}

/// A column's name and kind.
pub(in crate::rulebook) type Column = (&'static str, Kind);

impl Dialect {
    /// Selects rows of `table` as objects; `rest` follows the table's name.
    pub(in crate::rulebook) fn select(self, table: &str, columns: &[Column], rest: &str) -> String {
        self.selection(table, columns, None, rest)
    }

    /// The same with the row's [stamp](Self::stamp).
    pub(in crate::rulebook) fn select_stamped(self, table: &str, columns: &[Column], rest: &str) -> String {
        self.selection(table, columns, Some(format!("'stamp', {}", self.stamp())), rest)
    }

    fn selection(self, table: &str, columns: &[Column], more: Option<String>, rest: &str) -> String {
        let fields = columns.iter().map(|(name, kind)| format!("'{name}', {}", self.select_column(name, *kind)));
        let fields: Vec<String> = fields.chain(more).collect();
        let object = match self {
            Self::Sqlite => "json_object",
            Self::Postgres => "json_build_object",
        };
        let text = if self == Self::Postgres { "::TEXT" } else { "" };
        format!("SELECT {object}({}){text} FROM {table} {rest}", fields.join(", "))
    }

    /// Inserts the rows that `$1` lists.
    pub(in crate::rulebook) fn insert(self, table: &str, columns: &[Column]) -> String {
        self.insertion(table, columns, None)
    }

    /// Inserts the rows that `$1` lists, and one column more by an expression.
    pub(in crate::rulebook) fn insert_with(self, table: &str, columns: &[Column], more: (&str, &str)) -> String {
        self.insertion(table, columns, Some(more))
    }

    /// A text column of the rows that `$1` lists.
    pub(in crate::rulebook) fn given_text(self, name: &str) -> String {
        self.insert_column(name, Kind::Text)
    }

    fn insertion(self, table: &str, columns: &[Column], more: Option<(&str, &str)>) -> String {
        let (more_name, more_value) = more.unzip();
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).chain(more_name).collect();
        let values = columns.iter().map(|(name, kind)| self.insert_column(name, *kind));
        let values: Vec<String> = values.chain(more_value.map(str::to_owned)).collect();
        let (names, values, source) = (names.join(", "), values.join(", "), self.source(columns));
        format!("INSERT INTO {table} ({names}) SELECT {values} FROM {source}")
    }

    /// Updates the rows that `$1` lists, found by `key`, which is one of the columns.
    pub(in crate::rulebook) fn update(self, table: &str, key: &str, columns: &[Column]) -> String {
        let set: Vec<String> = columns
            .iter()
            .filter(|(name, _)| *name != key)
            .map(|(name, kind)| format!("{name} = {}", self.insert_column(name, *kind)))
            .collect();
        let (set, source, given) = (set.join(", "), self.source(columns), self.insert_column(key, Kind::Int));
        format!("UPDATE {table} SET {set} FROM {source} WHERE {table}.{key} = {given}")
    }

    /// Deletes the rows whose integer `key` is in the list `$1`.
    pub(in crate::rulebook) fn delete(self, table: &str, key: &str) -> String {
        format!("DELETE FROM {table} WHERE {}", self.is_listed(key))
    }

    /// A fingerprint of a row. Its version alone is not unique after the database
    /// lost edits.
    fn stamp(self) -> String {
        match self {
            Self::Sqlite => "version || ' ' || updated_at".to_owned(),
            Self::Postgres => "version || ' ' || date_part('epoch', updated_at)".to_owned(),
        }
    }

    /// Selects a line for each row of `table`, its integer `key` and its stamp, as one text.
    pub(in crate::rulebook) fn select_stamps(self, table: &str, key: &str) -> String {
        let (join, newline) = match self {
            Self::Sqlite => ("group_concat", "char(10)"),
            Self::Postgres => ("string_agg", "chr(10)"),
        };
        format!("SELECT COALESCE({join}({key} || ' ' || {}, {newline}), '') FROM {table}", self.stamp())
    }

    /// A condition: the integer `key` is in the list `$1`.
    pub(in crate::rulebook) fn is_listed(self, key: &str) -> String {
        let listed = match self {
            Self::Sqlite => "SELECT value FROM json_each($1)",
            Self::Postgres => "SELECT value::BIGINT FROM json_array_elements_text($1::JSON)",
        };
        format!("{key} IN ({listed})")
    }

    pub(in crate::rulebook) fn instant(self, milliseconds: &str) -> String {
        match self {
            Self::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', ({milliseconds}) / 1000.0, 'unixepoch')"),
            // A float would lose milliseconds after the year 2255; an interval is counted in whole microseconds.
            Self::Postgres => {
                format!("(TIMESTAMPTZ '1970-01-01 00:00Z' + ({milliseconds}) * INTERVAL '1 millisecond')")
            }
        }
    }

    pub(in crate::rulebook) fn milliseconds(self, instant: &str) -> String {
        match self {
            Self::Sqlite => format!("CAST(ROUND(unixepoch({instant}, 'subsec') * 1000) AS INTEGER)"),
            // No end and no beginning have no number: they are as not given, and as long ago.
            Self::Postgres => format!(
                "CASE WHEN isfinite({instant}) THEN (EXTRACT(EPOCH FROM {instant}) * 1000)::BIGINT \
                 WHEN {instant} < now() THEN 0 END"
            ),
        }
    }

    /// The expression that selects a column.
    fn select_column(self, name: &str, kind: Kind) -> String {
        match (self, kind) {
            (_, Kind::Time) => self.milliseconds(name),
            (Self::Sqlite, Kind::Decimal) => format!("CAST({name} AS TEXT)"),
            (Self::Postgres, Kind::Decimal | Kind::Json) => format!("{name}::TEXT"),
            _ => name.to_owned(),
        }
    }

    /// A column as we give it.
    fn insert_column(self, name: &str, kind: Kind) -> String {
        let field = match self {
            Self::Sqlite => format!("given.value ->> '{name}'"),
            Self::Postgres => format!("given.{name}"),
        };
        match (self, kind) {
            (_, Kind::Time) => self.instant(&field),
            (Self::Postgres, Kind::Json) => format!("{field}::JSON"),
            _ => field,
        }
    }

    fn source(self, columns: &[Column]) -> String {
        if self == Self::Sqlite {
            return "json_each($1) AS given".to_owned();
        }
        let types: Vec<String> = columns
            .iter()
            .map(|(name, kind)| {
                let kind = match kind {
                    Kind::Text | Kind::Json => "TEXT",
                    Kind::Int | Kind::Time => "BIGINT",
                    Kind::Real => "DOUBLE PRECISION",
                    Kind::Decimal => "NUMERIC",
                    Kind::Flag => "BOOLEAN",
                };
                format!("{name} {kind}")
            })
            .collect();
        format!("json_to_recordset($1::JSON) AS given ({})", types.join(", "))
    }
}

/// A WHERE clause and its values; all conditions must hold.
#[derive(Debug, Default)]
pub(in crate::rulebook) struct Conditions {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a value; its name in the statement.
    pub(in crate::rulebook) fn put(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    pub(in crate::rulebook) fn push(&mut self, condition: String) {
        self.conditions.push(condition);
    }

    /// The column has this text, if one is wanted.
    pub(in crate::rulebook) fn equal(&mut self, column: &str, wanted: Option<&str>) {
        if let Some(wanted) = wanted {
            let wanted = self.put(Value::Text(without_nul(wanted)));
            self.push(format!("{column} = {wanted}"));
        }
    }

    /// The column has an instant at or after the first and before the second.
    pub(in crate::rulebook) fn within(
        &mut self,
        dialect: Dialect,
        column: &str,
        since: Option<i64>,
        until: Option<i64>,
    ) {
        for (comparison, instant) in [(">=", since), ("<", until)] {
            if let Some(instant) = instant {
                let instant = dialect.instant(&self.put(Value::Int(instant)));
                self.push(format!("{column} {comparison} {instant}"));
            }
        }
    }

    pub(in crate::rulebook) fn into_sql(self) -> (String, Vec<Value>) {
        let Self { conditions, values } = self;
        let text = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        (text, values)
    }
}

/// PostgreSQL has no way to write NUL, and a client's odd name must not cost a whole batch.
pub(in crate::rulebook) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
