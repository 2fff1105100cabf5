//! Cache of a rulebook's rows at one instant; only changed rows are read again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use checkdam::{Ban, Definitions, Override, Rule};

use super::database::{Session, Value};
use super::rows::{RowEntry, RowItem, select};
use super::snapshot::{InvalidRow, Revision, RulebookError, Snapshot, Stored};

/// Fewer rows than this are not worth a thread.
const ROWS_A_THREAD: usize = 1_000;
/// If more than one in this many rows has changed, all are read.
const CHANGED_SHARE: usize = 4;

/// The rows of one table, by their numbers.
pub(super) type Rows<T> = Vec<Arc<RowEntry<T>>>;

/// The three tables at one instant, valid or not. Snapshots of successive states
/// share the rows that did not change.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    pub(super) revision: Revision,
    pub(super) rules: Rows<Rule>,
    pub(super) overrides: Rows<Override>,
    pub(super) bans: Rows<Ban>,
    /// Whether it is known to be valid as a whole.
    is_valid: AtomicBool,
}

/// What the database returned for the three tables, not yet parsed.
#[derive(Debug)]
pub(super) struct RawRowCache {
    revision: Revision,
    known: Arc<RowCache>,
    rules: RawRows,
    overrides: RawRows,
    bans: RawRows,
}

/// One table: the rows that are kept, by their numbers, and the text of the others.
#[derive(Debug)]
struct RawRows {
    kept: HashSet<i64>,
    read: Vec<String>,
}

impl RowCache {
    /// Another state: rows may be replaced in it before it is shared.
    pub(super) fn clone_for_edit(&self) -> Self {
        Self {
            revision: self.revision.clone(),
            rules: self.rules.clone(),
            overrides: self.overrides.clone(),
            bans: self.bans.clone(),
            is_valid: AtomicBool::new(false),
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Relaxed)
    }

    /// It was validated as a whole.
    pub(super) fn set_valid(&self) {
        self.is_valid.store(true, Ordering::Relaxed);
    }

    /// How many rows say nothing valid.
    pub(super) fn invalid_rows(&self) -> usize {
        fn count<T>(rows: &Rows<T>) -> usize {
            rows.iter().filter(|entry| entry.item.is_err()).count()
        }
        count(&self.rules) + count(&self.overrides) + count(&self.bans)
    }

    /// As others see it.
    pub(super) fn to_snapshot(&self) -> Snapshot {
        fn split<T: RowItem>(rows: &Rows<T>, faults: &mut Vec<InvalidRow>) -> Vec<Arc<Stored<T>>> {
            rows.iter().filter_map(|entry| entry.stored().map_err(|fault| faults.push(fault)).ok()).collect()
        }
        let mut faults = Vec::new();
        Snapshot {
            revision: self.revision.clone(),
            rules: split(&self.rules, &mut faults),
            overrides: split(&self.overrides, &mut faults),
            bans: split(&self.bans, &mut faults),
            faults,
            ..Snapshot::default()
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// Names the first row that says nothing valid.
    pub(super) fn definitions(&self) -> Result<Definitions, RulebookError> {
        fn items<T: RowItem>(rows: &Rows<T>) -> Result<Vec<T>, RulebookError> {
            let item = |entry: &Arc<RowEntry<T>>| match &entry.item {
                Ok(stored) => Ok(stored.item.clone()),
                Err(reason) => Err(RulebookError::Invalid {
                    reason: format!("{} was already invalid: {reason}; correct or remove it first", entry.what),
                }),
            };
            rows.iter().map(item).collect()
        }
        Ok(Definitions {
            rules: items(&self.rules)?,
            overrides: items(&self.overrides)?,
            bans: items(&self.bans)?,
            ..Definitions::default()
        })
    }
}

impl RawRowCache {
    /// Reads what has changed since `known`; the revision is that of this transaction.
    pub(super) async fn read(
        session: &mut Session,
        revision: Revision,
        known: Arc<RowCache>,
    ) -> Result<Self, sqlx::Error> {
        let rules = RawRows::read(session, &known.rules).await?;
        let overrides = RawRows::read(session, &known.overrides).await?;
        let bans = RawRows::read(session, &known.bans).await?;
        Ok(Self { revision, known, rules, overrides, bans })
    }

    /// Parses it: for a thread that may take its time.
    pub(super) fn parse(self) -> RowCache {
        let Self { revision, known, rules, overrides, bans } = self;
        RowCache {
            revision,
            rules: rules.parse(&known.rules),
            overrides: overrides.parse(&known.overrides),
            bans: bans.parse(&known.bans),
            is_valid: AtomicBool::new(false),
        }
    }
}

impl RawRows {
    async fn read<T: RowItem>(session: &mut Session, known: &Rows<T>) -> Result<Self, sqlx::Error> {
        let dialect = session.dialect();
        if !known.is_empty() {
            let stamps = session.rows(&dialect.select_stamps(T::TABLE, T::ID), &[]).await?.concat();
            if let Some((kept, changed)) = compare_stamps(known, &stamps)
                && changed.len() <= known.len() / CHANGED_SHARE
            {
                if changed.is_empty() {
                    return Ok(Self { kept, read: Vec::new() });
                }
                let listed = Value::Text(serde_json::json!(changed).to_string());
                let which = format!("WHERE {}", dialect.is_listed(T::ID));
                let read = session.rows(&select::<T>(dialect, &which), &[listed]).await?;
                return Ok(Self { kept, read });
            }
        }
        let read = session.rows(&select::<T>(dialect, &format!("ORDER BY {}", T::ID)), &[]).await?;
        Ok(Self { kept: HashSet::new(), read })
    }

    fn parse<T: RowItem>(self, known: &Rows<T>) -> Rows<T> {
        let kept = known.iter().filter(|entry| self.kept.contains(&entry.id)).cloned();
        let mut rows: Rows<T> = kept.chain(parse_all(&self.read)).collect();
        rows.sort_by_key(|entry| entry.id);
        rows
    }
}

/// The known rows whose stamps are unchanged, and the rows that the database has
/// besides them; none if its lines cannot be parsed.
fn compare_stamps<T>(known: &Rows<T>, stamps: &str) -> Option<(HashSet<i64>, Vec<i64>)> {
    let known: HashMap<i64, &str> = known.iter().map(|entry| (entry.id, entry.stamp.as_str())).collect();
    let (mut kept, mut changed) = (HashSet::new(), Vec::new());
    for line in stamps.lines() {
        let (id, stamp) = line.split_once(' ')?;
        let id = id.parse().ok()?;
        if known.get(&id) == Some(&stamp) {
            kept.insert(id);
        } else {
            changed.push(id);
        }
    }
    Some((kept, changed))
}

fn parse_all<T: RowItem>(rows: &[String]) -> Rows<T> {
    let read = |part: &'_ [String]| part.iter().map(|row| Arc::new(RowEntry::read(row))).collect::<Rows<T>>();
    if rows.len() <= ROWS_A_THREAD {
        return read(rows);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.len().div_ceil(threads).max(ROWS_A_THREAD);
    std::thread::scope(|scope| {
        let parts: Vec<_> = rows.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
        let joined = |part: std::thread::ScopedJoinHandle<'_, Rows<T>>| match part.join() {
            Ok(entries) => entries,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        parts.into_iter().flat_map(joined).collect()
    })
}
