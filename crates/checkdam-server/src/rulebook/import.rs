//! Takes over whole files: all of it, or nothing.

use std::collections::{HashMap, HashSet};

use checkdam::Definitions;

use super::book::{Imported, RulebookError};
use super::database::Session;
use super::edit::{Change, judge};
use super::item::{Entry, Item};
use super::store::{Pages, Rulebook, version};

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
        let plan = move |mut pages: Pages| {
            let mut imported = Imported::default();
            if how == How::Seed && !is_new(&pages) {
                return Ok((Vec::new(), imported));
            }
            let faults = pages.faults();
            let replace = matches!(how, How::Import { replace: true } | How::Rehearse { replace: true });
            let changes = vec![
                merge(&mut pages.rules, definitions.rules, replace, &mut imported)?,
                merge(&mut pages.overrides, definitions.overrides, replace, &mut imported)?,
                merge(&mut pages.bans, definitions.bans, replace, &mut imported)?,
            ];
            judge(pages, faults)?;
            let is_written = !matches!(how, How::Rehearse { .. });
            Ok((if is_written { changes } else { Vec::new() }, imported))
        };
        let finish = async |session: &mut Session, _, imported| {
            let version = version(session).await?;
            Ok(Imported { version, ..imported })
        };
        self.edit(plan, finish).await
    }
}

/// Whether nobody has ever written anything: who removed every rule meant it.
fn is_new(pages: &Pages) -> bool {
    pages.version == 0 && pages.rules.is_empty() && pages.overrides.is_empty() && pages.bans.is_empty()
}

/// Puts `items` where they belong among `entries`.
fn merge<T: Item>(
    entries: &mut Vec<Entry<T>>,
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
            let what = Entry::new(item).what;
            return Err(RulebookError::Invalid { reason: format!("{what}: it is listed twice") });
        }
        match entry {
            Some(entry) if entry.item.as_ref().is_ok_and(|kept| kept.is_same(&item)) => imported.unchanged += 1,
            Some(entry) => {
                change.write(&item, Some(entry.id))?;
                entry.item = Ok(item);
                imported.changed += 1;
            }
            None => {
                change.write(&item, None)?;
                entries.push(Entry::new(item));
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
