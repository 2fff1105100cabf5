//! Imports whole files: everything, or nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use checkdam::{Definitions, Rule};

use super::changes::{ImportedItems, PlannedChange};
use super::database::Session;
use super::database_rulebook::{Rulebook, revision};
use super::edit::{EditPlan, TableChange, validate};
use super::row_cache::{RowCache, Rows};
use super::rows::{RowEntry, RowItem};
use super::snapshot::{ImportCounts, RulebookError};

/// What is to be done with definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportMode {
    /// Taken over; `replace` removes what they do not name.
    Import { replace: bool },
    /// Validated and counted as an import, without writing.
    DryRun { replace: bool },
    /// Imported if nothing was ever written.
    Seed,
}

impl Rulebook {
    pub(super) async fn apply_import(
        &self,
        definitions: Definitions,
        mode: ImportMode,
    ) -> Result<ImportCounts, RulebookError> {
        let plan = move |snapshot: &RowCache| {
            let dry_run = matches!(mode, ImportMode::DryRun { .. });
            let mut imported = ImportCounts { dry_run, ..ImportCounts::default() };
            if mode == ImportMode::Seed && !is_new(snapshot) {
                return Ok(EditPlan { changes: Vec::new(), is_valid: false, change: None, planned: imported });
            }
            let replace = matches!(mode, ImportMode::Import { replace: true } | ImportMode::DryRun { replace: true });
            let mut merged = snapshot.clone_for_edit();
            let mut items = ImportedItems::default();
            let changes = vec![
                merge(&mut merged.rules, definitions.rules, replace, (&mut imported, &mut items))?,
                merge(&mut merged.overrides, definitions.overrides, replace, (&mut imported, &mut items))?,
                merge(&mut merged.bans, definitions.bans, replace, (&mut imported, &mut items))?,
            ];
            let is_valid = validate(&merged, snapshot.invalid_rows())?;
            let (changes, change) = match mode {
                ImportMode::DryRun { .. } => (Vec::new(), None),
                ImportMode::Import { .. } => (changes, PlannedChange::of_import("import", &imported, items)),
                ImportMode::Seed => (changes, PlannedChange::of_import("seed", &imported, items)),
            };
            Ok(EditPlan { changes, is_valid, change, planned: imported })
        };
        let finish = async |session: &mut Session, _: Option<&str>, imported| {
            let version = revision(session).await?.version;
            Ok(ImportCounts { version, ..imported })
        };
        self.edit::<Rule, _, _>(plan, finish).await
    }
}

/// Whether nothing was ever written: if every rule was removed, that was meant.
fn is_new(snapshot: &RowCache) -> bool {
    snapshot.revision.version == 0
        && snapshot.rules.is_empty()
        && snapshot.overrides.is_empty()
        && snapshot.bans.is_empty()
}

/// Puts `items` where they belong among `entries`.
fn merge<T: RowItem>(
    entries: &mut Rows<T>,
    items: Vec<T>,
    replace: bool,
    (imported, log): (&mut ImportCounts, &mut ImportedItems),
) -> Result<TableChange, RulebookError> {
    let mut change = TableChange::empty::<T>();
    let known: HashMap<String, usize> =
        entries.iter().enumerate().map(|(place, entry)| (entry.key.clone(), place)).collect();
    let mut named = HashSet::new();
    for item in items {
        let key = item.key();
        let entry = known.get(&key).map(|place| &mut entries[*place]);
        if !named.insert(key) {
            let what = item.description();
            return Err(RulebookError::Invalid { reason: format!("{what}: it is listed twice") });
        }
        match entry {
            Some(entry) if entry.item().is_some_and(|kept| kept.is_same(&item)) => imported.unchanged += 1,
            Some(entry) => {
                change.write(&item, Some(entry.id))?;
                log.push("change", Some(&item));
                *entry = Arc::new(RowEntry::without_row(item));
                imported.changed += 1;
            }
            None => {
                change.write(&item, None)?;
                log.push("add", Some(&item));
                entries.push(Arc::new(RowEntry::without_row(item)));
                imported.added += 1;
            }
        }
    }
    if replace {
        entries.retain(|entry| {
            let stays = named.contains(&entry.key);
            if !stays {
                change.remove.push(entry.id);
                log.push("remove", entry.item());
            }
            stays
        });
        imported.removed += change.remove.len();
    }
    Ok(change)
}
