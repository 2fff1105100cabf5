//! Compiles descriptor trees: their limits become rules.

use std::collections::{HashMap, HashSet};

use super::descriptor_trees::{CompiledTree, CompiledTrees, Leaf, TreeLevel, TreeNode, TreeStep};
use super::error::{RuleSetError, RuleSetItem};
use super::{CompiledKey, CompiledRule};
use crate::descriptor::{Descriptor, DescriptorAllowance, DescriptorLimit, DescriptorTree};
use crate::quota::{Algorithm, Quota, QuotaSpec};
use crate::rule::{KeyPattern, RESERVED_NAMES, RULE_NAME_MAX, Rule};
use crate::subject::SubjectPattern;

/// What the scope of such rules is, for people.
const SCOPE: &str = "descriptor";

/// Compiles trees, and appends their rules to the existing ones.
pub(super) struct TreeCompiler<'a> {
    pub(super) rules: &'a mut Vec<CompiledRule>,
    pub(super) keys: &'a mut Vec<CompiledKey>,
    /// How often each name was used.
    names: HashMap<String, usize>,
    trees: CompiledTrees,
}

impl<'a> TreeCompiler<'a> {
    pub(super) fn new(rules: &'a mut Vec<CompiledRule>, keys: &'a mut Vec<CompiledKey>) -> Self {
        let taken = rules.iter().map(|compiled| compiled.rule.name.as_str()).chain(RESERVED_NAMES);
        let names = taken.map(|name| (name.to_owned(), 1)).collect();
        Self { rules, keys, names, trees: CompiledTrees::default() }
    }

    /// Also returns how many rules are listed to users: those after them represent request
    /// limits.
    pub(super) fn compile(mut self, trees: &[DescriptorTree]) -> Result<(CompiledTrees, usize), RuleSetError> {
        for (index, tree) in trees.iter().enumerate() {
            let fail = |reason| RuleSetError { item: RuleSetItem::Domain { name: tree.domain.clone() }, index, reason };
            if tree.domain.is_empty() {
                return Err(fail("the name of the domain is empty: give it one".to_owned()));
            }
            if self.trees.by_domain.contains_key(tree.domain.as_str()) {
                return Err(fail(
                    "there are two trees of that domain: join them, or let domains be merged (--merge-domains)"
                        .to_owned(),
                ));
            }
            let root = self.level(&mut TreePath::new(&tree.domain), tree.descriptors.clone()).map_err(fail)?;
            let ready = CompiledTree { root, given: 0, algorithm: tree.algorithm };
            self.trees.by_domain.insert(tree.domain.as_str().into(), ready);
        }
        let shown = self.rules.len();
        for tree in trees {
            let path = TreePath::new(&tree.domain);
            let given = self.rule(&path, Rule::new("", KeyPattern::literal(&path.name()), Vec::new()));
            if let Some(tree) = self.trees.by_domain.get_mut(tree.domain.as_str()) {
                tree.given = given;
            }
        }
        Ok((self.trees, shown))
    }

    fn level(&mut self, path: &mut TreePath<'_>, descriptors: Vec<Descriptor>) -> Result<TreeLevel, String> {
        let mut level = TreeLevel::default();
        let mut ids = HashSet::new();
        for mut one in descriptors {
            let id = one.id();
            if one.key.is_empty() {
                return Err(format!("a descriptor below {:?} has no key: give it one", path.name()));
            }
            if !ids.insert(id.clone()) {
                return Err(format!("below {:?} there are two descriptors {id:?}: keep one of them", path.name()));
            }
            let below = std::mem::take(&mut one.descriptors);
            path.enter(&one, id);
            let node = TreeNode { leaf: self.leaf(path, &one)?, next: self.level(path, below)? };
            path.leave();
            let values = level.0.entry(one.key.as_str().into()).or_default();
            if one.value.is_empty() {
                values.any = Some(Box::new(node));
            } else if one.has_wildcard() {
                let pattern = SubjectPattern::from_chunks(one.value.split('*').map(str::to_owned).collect());
                values.wild.push((pattern, node));
            } else {
                values.exact.insert(one.value.into(), node);
            }
        }
        Ok(level)
    }

    fn leaf(&mut self, path: &TreePath<'_>, one: &Descriptor) -> Result<Option<u32>, String> {
        let Some(limit) = &one.limit else { return Ok(None) };
        let rule = match quota(limit)? {
            None => None,
            Some(quota) => {
                let is_nothing = matches!(limit.allowance, DescriptorAllowance::Nothing { .. });
                let mut rule = Rule::new(if is_nothing { " (nothing passes)" } else { "" }, key(path), vec![quota]);
                rule.mode = one.mode;
                rule.on_store_failure = limit.on_store_failure;
                rule.description.clone_from(&limit.name);
                Some(self.rule(path, rule))
            }
        };
        self.trees.leaves.push(Leaf { descriptor: one.clone(), rule, steps: path.steps.clone() });
        Ok(Some(self.trees.leaves.len() as u32 - 1))
    }

    /// Puts a rule behind the others, under a name of its own: that of its path,
    /// and what its name was before.
    fn rule(&mut self, path: &TreePath<'_>, mut rule: Rule) -> u32 {
        let name = path.name() + &rule.name;
        rule.name.clone_from(&name);
        while let Some(wanted) = self.names.get_mut(&rule.name) {
            // The first of a number is not given away, so the next is free, or nearly.
            *wanted += 1;
            rule.name = format!("{name}~{wanted}");
        }
        rule.domain = path.domain.to_owned();
        rule.scope = SCOPE.to_owned();
        self.names.insert(rule.name.clone(), 1);
        self.keys.push(CompiledKey::new(rule.key.clone(), Default::default()));
        self.rules.push(CompiledRule::of_descriptor(rule, self.keys.len() - 1, &path.steps));
        self.rules.len() as u32 - 1
    }
}

struct TreePath<'a> {
    domain: &'a str,
    /// The keys, and how the levels are named.
    entries: Vec<(String, String)>,
    steps: Vec<TreeStep>,
}

impl<'a> TreePath<'a> {
    const fn new(domain: &'a str) -> Self {
        Self { domain, entries: Vec::new(), steps: Vec::new() }
    }

    fn enter(&mut self, one: &Descriptor, id: String) {
        self.entries.push((one.key.clone(), id));
        self.steps.push(TreeStep {
            value: one.value.as_str().into(),
            is_shared: one.is_shared,
            value_to_metric: one.value_to_metric,
        });
    }

    fn leave(&mut self) {
        self.entries.pop();
        self.steps.pop();
    }

    /// The domain and the levels, as a rule's name.
    fn name(&self) -> String {
        let levels = self.entries.iter().map(|(_, id)| id.as_str());
        let text: Vec<&str> = std::iter::once(self.domain).chain(levels).collect();
        let printable = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
        // Room is left for a remark and a number.
        text.join(".").chars().map(printable).take(RULE_NAME_MAX - 24).collect()
    }
}

/// The key as shown to people: names that are invalid in a key are written as text.
fn key(path: &TreePath<'_>) -> KeyPattern {
    let part = |(name, _): &(String, String)| format!("{name}={{{name}}}");
    let text = path.entries.iter().map(part).collect::<Vec<_>>().join(",");
    text.parse().unwrap_or_else(|_| KeyPattern::literal(&path.name()))
}

fn quota(limit: &DescriptorLimit) -> Result<Option<Quota>, String> {
    match limit.allowance {
        DescriptorAllowance::Unlimited => Ok(None),
        DescriptorAllowance::Quota(quota) => Ok(Some(quota)),
        // Never read: only the period is used.
        DescriptorAllowance::Nothing { period_us } => {
            let spec = QuotaSpec::new(1, period_us);
            Quota::new(spec, Algorithm::FixedWindow).map(Some).map_err(|error| error.to_string())
        }
    }
}
