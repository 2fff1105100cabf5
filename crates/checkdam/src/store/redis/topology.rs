//! Which server holds which keys, and how a request finds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{RedisError, Value};
use tokio::time::{Instant, sleep};

use super::script::Packed;
use super::server::{Connector, ask, open};
use super::shard::{CallError, Reply, Shard, ShardOptions};
use super::target::{Endpoint, Target};

const SLOTS: usize = 16_384;
/// How long to wait before a cluster that is changing is asked again.
const CHANGING_PAUSE: Duration = Duration::from_millis(1);

/// The servers, and which of them holds what.
#[derive(Debug)]
pub(super) enum Topology {
    /// One server holds everything.
    One(Shard),
    /// Keys are spread over servers by their slot.
    Cluster(Box<Cluster>),
}

/// A cluster's servers and its slots.
#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<Endpoint>,
    options: ShardOptions,
    shards: Mutex<HashMap<String, Arc<Shard>>>,
    slots: ArcSwap<Vec<Option<Arc<Shard>>>>,
    /// Held while the slots are being asked for: one asks, the rest go on.
    asking: tokio::sync::Mutex<()>,
}

impl Topology {
    pub(super) fn new(target: Target, mut options: ShardOptions) -> Self {
        match target {
            Target::Single(endpoint) => Self::One(Shard::new(Connector::Direct(endpoint), options)),
            Target::Sentinel { sentinels, endpoint, master } => {
                Self::One(Shard::new(Connector::Sentinel { sentinels, endpoint, master }, options))
            }
            Target::Cluster { seeds } => {
                options.is_cluster = true;
                Self::Cluster(Box::new(Cluster {
                    seeds,
                    options,
                    shards: Mutex::default(),
                    slots: ArcSwap::from_pointee(vec![None; SLOTS]),
                    asking: tokio::sync::Mutex::default(),
                }))
            }
        }
    }

    /// The slot of a key: where all slots are one server's, 0.
    pub(super) fn slot(&self, key: &[u8]) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => slot(key),
        }
    }

    /// Sends a request whose keys share a slot.
    pub(super) async fn call(
        &self,
        slot: u16,
        packed: Packed,
        tiers: usize,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        match self {
            Self::One(shard) => shard.call(packed, tiers, false, deadline).await,
            Self::Cluster(cluster) => cluster.call(slot, packed, tiers, deadline).await,
        }
    }

    /// Whether some server is not asked because it failed.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::One(shard) => shard.is_open(),
            Self::Cluster(cluster) => {
                cluster.shards.lock().unwrap_or_else(PoisonError::into_inner).values().any(|shard| shard.is_open())
            }
        }
    }
}

impl Cluster {
    /// Follows redirections until the deadline: nothing was done where the
    /// answer is one.
    async fn call(&self, slot: u16, packed: Packed, tiers: usize, deadline: Instant) -> Result<Reply, CallError> {
        let mut asked: Option<Arc<Shard>> = None;
        loop {
            let is_asking = asked.is_some();
            let shard = match asked.take() {
                Some(shard) => shard,
                None => match self.slots.load()[usize::from(slot)].clone() {
                    Some(shard) => shard,
                    None => {
                        self.learn_slots(deadline).await?;
                        let unknown = || CallError::Refused { reason: format!("no server holds slot {slot}") };
                        self.slots.load()[usize::from(slot)].clone().ok_or_else(unknown)?
                    }
                },
            };
            let result = shard.call(packed.clone(), tiers, is_asking, deadline).await;
            let Err(error) = result else { return result };
            match &error {
                CallError::Moved { to: Some(address), is_ask: true, .. } => asked = Some(self.shard(address)),
                CallError::Moved { to: Some(address), .. } => {
                    self.move_slot(slot, address);
                }
                CallError::Moved { .. } => {
                    sleep(CHANGING_PAUSE).await;
                    // A failure to learn shows when the deadline comes.
                    let _ = self.learn_slots(deadline).await;
                }
                // A server that fails may have been replaced: for the next request.
                _ => {
                    self.forget(slot, &shard);
                    return Err(error);
                }
            }
            if Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// The shard at an address, a new one if it is not known.
    fn shard(&self, address: &str) -> Arc<Shard> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
            let host = if host.is_empty() { self.seeds[0].host() } else { host.to_owned() };
            let endpoint = self.seeds[0].at(&host, port.parse().unwrap_or(6379));
            Arc::new(Shard::new(Connector::Direct(endpoint), self.options.clone()))
        };
        Arc::clone(shards.entry(address.to_owned()).or_insert_with(make))
    }

    fn move_slot(&self, slot: u16, address: &str) {
        let shard = self.shard(address);
        self.slots.rcu(|slots| {
            let mut slots = Vec::clone(slots);
            slots[usize::from(slot)] = Some(Arc::clone(&shard));
            slots
        });
    }

    /// Makes the next request for the slot ask where it is.
    fn forget(&self, slot: u16, failed: &Arc<Shard>) {
        self.slots.rcu(|slots| {
            let mut slots = Vec::clone(slots);
            let entry = &mut slots[usize::from(slot)];
            if entry.as_ref().is_some_and(|known| Arc::ptr_eq(known, failed)) {
                *entry = None;
            }
            slots
        });
    }

    /// Asks any server that answers which server holds which slot.
    async fn learn_slots(&self, deadline: Instant) -> Result<(), CallError> {
        let learning = async {
            let before = self.slots.load_full();
            let _asking = self.asking.lock().await;
            if !Arc::ptr_eq(&before, &self.slots.load_full()) {
                return Ok(());
            }
            let known: Vec<String> =
                self.shards.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
            let known = known.iter().filter_map(|address| {
                let (host, port) = address.rsplit_once(':')?;
                Some(self.seeds[0].at(host, port.parse().ok()?))
            });
            let mut last = CallError::Disconnected { reason: "no server of the cluster answered".to_owned() };
            for endpoint in self.seeds.iter().cloned().chain(known) {
                match self.ask_slots(&endpoint).await {
                    Ok(slots) => {
                        self.slots.store(Arc::new(slots));
                        return Ok(());
                    }
                    Err(error) => last = CallError::Disconnected { reason: error.to_string() },
                }
            }
            Err(last)
        };
        tokio::time::timeout_at(deadline, learning).await.unwrap_or(Err(CallError::Late))
    }

    async fn ask_slots(&self, endpoint: &Endpoint) -> Result<Vec<Option<Arc<Shard>>>, RedisError> {
        let mut link = open(endpoint).await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges: Vec<Vec<Value>> = redis::from_redis_value(ask(&mut link, &command).await?)?;
        let mut slots = vec![None; SLOTS];
        for range in ranges {
            let [first, last, node, ..] = range.as_slice() else { continue };
            let (first, last): (usize, usize) =
                (redis::from_redis_value(first.clone())?, redis::from_redis_value(last.clone())?);
            let Value::Array(node) = node else { continue };
            let [host, port, ..] = node.as_slice() else { continue };
            let host: Option<String> = redis::from_redis_value(host.clone())?;
            let port: u16 = redis::from_redis_value(port.clone())?;
            let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| endpoint.host());
            let shard = self.shard(&format!("{host}:{port}"));
            for slot in slots.iter_mut().take(last + 1).skip(first) {
                *slot = Some(Arc::clone(&shard));
            }
        }
        Ok(slots)
    }
}

/// The slot of a key: CRC16 (XMODEM) of what stands in its first braces.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inner = &key[open + 1..];
        let close = inner.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &inner[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 })
    });
    crc % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_redis() {
        // The check value of CRC16/XMODEM is 0x31C3.
        assert_eq!(slot(b"123456789"), 0x31C3 % 16_384);
        assert_eq!(slot(b"cd:{abc}:x"), slot(b"cd:{abc}:y"));
        assert_eq!(slot(b"{abc}"), slot(b"abc"));
        assert_eq!(slot(b"{}abc"), slot(b"{}abc"));
    }
}
