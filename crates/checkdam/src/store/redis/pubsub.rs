//! Messages between the nodes that share a Redis, by its publish and subscribe.
//! Best effort: no persistence, no delivery guarantee, so nothing may depend on
//! them.
//!
//! Status messages are sealed if the nodes have a secret: encrypted and authenticated by
//! ChaCha20-Poly1305 (RFC 8439). A client of
//! Redis without the secret can then only replay them; without a secret, any client can
//! read and forge them.

use std::borrow::Cow;
use std::time::Duration;

use chacha20poly1305::aead::{Aead, Generate};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::RedisStore;
use super::script_connection::{connect, find_master, send_command};
use super::target::{Endpoint, Target};

const RULES_CHANNEL: &str = "cd:rules";
pub(super) const NODES_CHANNEL: &str = "cd:nodes";
/// The pause before a lost connection is made again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// A subscription that is silent for this long is tested by PING: otherwise a server
/// that has vanished looks like a channel without messages.
const PING_AFTER: Duration = Duration::from_secs(5);
const PING_LIMIT: Duration = Duration::from_secs(2);
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The maximum number of queued events; more are dropped.
const QUEUE_MAX: usize = 256;

/// What a subscription receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PubSubEvent {
    /// The subscription is active.
    Subscribed,
    /// A node published this, maybe this one.
    Message(Vec<u8>),
    /// It was published without the secret of this node: it may be forged.
    Unsealed(Vec<u8>),
    /// The subscription is lost; it is tried again.
    Disconnected(PubSubError),
}

/// Why a message could not be published, or the channel not subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PubSubError {
    /// The error of Redis.
    pub reason: String,
    /// Whether the login may not use the channel.
    pub is_forbidden: bool,
}

impl PubSubError {
    fn no_random_numbers() -> Self {
        Self { reason: "the system has no random numbers to seal a message with".to_owned(), is_forbidden: false }
    }
}

impl From<&RedisError> for PubSubError {
    fn from(error: &RedisError) -> Self {
        Self { reason: error.to_string(), is_forbidden: error.code() == Some("NOPERM") }
    }
}

/// Publishes this node's status.
#[derive(Debug)]
pub struct Publisher {
    target: Target,
    sealer: Option<Sealer>,
    link: Option<MultiplexedConnection>,
}

impl Publisher {
    /// Publishes to every node that is subscribed; sealed, if there is a secret.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn publish(&mut self, message: &[u8]) -> Result<(), PubSubError> {
        let sealed = match &self.sealer {
            Some(sealer) => Cow::Owned(sealer.seal(message).ok_or_else(PubSubError::no_random_numbers)?),
            None => Cow::Borrowed(message),
        };
        let sent = self.publish_to(NODES_CHANNEL, &sealed).await;
        sent.map(drop).map_err(|error| PubSubError::from(&error))
    }

    /// Publishes what every subscriber can read, whatever its secret; returns how many
    /// subscribers the server had.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn publish_plaintext(&mut self, message: &[u8]) -> Result<u64, PubSubError> {
        self.publish_to(NODES_CHANNEL, message).await.map_err(|error| PubSubError::from(&error))
    }

    async fn publish_to(&mut self, channel: &str, message: &[u8]) -> Result<u64, RedisError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(message);
        if let Some(mut link) = self.link.take()
            && let Ok(reached) = send_command(&mut link, &command).await
        {
            self.link = Some(link);
            return Ok(redis::from_redis_value(reached)?);
        }
        let mut last = None;
        for endpoint in endpoints(&self.target).await? {
            let sent = async {
                let mut link = connect(&endpoint).await?;
                let reached = send_command(&mut link, &command).await?;
                Ok::<_, RedisError>((link, redis::from_redis_value(reached)?))
            };
            match sent.await {
                Ok((link, reached)) => {
                    self.link = Some(link);
                    return Ok(reached);
                }
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(0), Err)
    }
}

impl RedisStore {
    /// Tells the other nodes that the rules have changed.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn publish_rules_changed(&self) -> Result<(), RedisError> {
        self.publisher().publish_to(RULES_CHANNEL, b"").await.map(drop)
    }

    /// One message whenever another node has changed the rules, and one whenever
    /// such a message may have been missed; until the receiver is dropped. Only a
    /// hint: what it speeds up must also happen without it.
    #[must_use]
    pub fn subscribe_rules_changed(&self) -> mpsc::Receiver<()> {
        // One pending hint suffices for all that follow.
        let (sender, receiver) = mpsc::channel(1);
        let map = |event: PubSubEvent| matches!(event, PubSubEvent::Subscribed | PubSubEvent::Message(_)).then_some(());
        tokio::spawn(receive(self.target.clone(), RULES_CHANNEL, sender, map));
        receiver
    }

    /// Publishes this node's status to the others.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher { target: self.target.clone(), sealer: self.sealer.clone(), link: None }
    }

    /// The status messages of all nodes, this one among them; until the receiver is
    /// dropped.
    #[must_use]
    pub fn subscribe(&self) -> mpsc::Receiver<PubSubEvent> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let sealer = self.sealer.clone();
        let map = move |event| match (event, &sealer) {
            (PubSubEvent::Message(message), Some(sealer)) => {
                Some(sealer.open(&message).map_or_else(|| PubSubEvent::Unsealed(message), PubSubEvent::Message))
            }
            (event, _) => Some(event),
        };
        tokio::spawn(receive(self.target.clone(), NODES_CHANNEL, sender, map));
        receiver
    }

    /// Whether status messages are sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    /// The same for all nodes that name buckets alike, and different for others.
    #[must_use]
    pub fn key_fingerprint(&self) -> String {
        self.keys.fingerprint()
    }
}

async fn receive<T: Send>(
    target: Target,
    channel: &str,
    out: mpsc::Sender<T>,
    map: impl Fn(PubSubEvent) -> Option<T> + Send + Sync,
) {
    // A receiver that is too slow misses events.
    let deliver = |event| drop(map(event).map(|message| out.try_send(message)));
    while !out.is_closed() {
        let event = async {
            for endpoint in endpoints(&target).await? {
                // However it ends, the next one is tried.
                if let Err(error) = receive_from(&endpoint, channel, &deliver, &out).await {
                    deliver(PubSubEvent::Disconnected(PubSubError::from(&error)));
                }
            }
            Ok::<_, RedisError>(())
        };
        if let Err(error) = event.await {
            deliver(PubSubEvent::Disconnected(PubSubError::from(&error)));
        }
        tokio::select! {
            () = sleep(RECONNECT_PAUSE) => {}
            () = out.closed() => return,
        }
    }
}

/// Receives messages until the connection is lost or the receiver is dropped.
async fn receive_from<T>(
    endpoint: &Endpoint,
    channel: &str,
    deliver: &(impl Fn(PubSubEvent) + Sync),
    out: &mpsc::Sender<T>,
) -> Result<(), RedisError> {
    let client = endpoint.client()?;
    let connecting = async {
        let mut link = client.get_async_pubsub().await?;
        link.subscribe(channel).await?;
        Ok::<_, RedisError>(link)
    };
    let lost = |reason| RedisError::from((redis::ErrorKind::Io, reason));
    let Ok(link) = timeout(CONNECT_LIMIT, connecting).await else {
        return Err(lost("the connection took too long"));
    };
    let (mut commands, mut messages) = link?.split();
    deliver(PubSubEvent::Subscribed);
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) if message.get_payload_bytes().len() <= MESSAGE_BYTES_MAX => {
                    deliver(PubSubEvent::Message(message.get_payload_bytes().to_vec()));
                }
                Some(_) => {}
                None => return Err(lost("the connection was lost")),
            },
            () = sleep(PING_AFTER) => match timeout(PING_LIMIT, commands.ping::<Value>()).await {
                // An error that the server sent is a reply too.
                Ok(Err(error)) if error.code().is_none() => return Err(error),
                Ok(_) => {}
                Err(_) => return Err(lost("the server no longer answers")),
            },
            () = out.closed() => return Ok(()),
        }
    }
}

/// Servers of which any one will do.
async fn endpoints(target: &Target) -> Result<Vec<Endpoint>, RedisError> {
    match target {
        Target::Single(endpoint) => Ok(vec![endpoint.clone()]),
        Target::Cluster { seeds } => Ok(seeds.clone()),
        Target::Sentinel { sentinels, endpoint, master } => Ok(vec![find_master(sentinels, endpoint, master).await?.0]),
    }
}

/// The bytes of a nonce.
const NONCE_LEN: usize = 12;

/// Seals messages and opens them. A sealed message is its nonce, the ciphertext and the
/// tag.
#[derive(Clone)]
pub(super) struct Sealer(ChaCha20Poly1305);

impl Sealer {
    /// None without a secret.
    pub(super) fn new(secret: &str) -> Option<Self> {
        let key = blake3::derive_key("checkdam 2026 messages between nodes", secret.as_bytes());
        (!secret.is_empty()).then(|| Self(ChaCha20Poly1305::new(&key.into())))
    }

    /// The sealed message; `None` if the system has no random numbers.
    ///
    /// Nonces are random: a thousand nodes that each publish once a second need 100 years
    /// for a chance of one in ten thousand that two are equal.
    pub(super) fn seal(&self, message: &[u8]) -> Option<Vec<u8>> {
        let nonce = Nonce::try_generate().ok()?;
        let ciphertext = self.0.encrypt(&nonce, message).ok()?;
        Some([nonce.as_slice(), &ciphertext].concat())
    }

    /// The message, if a node with the same secret sealed it.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_LEN>()?;
        self.0.decrypt(&Nonce::from(*nonce), ciphertext).ok()
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Sealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_opened_and_made_only_with_the_secret() {
        assert!(Sealer::new("").is_none());
        let (ours, theirs) = (Sealer::new("ours").unwrap(), Sealer::new("theirs").unwrap());
        for message in [b"".as_slice(), b"user:42", &[7; 40_000]] {
            let sealed = ours.seal(message).unwrap();
            assert_eq!(ours.open(&sealed).as_deref(), Some(message));
            assert_eq!(theirs.open(&sealed), None);
            assert!(message.len() != 7 || !sealed.windows(4).any(|part| part == b"user"));
            for at in [0, NONCE_LEN - 1, sealed.len() - 1] {
                let mut forged = sealed.clone();
                forged[at] ^= 1;
                assert_eq!(ours.open(&forged), None, "byte {at}");
            }
            assert_eq!(ours.open(&sealed[..sealed.len() - 1]), None);
        }
        assert_eq!(ours.open(b"{}"), None);
        assert_ne!(ours.seal(b"one"), ours.seal(b"one"), "a nonce is never used twice");
    }

    /// Nodes of different versions read each other's messages: this one was sealed by ring.
    #[test]
    fn the_form_of_a_sealed_message_is_stable() {
        let hex = b"7477656c76652062797465739659b13da991a0bc8a41954122d3c2317921f784b09399";
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let sealed: Vec<u8> = hex.chunks(2).map(byte).collect();
        assert_eq!(Sealer::new("ours").unwrap().open(&sealed).as_deref(), Some(b"user:42".as_slice()));
    }
}
