//! Words between nodes that share a Redis, by its publish and subscribe: said
//! once, kept by nobody, and missed by who is not there.
//!
//! Nobody may rely on them. What nodes tell of how they go is sealed if they
//! have a secret; without one whoever can reach the Redis can read all of it and
//! say anything.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::RedisStore;
use super::sealed_box::Sealer;
use super::server::{ask, find_master, open};
use super::target::{Endpoint, Target};

/// Under this name nodes hear of each other's changes.
const RULES: &str = "cd:rules";
/// Under this name nodes tell how they go.
pub(super) const NODES: &str = "cd:nodes";
/// The pause before a lost connection is made again.
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// A subscription on which nothing is heard for so long is tested by PING: without
/// it a server that has vanished looks like one on which nobody speaks.
const PING_AFTER: Duration = Duration::from_secs(5);
/// How long the answer may take.
const PING_LIMIT: Duration = Duration::from_secs(2);
/// The longest word that is heard, in bytes.
const WORD_MAX: usize = 64 << 10;
/// The words that wait for who hears them; more are missed.
const WAITING_MAX: usize = 256;

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// From now on everything is heard.
    Joined,
    /// Somebody said this, maybe oneself.
    Said(Vec<u8>),
    /// Somebody said this without the secret of this node: it may be made up.
    Unsealed(Vec<u8>),
    /// Nothing is heard; it is tried again.
    Nothing(Unheard),
}

/// Why nodes cannot hear of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheard {
    /// What Redis said.
    pub reason: String,
    /// Whether the login may not use the channel.
    pub is_forbidden: bool,
}

impl From<&RedisError> for Unheard {
    fn from(error: &RedisError) -> Self {
        Self { reason: error.to_string(), is_forbidden: error.code() == Some("NOPERM") }
    }
}

/// Tells the other nodes how this one goes.
#[derive(Debug)]
pub struct Speaker {
    target: Target,
    sealer: Option<Sealer>,
    link: Option<MultiplexedConnection>,
}

impl Speaker {
    /// Says something to every node that listens.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn say(&mut self, word: &[u8]) -> Result<(), Unheard> {
        let sealed = self.sealer.as_ref().map(|sealer| sealer.seal(word));
        let said = self.publish(NODES, sealed.as_deref().unwrap_or(word)).await;
        said.map(drop).map_err(|error| Unheard::from(&error))
    }

    /// Says something that every subscriber can read, whatever its secret; how many
    /// heard it on the server that was told.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn say_in_clear(&mut self, word: &[u8]) -> Result<u64, Unheard> {
        self.publish(NODES, word).await.map_err(|error| Unheard::from(&error))
    }

    async fn publish(&mut self, channel: &str, word: &[u8]) -> Result<u64, RedisError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(word);
        if let Some(mut link) = self.link.take()
            && let Ok(reached) = ask(&mut link, &command).await
        {
            self.link = Some(link);
            return Ok(redis::from_redis_value(reached)?);
        }
        let mut last = None;
        for endpoint in endpoints(&self.target).await? {
            let told = async {
                let mut link = open(&endpoint).await?;
                let reached = ask(&mut link, &command).await?;
                Ok::<_, RedisError>((link, redis::from_redis_value(reached)?))
            };
            match told.await {
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
    /// Tells the other nodes that something has changed.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn announce(&self) -> Result<(), RedisError> {
        self.speaker().publish(RULES, b"").await.map(drop)
    }

    /// One message whenever another node tells of a change, and one whenever
    /// telling may have been missed; until the receiver is dropped. A hint and
    /// no more: whatever it speeds up must also happen without it.
    #[must_use]
    pub fn hints(&self) -> mpsc::Receiver<()> {
        // A hint that waits stands for all that follow.
        let (sender, receiver) = mpsc::channel(1);
        let hear = |heard: Heard| matches!(heard, Heard::Joined | Heard::Said(_)).then_some(());
        tokio::spawn(listen(self.target.clone(), RULES, sender, hear));
        receiver
    }

    /// What tells the other nodes how this one goes.
    #[must_use]
    pub fn speaker(&self) -> Speaker {
        Speaker { target: self.target.clone(), sealer: self.sealer.clone(), link: None }
    }

    /// What nodes, this one among them, tell of how they go; until the receiver
    /// is dropped.
    #[must_use]
    pub fn listen(&self) -> mpsc::Receiver<Heard> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let sealer = self.sealer.clone();
        let hear = move |heard| match (heard, &sealer) {
            (Heard::Said(word), Some(sealer)) => {
                Some(sealer.open(&word).map_or_else(|| Heard::Unsealed(word), Heard::Said))
            }
            (heard, _) => Some(heard),
        };
        tokio::spawn(listen(self.target.clone(), NODES, sender, hear));
        receiver
    }

    /// Whether what nodes tell each other can be read by them alone.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    /// The same for all nodes that name buckets alike, and different for others.
    #[must_use]
    pub fn deployment(&self) -> String {
        self.keys.fingerprint()
    }
}

async fn listen<T: Send>(
    target: Target,
    channel: &str,
    out: mpsc::Sender<T>,
    hear: impl Fn(Heard) -> Option<T> + Send + Sync,
) {
    // Who is too slow misses words.
    let tell = |heard| drop(hear(heard).map(|word| out.try_send(word)));
    while !out.is_closed() {
        let heard = async {
            for endpoint in endpoints(&target).await? {
                // However it ends, the next one is tried.
                if let Err(error) = listen_at(&endpoint, channel, &tell, &out).await {
                    tell(Heard::Nothing(Unheard::from(&error)));
                }
            }
            Ok::<_, RedisError>(())
        };
        if let Err(error) = heard.await {
            tell(Heard::Nothing(Unheard::from(&error)));
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = out.closed() => return,
        }
    }
}

/// Hears what is said until the connection is lost or nobody wants to know.
async fn listen_at<T>(
    endpoint: &Endpoint,
    channel: &str,
    tell: &(impl Fn(Heard) + Sync),
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
    tell(Heard::Joined);
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) if message.get_payload_bytes().len() <= WORD_MAX => {
                    tell(Heard::Said(message.get_payload_bytes().to_vec()));
                }
                Some(_) => {}
                None => return Err(lost("the connection was lost")),
            },
            () = sleep(PING_AFTER) => match timeout(PING_LIMIT, commands.ping::<Value>()).await {
                // An error that the server sent is an answer too.
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
