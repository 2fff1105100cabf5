//! A snapshot of a rulebook's contents, and the rulebook's errors.

use std::collections::HashMap;
use std::sync::Arc;

use checkdam::{
    Ban, BanSpec, Condition, Definitions, DescriptorTree, Mode, Override, OverrideSpec, Rule, RuleSet, RuleSpec,
};

/// Which state a rulebook is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revision {
    /// Counts changes. A database that lost edits counts through the same numbers again.
    pub version: u64,
    /// Random, and new with every change: states with equal ids are the same state.
    pub id: String,
}

/// Rules, overrides and bans at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Which state this is; that of a file is the default.
    pub revision: Revision,
    /// In the order in which they count. Books of successive states share what did not change.
    pub rules: Vec<Arc<Stored<Rule>>>,
    pub overrides: Vec<Arc<Stored<Override>>>,
    pub bans: Vec<Arc<Stored<Ban>>>,
    /// Limits as trees of descriptors, which only files have.
    pub trees: Vec<DescriptorTree>,
    /// Their limits, as rules.
    pub(super) of_trees: Vec<Arc<Stored<Rule>>>,
    /// Invalid rows. Another program wrote them, and until they are fixed or removed the
    /// rulebook as a whole is invalid.
    pub faults: Vec<InvalidRow>,
}

/// Something that is kept, and what is known of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    pub id: i64,
    /// From 1; every change of the row has a higher one.
    pub version: u64,
    pub created_unix_ms: i64,
    pub updated_unix_ms: i64,
    pub item: T,
}

impl<T> Stored<T> {
    pub(super) const fn without_row(item: T) -> Self {
        Self { id: 0, version: 0, created_unix_ms: 0, updated_unix_ms: 0, item }
    }
}

/// A row that says nothing valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRow {
    /// What it is, for people: `rule "user-free"`.
    pub what: String,
    pub version: u64,
    pub reason: String,
}

/// Why an operation of the rulebook failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulebookError {
    #[error("there is no {what}")]
    NotFound { what: String },
    #[error("there is a {what} already")]
    Exists { what: String },
    #[error("the {what} was changed concurrently: its version is {current}")]
    Changed { what: String, current: u64 },
    #[error("{reason}")]
    Invalid { reason: String },
    #[error("the rulebook's database does not answer: {reason}")]
    Unavailable { reason: String },
}

/// What an import did, or would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = ImportAnswer)]
pub struct ImportCounts {
    /// The version of the rulebook that is active here now.
    pub version: u64,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// What was new.
    pub added: usize,
    /// What was there and is now different.
    pub changed: usize,
    /// What was there and is gone.
    pub removed: usize,
    /// What was there and is the same.
    pub unchanged: usize,
}

impl Snapshot {
    /// What a file says: it has no rows.
    pub fn from_definitions(definitions: Definitions) -> Self {
        fn stored<T>(items: Vec<T>) -> Vec<Arc<Stored<T>>> {
            items.into_iter().map(|item| Arc::new(Stored::without_row(item))).collect()
        }
        let Definitions { rules, overrides, bans, trees } = definitions;
        Self { rules: stored(rules), overrides: stored(overrides), bans: stored(bans), trees, ..Self::default() }
    }

    /// The same, with the limits of trees as they were compiled, to be seen.
    pub fn with_tree_rules(mut self, rules: &RuleSet) -> Self {
        let own = self.rules.iter().filter(|stored| stored.item.mode != Mode::Off).count();
        self.of_trees = rules.rules().skip(own).map(|rule| Arc::new(Stored::without_row(rule.clone()))).collect();
        self
    }

    /// Every listed rule, those of trees last.
    pub fn listed_rules(&self) -> impl Iterator<Item = &Arc<Stored<Rule>>> {
        self.rules.iter().chain(&self.of_trees)
    }

    /// What it says, as plain data.
    pub fn definitions(&self) -> Definitions {
        fn items<T: Clone>(stored: &[Arc<Stored<T>>]) -> Vec<T> {
            stored.iter().map(|stored| stored.item.clone()).collect()
        }
        Definitions {
            rules: items(&self.rules),
            overrides: items(&self.overrides),
            bans: items(&self.bans),
            trees: self.trees.clone(),
        }
    }

    /// Equal for equal contents, wherever they come from, and different for others. It
    /// takes long with many rules.
    pub fn digest(&self) -> String {
        fn add<T>(hasher: &mut blake3::Hasher, kind: &[u8], texts: impl Iterator<Item = T>)
        where
            T: serde::Serialize,
        {
            hasher.update(kind);
            for text in texts {
                // The texts of rules have nothing that JSON has not.
                hasher.update(&serde_json::to_vec(&text).unwrap_or_default()).update(b"\n");
            }
        }
        let mut hasher = blake3::Hasher::new();
        add(&mut hasher, b"rules\n", self.rules.iter().map(|stored| RuleSpec::from(&stored.item)));
        add(&mut hasher, b"overrides\n", self.overrides.iter().map(|stored| OverrideSpec::from(&stored.item)));
        add(&mut hasher, b"bans\n", self.bans.iter().map(|stored| BanSpec::from(&stored.item)));
        for tree in &self.trees {
            hasher.update(format!("{tree:?}\n").as_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// What it would say after an edit of one rule: the rule of that name is
    /// replaced or, without another one, removed; without a name one is added.
    ///
    /// # Errors
    /// Says that there is no such rule, or that the new name is taken.
    pub fn definitions_after_edit(&self, name: Option<&str>, rule: Option<Rule>) -> Result<Definitions, RulebookError> {
        let mut definitions = self.definitions();
        let rules = &mut definitions.rules;
        let what = |name: &str| format!("rule {name:?}");
        let place = match name {
            Some(name) => {
                let found = rules.iter().position(|rule| rule.name == name);
                Some(found.ok_or_else(|| RulebookError::NotFound { what: what(name) })?)
            }
            None => None,
        };
        if let Some(rule) = &rule
            && let Some(other) = rules.iter().position(|other| other.name == rule.name)
            && place != Some(other)
        {
            return Err(RulebookError::Exists { what: what(&rule.name) });
        }
        match (place, rule) {
            (Some(place), Some(rule)) => rules[place] = rule,
            (Some(place), None) => drop(rules.remove(place)),
            (None, Some(rule)) => rules.push(rule),
            (None, None) => {}
        }
        Ok(definitions)
    }

    /// What decisions are made by. It may take a second for a hundred thousand
    /// overrides: not for a thread that answers requests.
    ///
    /// # Errors
    /// Says which row or which item is not valid, and why.
    pub fn compile(&self) -> Result<RuleSet, RulebookError> {
        if let Some(fault) = self.faults.first() {
            return Err(RulebookError::Invalid { reason: format!("{}: {}", fault.what, fault.reason) });
        }
        compile(self.definitions())
    }
}

/// Whether text that is searched for, in small letters, stands in a rule.
pub fn is_found(rule: &Rule, search: &str) -> bool {
    let texts = [rule.name.as_str(), rule.key.text(), &rule.scope, &rule.description];
    texts.iter().any(|text| text.to_lowercase().contains(search))
}

/// Compiles what a rulebook is to say.
pub(crate) fn compile(definitions: Definitions) -> Result<RuleSet, RulebookError> {
    check_duplicates(&definitions.rules).map_err(|reason| RulebookError::Invalid { reason })?;
    RuleSet::compile(definitions).map_err(|error| RulebookError::Invalid { reason: error.to_string() })
}

/// What decides which requests a rule applies to: its domain, key, scope and
/// conditions.
type MatchedRequests<'a> = (&'a str, &'a str, &'a str, Vec<&'a (String, Condition)>);

/// Rejects two enforced rules with the same domain, key, scope and conditions: it
/// would be unclear which of them is meant. The database's own index does the same
/// for statements that bypass this program.
fn check_duplicates(rules: &[Rule]) -> Result<(), String> {
    let mut known = HashMap::new();
    for rule in rules.iter().filter(|rule| rule.mode == Mode::Enforce) {
        if let Some(earlier) = known.insert(matched_requests(rule), &rule.name) {
            return Err(duplicate_error(rule, earlier));
        }
    }
    Ok(())
}

/// The same for one rule among others that do not conflict with each other.
pub(super) fn check_duplicate<'a>(rule: &Rule, mut others: impl Iterator<Item = &'a Rule>) -> Result<(), String> {
    if rule.mode != Mode::Enforce {
        return Ok(());
    }
    let concerned = matched_requests(rule);
    match others.find(|other| other.mode == Mode::Enforce && matched_requests(other) == concerned) {
        Some(other) => Err(duplicate_error(rule, &other.name)),
        None => Ok(()),
    }
}

fn matched_requests(rule: &Rule) -> MatchedRequests<'_> {
    let mut conditions: Vec<_> = rule.when.iter().collect();
    conditions.sort_by(|(one, _), (other, _)| one.cmp(other));
    (&rule.domain, rule.key.text(), &rule.scope, conditions)
}

fn duplicate_error(rule: &Rule, other: &str) -> String {
    format!(
        "rule {:?}: it has the same domain, key, scope and conditions as the rule {other:?}: \
         join their limits, or make one of them a shadow",
        rule.name
    )
}
