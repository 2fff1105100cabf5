//! Nodes that share a store: status messages over Redis.
//!
//! Nodes on one Redis publish their status every two seconds (less often if they are
//! many), by pub/sub: nothing is stored. They publish their heavy hitters only if a
//! secret encrypts them, or if the settings allow it in clear. What is received is
//! shown to operators, and decides nothing.
//!
//! Each node also announces, unencrypted, the settings that its limits depend on.
//! Differences are reported in the log, the status and the dashboard, because no node
//! can see them in its own settings.

mod announcement;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod known_nodes;
mod message;
mod publish_interval;
mod settings_mismatch;

pub use self::announcement::survey;
pub use self::settings_mismatch::{AnnouncedNode, Difference, differences_among};

use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkdam::store::redis::{PubSubError, PubSubEvent, RedisStore};
use checkdam::time::unix_us;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::announcement::{Announcement, PlainMessage};
use self::known_nodes::KnownNodes;
use self::message::{NodeMessage, NodeSummary, TopLists};
use self::publish_interval::PublishInterval;
use self::settings_mismatch::{MismatchSince, TOPICS, differences};
use crate::app::App;
use crate::heavy_hitters::{RankedSubjects, Ranking};
use crate::lock;
use crate::rulebook::Snapshot;
use crate::telemetry::{TopOf, TopWindow};

/// Why a node with its buckets in memory sees no other.
const IN_MEMORY: &str =
    "the buckets are in this node's memory: nodes that share a Redis (--store redis://…) see each other";
/// Why a node may not see others.
const FORBIDDEN: &str = "Redis does not let this login use the channel cd:nodes: \
    ACL SETUSER USER &cd:nodes +publish +subscribe, as in deploy/redis/users.acl";
/// Why a node lists its own subjects only.
const UNSHARED: &str = "these are the subjects of this node only, because subjects are not published in clear \
    text. Set the same --key-secret on all nodes, which encrypts them, or --share-subjects";

/// The nodes that can be seen.
pub struct Nodes {
    app: Arc<App>,
    name: String,
    started: Instant,
    peers: KnownNodes,
    /// Whether nodes publish their top subjects.
    shares_subjects: bool,
    /// What this node last announced.
    announcement: Mutex<Option<Announcement>>,
    /// The digest of the rules that it was made of.
    digest: Mutex<Option<(Arc<Snapshot>, String)>>,
    differing: Mutex<MismatchSince>,
    /// Triggers an immediate status message.
    asked: Notify,
}

/// The minimum interval between announcements on request.
const ANSWER_PAUSE: Duration = Duration::from_millis(200);

/// A node.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = NodeAnswer)]
pub struct NodeView {
    /// Its machine and port.
    node: String,
    /// Whether it is the one that answers.
    is_self: bool,
    /// The program's version.
    version: String,
    /// For how long it has run.
    uptime_s: u64,
    /// When its last message was received.
    seen_s_ago: u64,
    /// `memory` or `redis`.
    store: String,
    /// The version of its rules; 0 for a file.
    rules_version: u64,
    /// Requests a second, over the last ten.
    requests_per_s: f64,
    /// Of these, requests that did not pass.
    limited_per_s: f64,
    /// Whether it wants requests.
    ready: bool,
}

impl NodeView {
    fn new(summary: NodeSummary, is_self: bool, seen_s_ago: u64) -> Self {
        let NodeSummary { node, version, uptime_s, store, rules_version, requests_per_s, limited_per_s, ready } =
            summary;
        Self {
            node,
            is_self,
            version,
            uptime_s,
            seen_s_ago,
            store,
            rules_version,
            requests_per_s,
            limited_per_s,
            ready,
        }
    }
}

impl Nodes {
    /// This node, which publishes its status and receives that of others as long as the
    /// program runs, if its store is shared. Subjects are published if they can be
    /// encrypted, or if it `shares_subjects` in clear.
    pub fn start(app: Arc<App>, name: String, shares_subjects: bool) -> Arc<Self> {
        let deployment = app.limiter().store().redis_store().map(RedisStore::key_fingerprint).unwrap_or_default();
        let peers = KnownNodes::new(deployment);
        let is_sealed = app.limiter().store().redis_store().is_some_and(RedisStore::is_sealed);
        let shares_subjects = is_sealed || shares_subjects;
        let nodes = Arc::new(Self {
            app,
            name,
            started: Instant::now(),
            peers,
            shares_subjects,
            announcement: Mutex::default(),
            digest: Mutex::default(),
            differing: Mutex::default(),
            asked: Notify::new(),
        });
        if nodes.app.limiter().store().redis_store().is_some() {
            tokio::spawn(publish(Arc::clone(&nodes)));
            tokio::spawn(receive(Arc::clone(&nodes)));
        }
        nodes
    }

    /// For how long this one has run.
    pub fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether other nodes can be seen: a node that receives its own messages can.
    pub fn is_shared(&self) -> bool {
        self.peers.receives_own_messages(Instant::now())
    }

    /// Why not, and what to do about it.
    pub fn hint(&self) -> Option<String> {
        if self.app.limiter().store().redis_store().is_none() {
            return Some(IN_MEMORY.to_owned());
        }
        if self.is_shared() {
            return None;
        }
        Some(match self.peers.pubsub_error() {
            Some(PubSubError { is_forbidden: true, .. }) => FORBIDDEN.to_owned(),
            Some(PubSubError { reason, .. }) => {
                format!("no messages from other nodes are received (retrying): {reason}; run checkdam doctor")
            }
            None => "this node has just started; other nodes appear within seconds".to_owned(),
        })
    }

    /// Whether subjects are those of all nodes.
    pub fn has_all_subjects(&self) -> bool {
        self.shares_subjects && self.is_shared()
    }

    /// Why they are not, and what to do about it, if there may be other nodes.
    pub fn subjects_hint(&self) -> Option<String> {
        self.app.limiter().store().redis_store()?;
        let unshared = || (!self.shares_subjects).then(|| UNSHARED.to_owned());
        self.hint().or_else(unshared)
    }

    /// Every node that can be seen: this one first, then by name.
    pub fn all(&self) -> Vec<NodeView> {
        let view =
            |message: &NodeMessage, seen: Duration| NodeView::new(message.summary.clone(), false, seen.as_secs());
        let mut others = self.peers.map_live(Instant::now(), view);
        others.sort_by(|one, other| one.node.cmp(&other.node));
        others.insert(0, NodeView::new(self.summary(), true, 0));
        others
    }

    /// The top subjects, and over how many nodes.
    pub fn ranked(&self, kind: TopOf, span: TopWindow, rule: Option<&str>) -> (RankedSubjects, usize) {
        let list = |message: &NodeMessage, _| message.top.as_ref().map(|top| top.list(kind, span).ranked());
        let mut lists = if self.shares_subjects { self.peers.map_live(Instant::now(), list) } else { Vec::new() };
        lists.retain(Option::is_some);
        let nodes = lists.len() + 1;
        let own = self.app.telemetry().top().ranked(kind, span);
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

    fn message(&self) -> NodeMessage {
        NodeMessage {
            id: self.peers.own_id(),
            deployment: self.peers.deployment().to_owned(),
            summary: self.summary(),
            every_s: 0,
            top: self.shares_subjects.then(|| TopLists::from_top_subjects(self.app.telemetry().top())),
        }
    }

    /// The announcement of this node; it takes long if the rules are new.
    fn announcement(&self, pace: PublishInterval) -> Announcement {
        let store = self.app.limiter().store();
        let announcement = Announcement {
            id: self.peers.own_id(),
            deployment: self.peers.deployment().to_owned(),
            has_secret: store.redis_store().is_some_and(RedisStore::is_sealed),
            rules: self.rules_digest(),
            nodes: store.nodes(),
            unix_ms: unix_us() / 1_000,
            every_s: pace.every_s(),
        };
        *lock(&self.announcement) = Some(announcement.clone());
        announcement
    }

    fn rules_digest(&self) -> String {
        let (snapshot, mut known) = (self.app.rule_snapshot(), lock(&self.digest));
        match &*known {
            Some((of, digest)) if Arc::ptr_eq(of, &snapshot) => digest.clone(),
            _ => known.insert((Arc::clone(&snapshot), snapshot.digest())).1.clone(),
        }
    }

    /// Compares this node's settings with those of the others, and says what differs,
    /// once it has lasted.
    fn compare_settings(&self, now: Instant) {
        let Some(announcement) = lock(&self.announcement).clone() else { return };
        let found = differences(&AnnouncedNode { announcement, ahead_ms: 0 }, &self.peers.all_announced(now));
        let mut differing = lock(&self.differing);
        for (topic, patience_s) in TOPICS {
            let difference = found.iter().find(|difference| difference.topic == topic);
            let patience = Duration::from_secs(patience_s);
            let is_told = differing.has_lasted(topic, difference.is_some(), patience, now);
            let detail = difference.filter(|_| is_told);
            let detail = detail.map(|Difference { seen, remedy, .. }| format!("{seen}; {remedy}"));
            if self.app.warnings().set(topic, detail.clone()) {
                match detail {
                    Some(detail) => {
                        tracing::warn!(topic, "nodes that share this Redis have different settings: {detail}")
                    }
                    None => tracing::info!(topic, "nodes that share this Redis have the same settings again"),
                }
            }
        }
    }

    /// A message was received in clear text.
    fn plaintext_received(&self, word: &[u8], now: Instant) {
        match PlainMessage::decode(word) {
            Some(PlainMessage::Announcement(announcement)) => {
                self.peers.announcement_received(announcement, now, unix_us() / 1_000);
                self.compare_settings(now);
            }
            Some(PlainMessage::Question) => self.asked.notify_one(),
            None => {}
        }
    }

    fn summary(&self) -> NodeSummary {
        let rates = self.app.telemetry().traffic().rates();
        NodeSummary {
            node: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.uptime_s(),
            store: self.app.limiter().store().kind().to_owned(),
            rules_version: self.app.rule_snapshot().revision.version,
            requests_per_s: rates.requests_per_s,
            limited_per_s: rates.limited_per_s,
            ready: self.app.readiness().is_ready(),
        }
    }
}

/// Publishes the status of this node, and its settings.
async fn publish(nodes: Arc<Nodes>) {
    let Some(store) = nodes.app.limiter().store().redis_store() else { return };
    let mut publisher = store.publisher();
    let mut due = Instant::now();
    loop {
        let is_due = tokio::select! {
            () = tokio::time::sleep_until(due) => true,
            () = nodes.asked.notified() => false,
        };
        let pace = nodes.peers.publish_interval(Instant::now());
        let telling = Arc::clone(&nodes);
        // Ranking takes long: requests must not wait for it.
        let words = tokio::task::spawn_blocking(move || {
            let message = is_due.then(|| telling.message().encode(pace));
            (message, telling.announcement(pace).encode())
        });
        let Ok((message, announcement)) = words.await else { return };
        if let Some(message) = message {
            nodes.peers.publish_finished(publisher.publish(&message).await.err());
            due = Instant::now() + pace.every;
        }
        // If it cannot be said, the message could not either.
        let _ = publisher.publish_plaintext(&announcement).await;
        nodes.compare_settings(Instant::now());
        if !is_due {
            tokio::time::sleep(ANSWER_PAUSE).await;
        }
    }
}

/// Hears how the others go.
async fn receive(nodes: Arc<Nodes>) {
    let Some(store) = nodes.app.limiter().store().redis_store() else { return };
    let mut heard = store.subscribe();
    loop {
        let silence = PublishInterval::liveness_timeout(nodes.peers.publish_interval(Instant::now()).every_s());
        match tokio::time::timeout(silence, heard.recv()).await {
            Ok(Some(PubSubEvent::Message(word))) => match NodeMessage::decode(&word) {
                Some(message) => nodes.peers.message_received(message, Instant::now()),
                None => nodes.plaintext_received(&word, Instant::now()),
            },
            Ok(Some(PubSubEvent::Unsealed(word))) => nodes.plaintext_received(&word, Instant::now()),
            Ok(Some(PubSubEvent::Disconnected(trouble))) => nodes.peers.receive_failed(trouble),
            Ok(Some(_)) => {}
            // A node receives its own messages at least: a silent connection is dead.
            Ok(None) | Err(_) => heard = store.subscribe(),
        }
    }
}
