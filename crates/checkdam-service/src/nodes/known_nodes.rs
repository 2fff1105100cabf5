//! The other nodes, by their last messages.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use checkdam::store::redis::PubSubError;
use tokio::time::Instant;

use super::announcement::Announcement;
use super::message::NodeMessage;
use super::publish_interval::PublishInterval;
use super::settings_mismatch::AnnouncedNode;
use crate::lock;

/// The maximum number of nodes that are kept: any client of the Redis can forge some.
const PEERS_MAX: usize = 1_000;

/// The other nodes, by their last messages.
#[derive(Debug)]
pub(super) struct KnownNodes {
    own_id: u64,
    deployment: String,
    known: Mutex<KnownNodesState>,
}

#[derive(Debug, Default)]
struct KnownNodesState {
    nodes: HashMap<u64, (NodeMessage, Instant)>,
    /// Every node on the Redis, also those whose messages cannot be decrypted.
    announced: HashMap<u64, (AnnouncedNode, Instant)>,
    /// When our own message was last received, and its content.
    echo: Option<(NodeMessage, Instant)>,
    /// The last errors of publishing and of receiving.
    untold: Option<PubSubError>,
    unheard: Option<PubSubError>,
}

impl KnownNodes {
    pub(super) fn new(deployment: String) -> Self {
        Self { own_id: RandomState::new().hash_one(0_u8), deployment, known: Mutex::default() }
    }

    pub(super) const fn own_id(&self) -> u64 {
        self.own_id
    }

    pub(super) fn deployment(&self) -> &str {
        &self.deployment
    }

    /// Records a status message, of this node or another.
    pub(super) fn message_received(&self, message: NodeMessage, now: Instant) {
        if message.deployment != self.deployment {
            return;
        }
        let mut known = lock(&self.known);
        known.unheard = None;
        if message.id == self.own_id {
            known.echo = Some((message, now));
            return;
        }
        known.nodes.retain(|_, node| is_live(node, now));
        if known.nodes.len() < PEERS_MAX || known.nodes.contains_key(&message.id) {
            known.nodes.insert(message.id, (message, now));
        }
    }

    /// Records an announcement; `unix_ms` is the local time.
    pub(super) fn announcement_received(&self, announcement: Announcement, now: Instant, unix_ms: u64) {
        if announcement.id == self.own_id {
            return;
        }
        let ahead_ms = i64::try_from(announcement.unix_ms).unwrap_or(i64::MAX).saturating_sub_unsigned(unix_ms);
        let mut known = lock(&self.known);
        known.announced.retain(|_, node| is_recently_announced(node, now));
        if known.announced.len() < PEERS_MAX || known.announced.contains_key(&announcement.id) {
            known.announced.insert(announcement.id, (AnnouncedNode { announcement, ahead_ms }, now));
        }
    }

    pub(super) fn all_announced(&self, now: Instant) -> Vec<AnnouncedNode> {
        let known = lock(&self.known);
        known.announced.values().filter(|node| is_recently_announced(node, now)).map(|(node, _)| node.clone()).collect()
    }

    pub(super) fn receive_failed(&self, trouble: PubSubError) {
        lock(&self.known).unheard = Some(trouble);
    }

    pub(super) fn publish_finished(&self, trouble: Option<PubSubError>) {
        lock(&self.known).untold = trouble;
    }

    /// Whether published messages are received.
    pub(super) fn receives_own_messages(&self, now: Instant) -> bool {
        lock(&self.known).echo.as_ref().is_some_and(|echo| is_live(echo, now))
    }

    pub(super) fn pubsub_error(&self) -> Option<PubSubError> {
        let known = lock(&self.known);
        let both = [&known.unheard, &known.untold];
        both.into_iter().flatten().max_by_key(|trouble| trouble.is_forbidden).cloned()
    }

    /// The publish interval for the number of live nodes.
    pub(super) fn publish_interval(&self, now: Instant) -> PublishInterval {
        PublishInterval::for_nodes(self.map_live(now, |_, _| ()).len() + 1)
    }

    /// Maps every live node, with the time since its last message.
    pub(super) fn map_live<T>(&self, now: Instant, make: impl Fn(&NodeMessage, Duration) -> T) -> Vec<T> {
        let known = lock(&self.known);
        let there = known.nodes.values().filter(|node| is_live(node, now));
        there.map(|(message, heard)| make(message, now.duration_since(*heard))).collect()
    }
}

fn is_live((message, heard): &(NodeMessage, Instant), now: Instant) -> bool {
    now.duration_since(*heard) < PublishInterval::liveness_timeout(message.every_s)
}

fn is_recently_announced((node, heard): &(AnnouncedNode, Instant), now: Instant) -> bool {
    now.duration_since(*heard) < PublishInterval::liveness_timeout(node.announcement.every_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::message::{NodeSummary, TopLists};
    use crate::telemetry::TopSubjects;

    fn word(id: u64, deployment: &str) -> NodeMessage {
        let (deployment, summary) = (deployment.to_owned(), NodeSummary::example(&format!("node:{id}")));
        NodeMessage { id, deployment, summary, every_s: 0, top: Some(TopLists::from_top_subjects(&TopSubjects::new())) }
    }

    fn count(peers: &KnownNodes, now: Instant) -> usize {
        peers.map_live(now, |message, _| message.id).len()
    }

    #[test]
    fn nodes_come_and_go_and_strangers_are_not_seen() {
        let (peers, start) = (KnownNodes::new("ours".to_owned()), Instant::now());
        peers.message_received(word(1, "ours"), start);
        peers.message_received(word(2, "theirs"), start);
        assert_eq!(peers.map_live(start, |message, _| message.id), [1]);
        assert!(!peers.receives_own_messages(start), "we have not heard ourselves");
        peers.message_received(word(peers.own_id(), "ours"), start);
        assert!(peers.receives_own_messages(start));
        assert_eq!(count(&peers, start), 1, "we are none of the others");
        let later = start + Duration::from_secs(15);
        assert_eq!((count(&peers, later), peers.receives_own_messages(later)), (0, false));
    }

    #[test]
    fn a_flood_of_nodes_takes_no_more_space() {
        let (peers, start) = (KnownNodes::new("ours".to_owned()), Instant::now());
        for id in 0..PEERS_MAX as u64 + 100 {
            peers.message_received(word(id, "ours"), start);
        }
        assert_eq!(count(&peers, start), PEERS_MAX);
        let later = start + Duration::from_secs(15);
        peers.message_received(word(1_000_000, "ours"), later);
        assert_eq!(count(&peers, later), 1);
    }

    #[test]
    fn what_is_forbidden_is_told_first() {
        let peers = KnownNodes::new(String::new());
        let redis = redis_error("NOPERM");
        peers.publish_finished(Some(redis.clone()));
        peers.receive_failed(redis_error("IO"));
        assert_eq!(peers.pubsub_error(), Some(redis));
        peers.publish_finished(None);
        assert_eq!(peers.pubsub_error().map(|trouble| trouble.is_forbidden), Some(false));
    }

    fn redis_error(code: &str) -> PubSubError {
        PubSubError { reason: code.to_owned(), is_forbidden: code == "NOPERM" }
    }
}
