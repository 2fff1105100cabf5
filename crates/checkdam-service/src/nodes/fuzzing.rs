//! Entry points of the fuzz targets: messages of other nodes.

use std::time::Duration;

use tokio::time::Instant;

use super::announcement::PlainMessage;
use super::known_nodes::KnownNodes;
use super::message::NodeMessage;
use super::publish_interval::PublishInterval;
use super::settings_mismatch::{AnnouncedNode, differences};
use crate::heavy_hitters::Ranking;
use crate::telemetry::{TopOf, TopWindow};

/// Decodes a status message, handles it as a node does, and encodes it again.
pub fn receive_status(word: &[u8]) -> Option<Vec<u8>> {
    let message = NodeMessage::decode(word)?;
    let (peers, now) = (KnownNodes::new(message.deployment.clone()), Instant::now());
    peers.message_received(message.clone(), now);
    let list = |message: &NodeMessage, _: Duration| {
        message.top.as_ref().map(|top| top.list(TopOf::Limited, TopWindow::Hour).ranked())
    };
    let mut ranking = Ranking::default();
    for list in peers.map_live(now, list).into_iter().flatten().flat_map(|list| [list.clone(), list]) {
        ranking.add_list(list.names, list.missing_at_most, list.total);
    }
    ranking.ranked();
    Some(message.encode(PublishInterval::for_nodes(1)))
}

/// Decodes an unencrypted message and handles it as a node does; whether it is one.
pub fn receive_plaintext(word: &[u8]) -> bool {
    match PlainMessage::decode(word) {
        Some(PlainMessage::Announcement(announcement)) => {
            let (peers, now) = (KnownNodes::new(String::new()), Instant::now());
            peers.announcement_received(announcement.clone(), now, 1_800_000_000_000);
            differences(&AnnouncedNode { announcement, ahead_ms: 0 }, &peers.all_announced(now));
            true
        }
        Some(PlainMessage::Question) => true,
        None => false,
    }
}
