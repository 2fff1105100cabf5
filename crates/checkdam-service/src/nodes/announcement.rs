//! The unencrypted announcement of a node to all nodes on its Redis, also those with
//! another secret: the settings that its limits depend on. It names no subject, no
//! rule and no machine.

use std::collections::BTreeMap;
use std::time::Duration;

use checkdam::store::redis::{PubSubEvent, RedisOptions, RedisStore, RedisStoreError};
use checkdam::time::unix_us;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::publish_interval::MESSAGE_MAX;
use super::settings_mismatch::AnnouncedNode;

/// How long announcements are waited for.
const LIMIT: Duration = Duration::from_millis(1_500);
/// The longest accepted text, in bytes.
const TEXT_MAX: usize = 64;

/// By what settings a node limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Which process it is.
    pub id: u64,
    /// A keyed hash of the key secret: the same for nodes that name buckets alike.
    pub deployment: String,
    /// Whether there is a key secret.
    pub has_secret: bool,
    /// A digest of the rules, overrides and bans.
    pub rules: String,
    /// What `--nodes` says.
    pub nodes: u64,
    /// When it was said, by the node's clock.
    pub unix_ms: u64,
    /// It is published at least every so many seconds.
    pub every_s: u64,
}

/// Asks every node to announce itself now.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnnounceRequest {
    announce: bool,
}

/// A message in clear text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlainMessage {
    Announcement(Announcement),
    Question,
}

impl Announcement {
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl PlainMessage {
    pub(super) fn announce_request() -> Vec<u8> {
        serde_json::to_vec(&AnnounceRequest { announce: true }).unwrap_or_default()
    }

    /// Decodes a message, if it is an announcement.
    pub(super) fn decode(word: &[u8]) -> Option<Self> {
        if word.len() > MESSAGE_MAX {
            return None;
        }
        if let Ok(AnnounceRequest { announce: true }) = serde_json::from_slice(word) {
            return Some(Self::Question);
        }
        let announcement: Announcement = serde_json::from_slice(word).ok()?;
        let texts = [&announcement.deployment, &announcement.rules];
        let is_sound =
            texts.iter().all(|text| text.len() <= TEXT_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()));
        is_sound.then_some(Self::Announcement(announcement))
    }
}

/// The nodes that announce themselves on a Redis, for `checkdam doctor`; none where the login may not ask.
pub async fn survey(options: &RedisOptions) -> Result<Vec<AnnouncedNode>, RedisStoreError> {
    let is_cluster = options.url.contains("-cluster://");
    // Without a secret all plaintext messages are received.
    let store = RedisStore::new(RedisOptions { key_secret: String::new(), ..options.clone() })?;
    let (mut heard, mut publisher) = (store.subscribe(), store.publisher());
    let deadline = Instant::now() + LIMIT;
    let (mut nodes, mut expected) = (BTreeMap::new(), usize::MAX);
    while nodes.len() < expected {
        match timeout_at(deadline, heard.recv()).await {
            Ok(Some(PubSubEvent::Subscribed)) => {
                let Ok(subscribers) = publisher.publish_plaintext(&PlainMessage::announce_request()).await else {
                    break;
                };
                // This process is one of the subscribers. In a cluster other servers do not count
                // theirs.
                let others = usize::try_from(subscribers).unwrap_or(usize::MAX).saturating_sub(1);
                expected = if is_cluster { usize::MAX } else { others };
            }
            Ok(Some(PubSubEvent::Message(word))) => {
                if let Some(PlainMessage::Announcement(announcement)) = PlainMessage::decode(&word) {
                    let here_ms = i64::try_from(unix_us() / 1_000).unwrap_or(i64::MAX);
                    let ahead_ms = i64::try_from(announcement.unix_ms).unwrap_or(i64::MAX).saturating_sub(here_ms);
                    nodes.insert(announcement.id, AnnouncedNode { announcement, ahead_ms });
                }
            }
            Ok(Some(PubSubEvent::Disconnected(_)) | None) | Err(_) => break,
            Ok(Some(_)) => {}
        }
    }
    Ok(nodes.into_values().collect())
}
