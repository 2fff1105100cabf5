//! Takes over whole files: all of it, or nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use checkdam::{Definitions, Rule};

use super::book::{Imported, RulebookError};
use super::database::Session;
use super::edit::{Change, Plan, validate};
use super::item::{Entry, Item};
use super::snapshot::{Rows, Snapshot};
use super::store::{Rulebook, revision};

/// What is to be done with definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Taken over; `replace` removes what they do not name.
    Import { replace: bool },
    /// Judged and counted as an import, and left at that.
    Rehearse { replace: bool },
    /// Taken over if nobody has ever written anything.
    Seed,
}

impl Rulebook {
    pub(super) async fn take_over(&self, definitions: Definitions, how: How) -> Result<Imported, RulebookError> {
        let plan = move |snapshot: &Snapshot| {
            let mut imported = Imported::default();
            if how == How::Seed && !is_new(snapshot) {
                return Ok(Plan { changes: Vec::new(), is_valid: false, planned: imported });
            }
            let replace = matches!(how, How::Import { replace: true } | How::Rehearse { replace: true });
            let mut merged = snapshot.changed();
            let changes = vec![
                merge(&mut merged.rules, definitions.rules, replace, &mut imported)?,
                merge(&mut merged.overrides, definitions.overrides, replace, &mut imported)?,
                merge(&mut merged.bans, definitions.bans, replace, &mut imported)?,
            ];
            let is_valid = validate(&merged, snapshot.faults())?;
            let is_written = !matches!(how, How::Rehearse { .. });
            Ok(Plan { changes: if is_written { changes } else { Vec::new() }, is_valid, planned: imported })
        };
        let finish = async |session: &mut Session, _: Option<&str>, imported| {
            let version = revision(session).await?.version;
            Ok(Imported { version, ..imported })
        };
        self.edit::<Rule, _, _>(plan, finish).await
    }
}

/// Whether nothing was ever written: if every rule was removed, that was meant.
fn is_new(snapshot: &Snapshot) -> bool {
    snapshot.revision.version == 0
        && snapshot.rules.is_empty()
        && snapshot.overrides.is_empty()
        && snapshot.bans.is_empty()
}

/// Puts `items` where they belong among `entries`.
fn merge<T: Item>(
    entries: &mut Rows<T>,
    items: Vec<T>,
    replace: bool,
    imported: &mut Imported,
) -> Result<Change, RulebookError> {
    let mut change = Change::of::<T>();
    let known: HashMap<String, usize> =
        entries.iter().enumerate().map(|(place, entry)| (entry.key.clone(), place)).collect();
    let mut named = HashSet::new();
    for item in items {
        let key = item.key();
        let entry = known.get(&key).map(|place| &mut entries[*place]);
        if !named.insert(key) {
            let what = item.what();
            return Err(RulebookError::Invalid { reason: format!("{what}: it is listed twice") });
        }
        match entry {
            Some(entry) if entry.item().is_some_and(|kept| kept.is_same(&item)) => imported.unchanged += 1,
            Some(entry) => {
                change.write(&item, Some(entry.id))?;
                *entry = Arc::new(Entry::without_row(item));
                imported.changed += 1;
            }
            None => {
                change.write(&item, None)?;
                entries.push(Arc::new(Entry::without_row(item)));
                imported.added += 1;
            }
        }
    }
    if replace {
        entries.retain(|entry| {
            let stays = named.contains(&entry.key);
            if !stays {
                change.remove.push(entry.id);
            }
            stays
        });
        imported.removed += change.remove.len();
    }
    Ok(change)
}
