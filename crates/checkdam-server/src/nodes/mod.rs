//! This node among those that share its store.
//!
//! Nodes with one Redis tell each other every two seconds (less often if they
//! are many) how they go, over its publish and subscribe: nothing is written.
//! They tell who comes to them most only where a secret seals it, or if that is
//! wanted in clear. What is heard is for people to look at, and decides nothing.

mod message;
mod pace;
mod peers;
mod summary;

pub(crate) use self::summary::Summary;

use std::sync::Arc;

use checkdam::store::redis::{Heard, RedisStore, Unheard};
use tokio::time::Instant;

use self::message::{Lists, Message};
use self::pace::Pace;
use self::peers::Peers;
use crate::app::App;
use crate::sketch::{Ranked, Ranking};
use crate::watch::{Kind, Span};

/// Why a node with its buckets in memory sees no other.
const IN_MEMORY: &str =
    "the buckets are in this node's memory: nodes that share a Redis (--store redis://…) see each other";
/// Why a node may not see others.
const FORBIDDEN: &str = "Redis does not let this login use the channel cd:nodes: \
    ACL SETUSER USER &cd:nodes +publish +subscribe, as in deploy/redis/users.acl";
/// Why a node lists its own subjects only.
const UNSHARED: &str = "these are the subjects of this node only: nodes do not tell each other theirs in clear; \
    give all the same --key-secret, which seals them, or --share-subjects";

/// The nodes that can be seen.
pub(crate) struct Nodes {
    app: Arc<App>,
    name: String,
    started: Instant,
    peers: Peers,
    /// Whether nodes tell each other who comes to them.
    shares_subjects: bool,
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
    /// This node, which tells others of itself and hears of them as long as the
    /// program runs, if its store is shared. Subjects are told if they can be
    /// sealed, or if it `shares_subjects` in clear.
    pub(crate) fn start(app: Arc<App>, name: String, shares_subjects: bool) -> Arc<Self> {
        let deployment = app.limiter().store().redis_store().map(RedisStore::deployment).unwrap_or_default();
        let peers = Peers::new(deployment);
        let is_sealed = app.limiter().store().redis_store().is_some_and(RedisStore::is_sealed);
        let shares_subjects = is_sealed || shares_subjects;
        let nodes = Arc::new(Self { app, name, started: Instant::now(), peers, shares_subjects });
        if nodes.app.limiter().store().redis_store().is_some() {
            tokio::spawn(tell(Arc::clone(&nodes)));
            tokio::spawn(hear(Arc::clone(&nodes)));
        }
        nodes
    }

    /// For how long this one has run.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether others can be seen: whoever hears itself can be heard.
    pub(crate) fn is_shared(&self) -> bool {
        self.peers.is_heard(Instant::now())
    }

    /// Why not, and what to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        if self.app.limiter().store().redis_store().is_none() {
            return Some(IN_MEMORY.to_owned());
        }
        if self.is_shared() {
            return None;
        }
        Some(match self.peers.trouble() {
            Some(Unheard { is_forbidden: true, .. }) => FORBIDDEN.to_owned(),
            Some(Unheard { reason, .. }) => {
                format!(
                    "other nodes are not heard of, it is tried again: {reason}; checkdam doctor looks the store over"
                )
            }
            None => "other nodes are heard of in a moment: this one has just started".to_owned(),
        })
    }

    /// Whether subjects are those of all nodes.
    pub(crate) fn has_all_subjects(&self) -> bool {
        self.shares_subjects && self.is_shared()
    }

    /// Why they are not, and what to do about it, if there may be other nodes.
    pub(crate) fn subjects_hint(&self) -> Option<String> {
        self.app.limiter().store().redis_store()?;
        let unshared = || (!self.shares_subjects).then(|| UNSHARED.to_owned());
        self.hint().or_else(unshared)
    }

    /// Every node that can be seen: this one first, then by name.
    pub(crate) fn all(&self) -> Vec<NodeView> {
        let mut others = self.peers.each(Instant::now(), |message, seen| NodeView {
            summary: message.summary.clone(),
            is_self: false,
            seen_s_ago: seen.as_secs(),
        });
        others.sort_by(|one, other| one.summary.node.cmp(&other.summary.node));
        others.insert(0, NodeView { summary: self.summary(), is_self: true, seen_s_ago: 0 });
        others
    }

    /// Who came most often, and to how many nodes together.
    pub(crate) fn ranked(&self, kind: Kind, span: Span, rule: Option<&str>) -> (Ranked, usize) {
        let list = |message: &Message, _| message.top.as_ref().map(|top| top.list(kind, span).ranked());
        let mut lists = if self.shares_subjects { self.peers.each(Instant::now(), list) } else { Vec::new() };
        lists.retain(Option::is_some);
        let nodes = lists.len() + 1;
        let own = self.app.watch().top().ranked(kind, span);
        let mut all = if lists.is_empty() {
            own
        } else {
            let mut ranking = Ranking::default();
            for list in lists.into_iter().flatten().chain([own]) {
                ranking.add_list(list.names, list.missing_at_most, list.total);
            }
            ranking.ranked()
        };
        if let Some(rule) = rule {
            all.names.retain(|(name, _)| name.rule == rule);
        }
        (all, nodes)
    }

    fn message(&self) -> Message {
        Message {
            id: self.peers.own_id(),
            deployment: self.peers.deployment().to_owned(),
            summary: self.summary(),
            every_s: 0,
            top: self.shares_subjects.then(|| Lists::of(self.app.watch().top())),
        }
    }

    fn summary(&self) -> Summary {
        let rates = self.app.watch().traffic().rates();
        Summary {
            node: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.uptime_s(),
            store: self.app.limiter().store().kind().to_owned(),
            rules_version: self.app.book().revision.version,
            requests_per_s: rates.requests_per_s,
            limited_per_s: rates.limited_per_s,
            ready: self.app.readiness().is_ready(),
        }
    }
}

/// Tells the others how this node goes.
async fn tell(nodes: Arc<Nodes>) {
    let Some(store) = nodes.app.limiter().store().redis_store() else { return };
    let mut speaker = store.speaker();
    loop {
        let pace = nodes.peers.pace(Instant::now());
        let telling = Arc::clone(&nodes);
        // Ranking takes a while: requests shall not wait for it.
        let word = tokio::task::spawn_blocking(move || telling.message().encode(pace));
        let Ok(word) = word.await else { return };
        nodes.peers.told(speaker.say(&word).await.err());
        tokio::time::sleep(pace.every).await;
    }
}

/// Hears how the others go.
async fn hear(nodes: Arc<Nodes>) {
    let Some(store) = nodes.app.limiter().store().redis_store() else { return };
    let mut heard = store.listen();
    loop {
        let silence = Pace::silence(nodes.peers.pace(Instant::now()).every_s());
        match tokio::time::timeout(silence, heard.recv()).await {
            Ok(Some(Heard::Said(word))) => nodes.peers.heard(&word, Instant::now()),
            Ok(Some(Heard::Nothing(trouble))) => nodes.peers.unheard(trouble),
            Ok(Some(_)) => {}
            // One hears at least oneself: a connection that is silent is dead.
            Ok(None) | Err(_) => heard = store.listen(),
        }
    }
}
