//! Edits: one transaction that reads what has changed since the last one, validates
//! the result of the edit, and only then writes it.

use std::sync::Arc;
use std::time::Duration;

use checkdam::Rule;
use serde_json::Value as Json;

use super::changes::PlannedChange;
use super::database::{Column, Kind, Session, Value};
use super::database_rulebook::{EDIT_LIMIT, Rulebook, blocking, revision, revision_for_edit, unavailable};
use super::row_cache::{RawRowCache, RowCache, Rows};
use super::rows::{RowEntry, RowItem, select};
use super::snapshot::{Revision, RulebookError, Stored, compile};

/// Limits the wait for a transaction that is held open by hand.
const LOCK_LIMIT: &str = "SET LOCAL lock_timeout = '5s'";
/// Edits by hand may cross ours in ways that only one of the two survives.
const ATTEMPTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// Rows in one statement: enough to make the statement cheap, not the memory dear.
const ROWS_MAX: usize = 10_000;

/// What an edit does to one table: removes, then changes, then adds.
#[derive(Debug)]
pub(super) struct TableChange {
    table: &'static str,
    id: &'static str,
    columns: &'static [Column],
    pub(super) remove: Vec<i64>,
    pub(super) change: Vec<Json>,
    pub(super) add: Vec<Json>,
}

/// A planned edit: what to write, whether the result is valid as a whole, and the
/// result for the caller.
pub(super) struct EditPlan<P> {
    pub(super) changes: Vec<TableChange>,
    pub(super) is_valid: bool,
    /// What the change log says of it, if anything.
    pub(super) change: Option<PlannedChange>,
    pub(super) planned: P,
}

/// A row that was written, or removed.
type TouchedRow = (i64, Option<String>);

/// Why an attempt failed.
enum EditFailure {
    Refused(RulebookError),
    Database(sqlx::Error),
}

impl From<sqlx::Error> for EditFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl TableChange {
    pub(super) fn empty<T: RowItem>() -> Self {
        let (table, id, columns) = (T::TABLE, T::ID, T::COLUMNS);
        Self { table, id, columns, remove: Vec::new(), change: Vec::new(), add: Vec::new() }
    }

    /// An item's row is to be added, or to take the place of the row `id`.
    pub(super) fn write<T: RowItem>(&mut self, item: &T, id: Option<i64>) -> Result<(), RulebookError> {
        let mut row = item.row().map_err(|reason| RulebookError::Invalid { reason })?;
        match id {
            Some(id) => {
                row.insert(T::ID.to_owned(), id.into());
                self.change.push(row.into());
            }
            None => self.add.push(row.into()),
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
            // Rules may be swapped: while only some have moved, two would apply to the same
            // requests.
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
    pub(super) async fn add<T: RowItem>(&self, item: T) -> Result<Stored<T>, RulebookError> {
        self.write(item, |rows, item| {
            let existing = rows.iter().find(|entry| entry.key == item.key());
            existing.map_or(Ok(None), |entry| Err(RulebookError::Exists { what: entry.what.clone() }))
        })
        .await
    }

    pub(super) async fn put<T: RowItem>(&self, item: T, expected: Option<u64>) -> Result<Stored<T>, RulebookError> {
        self.write(item, move |rows, item| match rows.iter().position(|entry| entry.key == item.key()) {
            Some(place) => check_version(&rows[place], expected).map(|()| Some(place)),
            // An expected version requires that the row exists.
            None if expected.is_some() => Err(RulebookError::NotFound { what: "such row".to_owned() }),
            None => Ok(None),
        })
        .await
    }

    pub(super) async fn set<T: RowItem>(
        &self,
        key: String,
        what: String,
        item: T,
        expected: Option<u64>,
    ) -> Result<Stored<T>, RulebookError> {
        self.write(item, move |rows, item| {
            let place = find(rows, &key, &what)?;
            check_version(&rows[place], expected)?;
            let other = rows.iter().find(|entry| entry.key == item.key() && entry.key != key);
            other.map_or(Ok(Some(place)), |entry| Err(RulebookError::Exists { what: entry.what.clone() }))
        })
        .await
    }

    pub(super) async fn remove<T: RowItem>(
        &self,
        key: String,
        what: String,
        expected: Option<u64>,
    ) -> Result<(), RulebookError> {
        let plan = move |snapshot: &RowCache| {
            let place = find(T::rows(snapshot), &key, &what)?;
            let entry = &T::rows(snapshot)[place];
            check_version(entry, expected)?;
            let mut change = TableChange::empty::<T>();
            change.remove.push(entry.id);
            let planned_change = PlannedChange::of_item::<T>(false, entry.item(), None);
            let is_valid = validate_one::<T>(snapshot, Some(place), None)?;
            Ok(EditPlan { changes: vec![change], is_valid, change: planned_change, planned: () })
        };
        self.edit::<T, _, _>(plan, async |_, _, ()| Ok(())).await
    }

    /// Writes one item in the place that `place` finds for it, or as a new one.
    async fn write<T: RowItem>(
        &self,
        item: T,
        place: impl Fn(&Rows<T>, &T) -> Result<Option<usize>, RulebookError> + Send + Clone + 'static,
    ) -> Result<Stored<T>, RulebookError> {
        let plan = move |snapshot: &RowCache| {
            let place = place(T::rows(snapshot), &item)?;
            let mut change = TableChange::empty::<T>();
            change.write(&item, place.map(|place| T::rows(snapshot)[place].id))?;
            let old = place.and_then(|place| T::rows(snapshot)[place].item());
            let planned_change = PlannedChange::of_item(place.is_none(), old, Some(&item));
            let is_valid = validate_one(snapshot, place, Some(item))?;
            Ok(EditPlan { changes: vec![change], is_valid, change: planned_change, planned: () })
        };
        let finish = async |_: &mut Session, row: Option<&str>, ()| {
            let entry = row.map(RowEntry::<T>::read).ok_or(sqlx::Error::RowNotFound)?;
            let stored = entry.stored().map_err(|fault| sqlx::Error::Protocol(fault.reason))?;
            Ok(Stored::clone(&stored))
        };
        self.edit::<T, _, _>(plan, finish).await
    }

    /// Lets `plan` decide, on everything there is, what is to be written, and
    /// writes it; `finish` sees it, and the row if it is one of `T`, before others do.
    pub(super) async fn edit<T: RowItem, P: Send + 'static, R>(
        &self,
        plan: impl FnOnce(&RowCache) -> Result<EditPlan<P>, RulebookError> + Clone + Send + 'static,
        finish: impl AsyncFn(&mut Session, Option<&str>, P) -> Result<R, sqlx::Error>,
    ) -> Result<R, RulebookError> {
        for attempt in 1.. {
            let edited = tokio::time::timeout(EDIT_LIMIT, self.attempt::<T, _, _>(plan.clone(), &finish)).await;
            match edited {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(EditFailure::Refused(error))) => return Err(error),
                Ok(Err(EditFailure::Database(error))) if attempt < ATTEMPTS && is_retryable(&error) => {}
                Ok(Err(EditFailure::Database(error))) => return Err(unavailable(&error)),
                Err(_) => break,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(RulebookError::Unavailable { reason: format!("no answer within {EDIT_LIMIT:?}") })
    }

    async fn attempt<T: RowItem, P: Send + 'static, R>(
        &self,
        plan: impl FnOnce(&RowCache) -> Result<EditPlan<P>, RulebookError> + Send + 'static,
        finish: &impl AsyncFn(&mut Session, Option<&str>, P) -> Result<R, sqlx::Error>,
    ) -> Result<R, EditFailure> {
        let mut session = self.engine.write().await?;
        if session.dialect() == super::database::Dialect::Postgres {
            session.run_script(LOCK_LIMIT).await?;
        }
        let before = self.current_rows(&mut session).await?;
        let planning = Arc::clone(&before);
        let EditPlan { changes, is_valid, change: planned_change, planned } =
            match blocking(move || plan(&planning)).await {
                Ok(planned) => planned,
                Err(refused) => {
                    session.abort().await?;
                    return Err(EditFailure::Refused(refused));
                }
            };
        let mut last = 0;
        for change in &changes {
            last = change.apply(&mut session).await?;
        }
        let touched = touched_row::<T>(&mut session, &changes, last).await?;
        let result = finish(&mut session, touched.as_ref().and_then(|(_, row)| row.as_deref()), planned).await?;
        let reached = revision(&mut session).await?;
        if let Some(change) = &planned_change {
            self.record_change(&mut session, change, reached.version).await?;
        }
        // After many changes the next read finds out what differs.
        let after = touched.map(|touched| cache_with_row::<T>(&before, reached, &touched));
        session.commit().await?;
        if let Some(after) = after {
            if is_valid {
                after.set_valid();
            }
            self.set_cached(&Arc::new(after));
        }
        Ok(result)
    }

    /// The current rows, locked against concurrent edits until the session ends.
    async fn current_rows(&self, session: &mut Session) -> Result<Arc<RowCache>, EditFailure> {
        let (known, revision) = (self.cached(), revision_for_edit(session).await?);
        if known.revision == revision {
            return Ok(known);
        }
        let raw = RawRowCache::read(session, revision, known).await?;
        let snapshot = blocking(move || Ok(Arc::new(raw.parse()))).await.map_err(EditFailure::Refused)?;
        // This transaction has written nothing yet: it read committed rows only.
        self.set_cached(&snapshot);
        Ok(snapshot)
    }
}

/// The row that changes touched, if it is only one and of this kind.
async fn touched_row<T: RowItem>(
    session: &mut Session,
    changes: &[TableChange],
    last: i64,
) -> Result<Option<TouchedRow>, sqlx::Error> {
    let [change] = changes else { return Ok(None) };
    if change.table != T::TABLE {
        return Ok(None);
    }
    match (change.remove.as_slice(), change.change.len() + change.add.len()) {
        ([id], 0) => Ok(Some((*id, None))),
        ([], 1) => {
            let sql = select::<T>(session.dialect(), &format!("WHERE {} = $1", T::ID));
            let mut rows = session.rows(&sql, &[Value::Int(last)]).await?;
            let row = rows.pop().ok_or(sqlx::Error::RowNotFound)?;
            Ok(Some((last, Some(row))))
        }
        _ => Ok(None),
    }
}

/// The state after one row was touched.
fn cache_with_row<T: RowItem>(before: &RowCache, revision: Revision, (id, row): &TouchedRow) -> RowCache {
    let mut after = before.clone_for_edit();
    after.revision = revision;
    let rows = T::rows_mut(&mut after);
    let place = rows.binary_search_by_key(id, |entry| entry.id);
    match (place, row.as_deref().map(|row| Arc::new(RowEntry::read(row)))) {
        (Ok(place), Some(entry)) => rows[place] = entry,
        (Ok(place), None) => drop(rows.remove(place)),
        (Err(place), Some(entry)) => rows.insert(place, entry),
        (Err(_), None) => {}
    }
    after
}

/// Validates the rulebook with the item at `place` replaced by `new`; returns whether
/// it is then valid as a whole. In a valid rulebook only what the edit affects is
/// checked.
fn validate_one<T: RowItem>(snapshot: &RowCache, place: Option<usize>, new: Option<T>) -> Result<bool, RulebookError> {
    if snapshot.is_valid() {
        let old = place.and_then(|place| T::rows(snapshot)[place].item());
        let invalid = |reason| RulebookError::Invalid { reason };
        let concerned = T::affected_definitions(snapshot, old, new.as_ref()).map_err(invalid)?;
        return compile(concerned).map(|_| true);
    }
    let mut edited = snapshot.clone_for_edit();
    let rows = T::rows_mut(&mut edited);
    match (place, new.map(|item| Arc::new(RowEntry::without_row(item)))) {
        (Some(place), Some(entry)) => rows[place] = entry,
        (Some(place), None) => drop(rows.remove(place)),
        (None, Some(entry)) => rows.push(entry),
        (None, None) => {}
    }
    validate(&edited, snapshot.invalid_rows())
}

/// Validates the resulting rulebook; returns whether it is valid as a whole. While
/// rows that other programs wrote are invalid, an edit is accepted if it leaves fewer
/// of them than before: otherwise two could never be fixed.
pub(super) fn validate(edited: &RowCache, faults_before: usize) -> Result<bool, RulebookError> {
    if (1..faults_before).contains(&edited.invalid_rows()) {
        return Ok(false);
    }
    compile(edited.definitions()?).map(|_| true)
}

fn find<T: RowItem>(rows: &Rows<T>, key: &str, what: &str) -> Result<usize, RulebookError> {
    let place = rows.iter().position(|entry| entry.key == key);
    place.ok_or_else(|| RulebookError::NotFound { what: what.to_owned() })
}

fn check_version<T>(entry: &RowEntry<T>, expected: Option<u64>) -> Result<(), RulebookError> {
    match expected {
        Some(expected) if expected != entry.version => {
            Err(RulebookError::Changed { what: entry.what.clone(), current: entry.version })
        }
        _ => Ok(()),
    }
}

/// Whether the same edit may succeed a moment later: another transaction won
/// (deadlock, serialization), or a number was taken by hand.
fn is_retryable(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["40P01", "40001", "23505"].contains(&code.as_ref()))
}
