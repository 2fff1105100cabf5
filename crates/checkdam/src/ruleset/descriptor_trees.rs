//! Compiled descriptor trees: finds the limit at the end of a path of entries.

use super::index::Map;
use super::{CompiledQuota, CompiledRule, PolicyText};
use crate::descriptor::Descriptor;
use crate::quota::{Algorithm, Quota};
use crate::request::Request;
use crate::rule::Rule;
use crate::small_buffer::SmallBuffer;
use crate::store::BucketName;
use crate::subject::SubjectPattern;

/// The trees by their domain, and where paths end in them.
#[derive(Debug, Default)]
pub(crate) struct CompiledTrees {
    pub(super) by_domain: Map<Box<str>, CompiledTree>,
    pub(super) leaves: Vec<Leaf>,
}

#[derive(Debug)]
pub(crate) struct CompiledTree {
    pub(super) root: TreeLevel,
    /// The rule that represents request limits.
    pub(crate) given: u32,
    pub(crate) algorithm: Algorithm,
}

/// What one entry is compared with.
#[derive(Debug, Default)]
pub(super) struct TreeLevel(pub(super) Map<Box<str>, ValueNodes>);

/// The nodes of one name.
#[derive(Debug, Default)]
pub(super) struct ValueNodes {
    pub(super) exact: Map<Box<str>, TreeNode>,
    /// In the file's order.
    pub(super) wild: Vec<(SubjectPattern, TreeNode)>,
    pub(super) any: Option<Box<TreeNode>>,
}

#[derive(Debug, Default)]
pub(super) struct TreeNode {
    pub(super) leaf: Option<u32>,
    pub(super) next: TreeLevel,
}

/// A limit of a tree: where paths end.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// As it was written, without what is below it.
    pub(crate) descriptor: Descriptor,
    /// The rule that represents it; none if it counts nothing.
    pub(crate) rule: Option<u32>,
    pub(super) steps: Vec<TreeStep>,
}

/// One level of the way to a leaf.
#[derive(Debug, Clone)]
pub(super) struct TreeStep {
    /// As it was written; empty: any.
    pub(super) value: Box<str>,
    pub(super) is_shared: bool,
    pub(super) value_to_metric: bool,
}

impl CompiledTrees {
    /// The tree of a domain. Most rule sets have none at all.
    #[inline]
    pub(crate) fn get(&self, domain: &str) -> Option<&CompiledTree> {
        if self.by_domain.is_empty() {
            return None;
        }
        self.by_domain.get(domain)
    }

    pub(crate) fn leaf(&self, number: u32) -> &Leaf {
        &self.leaves[number as usize]
    }
}

impl CompiledTree {
    /// Where the request's path ends, if that is at a limit: an entry is
    /// compared with exact values first, then with patterns, and there is no
    /// way back from a level that was entered.
    pub(crate) fn find(&self, request: &Request<'_>) -> Option<u32> {
        let mut level = &self.root;
        let mut leaf = None;
        for (name, value) in request.path() {
            let node = level.0.get(name)?.find(value)?;
            (level, leaf) = (&node.next, node.leaf);
        }
        leaf
    }
}

impl ValueNodes {
    fn find(&self, value: &str) -> Option<&TreeNode> {
        let wild = || self.wild.iter().find(|(pattern, _)| pattern.matches(value)).map(|(_, node)| node);
        self.exact.get(value).or_else(wild).or(self.any.as_deref())
    }
}

impl TreeStep {
    /// Whether all paths that take these steps are one subject.
    fn are_constant(steps: &[Self]) -> bool {
        steps.iter().all(|step| step.is_shared || !step.value.is_empty() && !step.value.contains('*'))
    }
}

impl Leaf {
    /// Whether all paths that end here are one subject.
    pub(crate) fn is_constant(&self) -> bool {
        TreeStep::are_constant(&self.steps)
    }

    /// Whether one path alone ends here: every value is written, and none is shared.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_constant() && self.steps.iter().all(|step| !step.is_shared)
    }

    /// Whether metrics include the values of paths that end here.
    pub(crate) fn has_detailed_metric(&self) -> bool {
        self.descriptor.detailed_metric || self.steps.iter().any(|step| step.value_to_metric)
    }

    /// The name of the request's path in metrics: bounded by what is written, unless the
    /// file enables the values themselves.
    pub(crate) fn metric_name(&self, request: &Request<'_>) -> String {
        let mut text = request.domain().to_owned();
        for (step, (name, value)) in self.steps.iter().zip(request.path()) {
            text.push('.');
            text.push_str(name);
            let is_told = self.descriptor.detailed_metric || step.value_to_metric;
            let value = if is_told && !step.is_shared { value } else { &step.value };
            if !value.is_empty() {
                text.push('_');
                text.push_str(value);
            }
        }
        text
    }
}

/// Writes the subject of a path in an unambiguous form: the domain, then each name
/// and value with its length before it. A shared threshold is counted under its
/// pattern.
pub(crate) fn write_subject(leaf: Option<&Leaf>, request: &Request<'_>, out: &mut SmallBuffer) {
    let mut text = |kind: u8, text: &str| {
        out.push(&[kind]);
        out.push(&(text.len() as u32).to_le_bytes());
        out.push_str(text);
    };
    text(b'd', request.domain());
    let steps = leaf.map_or(&[][..], |leaf| &leaf.steps);
    for (place, (name, value)) in request.path().enumerate() {
        text(b'n', name);
        match steps.get(place) {
            Some(step) if step.is_shared => text(b'p', &step.value),
            _ => text(b'v', value),
        }
    }
}

impl CompiledQuota {
    /// The buckets of trees have one name, and no rule: a request limit shares the bucket of
    /// the configured limit of its unit if both count in windows; a token or leaky bucket with
    /// other numbers is separate. If the path is constant, its bucket is pinned.
    pub(crate) fn of_descriptor(rule: &str, quota: Quota, is_constant: bool) -> Self {
        let bucket = BucketName::new("\0descriptor", 0).pinned(is_constant);
        Self { quota, bucket, policy: PolicyText::new(rule, &quota, &[quota]), lease: None }
    }
}

impl CompiledRule {
    /// A rule that is in no index: a leaf refers to it.
    pub(super) fn of_descriptor(rule: Rule, key: usize, steps: &[TreeStep]) -> Self {
        let is_constant = TreeStep::are_constant(steps);
        let of = |quota: &Quota| CompiledQuota::of_descriptor(&rule.name, *quota, is_constant);
        let quotas = rule.quotas.iter().map(of).collect();
        Self { rule, quotas, overrides: None, conditions: Vec::new(), key }
    }
}
