//! The unencrypted announcement of a node to all nodes on its Redis, also those with
//! another secret: the settings that its limits depend on. It names no subject, no
//! rule and no machine.

use serde::{Deserialize, Serialize};

use super::publish_interval::MESSAGE_MAX;

/// The longest accepted text, in bytes.
const TEXT_MAX: usize = 64;

/// By what settings a node limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    /// Which process it is.
    pub(crate) id: u64,
    /// A keyed hash of the key secret: the same for nodes that name buckets alike.
    pub(crate) deployment: String,
    /// Whether there is a key secret.
    pub(crate) has_secret: bool,
    /// A digest of the rules, overrides and bans.
    pub(crate) rules: String,
    /// What `--nodes` says.
    pub(crate) nodes: u64,
    /// When it was said, by the node's clock.
    pub(crate) unix_ms: u64,
    /// It is published at least every so many seconds.
    pub(crate) every_s: u64,
}

/// Asks every node to announce itself now.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnnounceRequest {
    announce: bool,
}

/// A word in clear.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlainMessage {
    Announcement(Announcement),
    Question,
}

impl Announcement {
    /// As it is said.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl PlainMessage {
    /// The question as it is said.
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
