//! This node among those that share its store.

mod summary;

pub(crate) use self::summary::Summary;

use std::sync::Arc;

use tokio::time::Instant;

use crate::app::App;
use crate::sketch::Ranked;
use crate::watch::{Kind, Span};

/// Why a node with its buckets in memory sees no other.
const IN_MEMORY: &str =
    "the buckets are in this node's memory: nodes that share a Redis (--store redis://…) see each other";

/// The nodes that can be seen.
pub(crate) struct Nodes {
    app: Arc<App>,
    name: String,
    started: Instant,
}

/// A node, as it is seen from here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) summary: Summary,
    /// Whether it is this one.
    pub(crate) is_self: bool,
    /// When it was last heard of.
    pub(crate) seen_s_ago: u64,
}

impl Nodes {
    /// This node alone.
    pub(crate) fn new(app: Arc<App>, name: String) -> Self {
        Self { app, name, started: Instant::now() }
    }

    /// For how long this one has run.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether others can be seen.
    pub(crate) const fn is_shared(&self) -> bool {
        false
    }

    /// Why not, and what to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        Some(IN_MEMORY.to_owned())
    }

    /// Every node that can be seen: this one first, then by name.
    pub(crate) fn all(&self) -> Vec<NodeView> {
        vec![NodeView { summary: self.summary(), is_self: true, seen_s_ago: 0 }]
    }

    /// Who came most often, and to how many nodes together.
    pub(crate) fn ranked(&self, kind: Kind, span: Span, rule: Option<&str>) -> (Ranked, usize) {
        (self.app.watch().top().ranked(kind, span, rule), 1)
    }

    fn summary(&self) -> Summary {
        let rates = self.app.watch().traffic().rates();
        Summary {
            node: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.uptime_s(),
            store: self.app.limiter().store().kind().to_owned(),
            rules_version: self.app.book().version,
            requests_per_s: rates.requests_per_s,
            limited_per_s: rates.limited_per_s,
            ready: !self.app.is_leaving(),
        }
    }
}
