//! Requests announcements from all nodes on a Redis, for `checkdam doctor`.

use std::collections::BTreeMap;
use std::time::Duration;

use checkdam::store::redis::{PubSubEvent, RedisOptions, RedisStore, StoreUrlError};
use checkdam::time::unix_us;
use tokio::time::{Instant, timeout_at};

use super::announcement::PlainMessage;
use super::settings_mismatch::AnnouncedNode;

/// How long announcements are waited for.
const LIMIT: Duration = Duration::from_millis(1_500);

/// The nodes that answer on a Redis; none where the login may not ask.
///
/// # Errors
/// If the URL is not understood.
pub(crate) async fn survey(options: &RedisOptions) -> Result<Vec<AnnouncedNode>, StoreUrlError> {
    let is_cluster = options.url.contains("-cluster://");
    // Without a secret all plaintext messages are received.
    let store = RedisStore::new(RedisOptions { key_secret: String::new(), ..options.clone() })?;
    let (mut heard, mut publisher) = (store.subscribe(), store.publisher());
    let deadline = Instant::now() + LIMIT;
    let (mut nodes, mut expected) = (BTreeMap::new(), usize::MAX);
    while nodes.len() < expected {
        match timeout_at(deadline, heard.recv()).await {
            Ok(Some(PubSubEvent::Subscribed)) => {
                let Ok(told) = publisher.publish_plaintext(&PlainMessage::announce_request()).await else { break };
                // This process is one of the subscribers. In a cluster other servers do not count
                // theirs.
                let others = usize::try_from(told).unwrap_or(usize::MAX).saturating_sub(1);
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
