//! Edits: one transaction that reads everything, judges what would come of the
//! edit, and only then writes it.

use std::time::Duration;

use checkdam::{Definitions, Rule};
use serde_json::Value as Json;

use super::book::{RulebookError, Stored, compile};
use super::database::{Column, Kind, Session, Value};
use super::item::{Entry, Item, columns};
use super::store::{EDIT_LIMIT, Pages, RawPages, Rulebook, blocking, unavailable, version_for_edit};

/// Somebody who edits by hand and goes for coffee holds others up no longer.
const LOCK_LIMIT: &str = "SET LOCAL lock_timeout = '5s'";
/// Edits by hand may cross ours in ways that only one of the two survives.
const ATTEMPTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// Rows in one statement: enough to make the statement cheap, not the memory dear.
const ROWS_MAX: usize = 10_000;

/// What an edit does to one table: removes, then changes, then adds.
#[derive(Debug)]
pub(super) struct Change {
    table: &'static str,
    id: &'static str,
    columns: &'static [Column],
    pub(super) remove: Vec<i64>,
    pub(super) change: Vec<Json>,
    pub(super) add: Vec<Json>,
}

/// Why an attempt came to nothing.
enum Failed {
    Refused(RulebookError),
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Change {
    pub(super) fn of<T: Item>() -> Self {
        let (table, id, columns) = (T::TABLE, T::ID, T::COLUMNS);
        Self { table, id, columns, remove: Vec::new(), change: Vec::new(), add: Vec::new() }
    }

    /// An item's row is to be added, or to take the place of the row `id`.
    pub(super) fn write<T: Item>(&mut self, item: &T, id: Option<i64>) -> Result<(), RulebookError> {
        let mut row = item.row().map_err(|reason| RulebookError::Invalid { reason })?;
        match id {
            Some(id) => {
                row[T::ID] = id.into();
                self.change.push(row);
            }
            None => self.add.push(row),
        }
        Ok(())
    }

    /// Writes it; the key of the row that was written last.
    async fn apply(&self, session: &mut Session) -> Result<i64, sqlx::Error> {
        let dialect = session.dialect();
        let list = |rows: &[Json]| [Value::Text(Json::from(rows.to_vec()).to_string())];
        for ids in self.remove.chunks(ROWS_MAX) {
            session.run(&dialect.delete(self.table, self.id), &[Value::Text(Json::from(ids).to_string())]).await?;
        }
        if self.change.len() > 1 && self.table == Rule::TABLE {
            // Rules may change places: while only some have moved, two would concern the same requests.
            let ids: Vec<&Json> = self.change.iter().map(|row| &row[self.id]).collect();
            let deactivate = dialect.update(self.table, self.id, &[(self.id, Kind::Int), ("is_active", Kind::Flag)]);
            let rows = ids.iter().map(|id| serde_json::json!({self.id: id, "is_active": false})).collect::<Vec<_>>();
            session.run(&deactivate, &list(&rows)).await?;
        }
        let mut last = self.change.last().and_then(|row| row[self.id].as_i64()).unwrap_or_default();
        let with_id: Vec<Column> = [(self.id, Kind::Int)].into_iter().chain(self.columns.iter().copied()).collect();
        for rows in self.change.chunks(ROWS_MAX) {
            session.run(&dialect.update(self.table, self.id, &with_id), &list(rows)).await?;
        }
        for rows in self.add.chunks(ROWS_MAX) {
            let insert = dialect.insert(self.table, self.columns);
            if let [_] = rows {
                last = session.number(&format!("{insert} RETURNING {}", self.id), &list(rows)).await?.unwrap_or(last);
            } else {
                session.run(&insert, &list(rows)).await?;
            }
        }
        Ok(last)
    }
}

impl Rulebook {
    pub(super) async fn add<T: Item>(&self, item: T) -> Result<Stored<T>, RulebookError> {
        self.write(item, |entries, item| {
            let existing = entries.iter().find(|entry| entry.key == item.key());
            existing.map_or(Ok(None), |entry| Err(RulebookError::Exists { what: entry.what.clone() }))
        })
        .await
    }

    pub(super) async fn put<T: Item>(&self, item: T, expected: Option<u64>) -> Result<Stored<T>, RulebookError> {
        self.write(item, move |entries, item| match entries.iter().position(|entry| entry.key == item.key()) {
            Some(place) => expect(&entries[place], expected).map(|()| Some(place)),
            // Who expects a version of something must find it.
            None if expected.is_some() => Err(RulebookError::NotFound { what: "such row".to_owned() }),
            None => Ok(None),
        })
        .await
    }

    pub(super) async fn set<T: Item>(
        &self,
        key: String,
        what: String,
        item: T,
        expected: Option<u64>,
    ) -> Result<Stored<T>, RulebookError> {
        self.write(item, move |entries, item| {
            let place = find(entries, &key, &what)?;
            expect(&entries[place], expected)?;
            let other = entries.iter().find(|entry| entry.key == item.key() && entry.key != key);
            other.map_or(Ok(Some(place)), |entry| Err(RulebookError::Exists { what: entry.what.clone() }))
        })
        .await
    }

    pub(super) async fn remove<T: Item>(
        &self,
        key: String,
        what: String,
        expected: Option<u64>,
    ) -> Result<(), RulebookError> {
        let plan = move |mut pages: Pages| {
            let faults = pages.faults();
            let entries = T::entries(&mut pages);
            let place = find(entries, &key, &what)?;
            expect(&entries[place], expected)?;
            let mut change = Change::of::<T>();
            change.remove.push(entries.remove(place).id);
            judge(pages, faults).map(|()| (vec![change], ()))
        };
        self.edit(plan, async |_, _, ()| Ok(())).await
    }

    /// Writes one item in the place that `place` finds for it, or as a new one.
    async fn write<T: Item>(
        &self,
        item: T,
        place: impl Fn(&[Entry<T>], &T) -> Result<Option<usize>, RulebookError> + Send + Clone + 'static,
    ) -> Result<Stored<T>, RulebookError> {
        let plan = move |mut pages: Pages| {
            let faults = pages.faults();
            let entries = T::entries(&mut pages);
            let mut change = Change::of::<T>();
            match place(entries, &item)? {
                Some(place) => {
                    change.write(&item, Some(entries[place].id))?;
                    entries[place].item = Ok(item);
                }
                None => {
                    change.write(&item, None)?;
                    entries.push(Entry::new(item));
                }
            }
            judge(pages, faults).map(|()| (vec![change], ()))
        };
        let read_back = async |session: &mut Session, last, ()| {
            let which = format!("WHERE {} = $1", T::ID);
            let sql = session.dialect().select(T::TABLE, &columns::<T>(), &which);
            let rows = session.rows(&sql, &[Value::Int(last)]).await?;
            let entry = rows.first().map(|row| Entry::<T>::read(row)).ok_or(sqlx::Error::RowNotFound)?;
            entry.into_stored().map_err(|fault| sqlx::Error::Protocol(fault.reason))
        };
        self.edit(plan, read_back).await
    }

    /// Lets `plan` decide, on everything there is, what is to be written, and
    /// writes it; `finish` sees it before others do.
    pub(super) async fn edit<P: Send + 'static, R>(
        &self,
        plan: impl FnOnce(Pages) -> Result<(Vec<Change>, P), RulebookError> + Clone + Send + 'static,
        finish: impl AsyncFn(&mut Session, i64, P) -> Result<R, sqlx::Error>,
    ) -> Result<R, RulebookError> {
        for attempt in 1.. {
            let edited = tokio::time::timeout(EDIT_LIMIT, self.attempt(plan.clone(), &finish)).await;
            match edited {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(Failed::Refused(error))) => return Err(error),
                Ok(Err(Failed::Database(error))) if attempt < ATTEMPTS && is_passing(&error) => {}
                Ok(Err(Failed::Database(error))) => return Err(unavailable(&error)),
                Err(_) => break,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(RulebookError::Unavailable { reason: format!("no answer within {EDIT_LIMIT:?}") })
    }

    async fn attempt<P: Send + 'static, R>(
        &self,
        plan: impl FnOnce(Pages) -> Result<(Vec<Change>, P), RulebookError> + Send + 'static,
        finish: &impl AsyncFn(&mut Session, i64, P) -> Result<R, sqlx::Error>,
    ) -> Result<R, Failed> {
        let mut session = self.engine.write().await?;
        if session.dialect() == super::database::Dialect::Postgres {
            session.script(LOCK_LIMIT).await?;
        }
        let version = version_for_edit(&mut session).await?;
        let raw = RawPages::read(&mut session).await?;
        let (changes, planned) = match blocking(move || plan(raw.pages(version))).await {
            Ok(planned) => planned,
            Err(refused) => {
                session.abort().await?;
                return Err(Failed::Refused(refused));
            }
        };
        let mut last = 0;
        for change in changes {
            last = change.apply(&mut session).await?;
        }
        let result = finish(&mut session, last, planned).await?;
        session.commit().await?;
        Ok(result)
    }
}

/// Judges what the rulebook would say. While rows that somebody wrote past us
/// say nothing valid, an edit is good if it leaves fewer of them than there
/// were: else nobody could mend two.
pub(super) fn judge(pages: Pages, faults_before: usize) -> Result<(), RulebookError> {
    if (1..faults_before).contains(&pages.faults()) {
        return Ok(());
    }
    fn items<T: Item>(entries: Vec<Entry<T>>) -> Result<Vec<T>, RulebookError> {
        let item = |entry: Entry<T>| match entry.item {
            Ok(item) => Ok(item),
            Err(reason) => Err(RulebookError::Invalid {
                reason: format!("{} is not valid since before: {reason}; mend or remove it first", entry.what),
            }),
        };
        entries.into_iter().map(item).collect()
    }
    let Pages { rules, overrides, bans, .. } = pages;
    compile(Definitions {
        rules: items(rules)?,
        overrides: items(overrides)?,
        bans: items(bans)?,
        ..Definitions::default()
    })
    .map(drop)
}

fn find<T: Item>(entries: &[Entry<T>], key: &str, what: &str) -> Result<usize, RulebookError> {
    let place = entries.iter().position(|entry| entry.key == key);
    place.ok_or_else(|| RulebookError::NotFound { what: what.to_owned() })
}

fn expect<T>(entry: &Entry<T>, expected: Option<u64>) -> Result<(), RulebookError> {
    match expected {
        Some(expected) if expected != entry.version => {
            Err(RulebookError::Changed { what: entry.what.clone(), current: entry.version })
        }
        _ => Ok(()),
    }
}

/// Whether the same edit may succeed a moment later: another transaction won
/// (deadlock, serialization), or a number was taken by hand.
fn is_passing(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["40P01", "40001", "23505"].contains(&code.as_ref()))
}
