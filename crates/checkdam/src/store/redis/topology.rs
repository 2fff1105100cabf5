//! Routes requests to the servers that hold their keys.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use tokio::time::Instant;

use super::call_error::CallError;
use super::cluster::Cluster;
use super::key::Keys;
use super::reply::RequestReply;
use super::script::ScriptCall;
use super::script_connection::Connector;
use super::server_queue::{Shard, ShardOptions};
use super::target::Target;

pub(super) const SLOTS: usize = 16_384;

/// The servers, and which of them holds what.
#[derive(Debug)]
pub(super) enum Topology {
    /// One server holds everything.
    One(Shard),
    /// Keys are spread over servers by their slot.
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(super) fn new(target: Target, mut options: ShardOptions) -> Self {
        match target {
            Target::Single(endpoint) => Self::One(Shard::new(Connector::Direct(endpoint), options)),
            Target::Sentinel { sentinels, endpoint, master } => {
                Self::One(Shard::new(Connector::Sentinel { sentinels, endpoint, master }, options))
            }
            Target::Cluster { seeds } => {
                options.batch_max = 1;
                Self::Cluster(Arc::new(Cluster::new(seeds, options)))
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

    /// The slot that all keys share, if they do.
    pub(super) fn only_slot(&self, keys: &Keys) -> Option<u16> {
        let first = self.slot(keys.get(0));
        let is_only = matches!(self, Self::One(_)) || keys.iter().skip(1).all(|key| self.slot(key) == first);
        is_only.then_some(first)
    }

    /// Sends a request whose keys share a slot.
    pub(super) fn call(
        &self,
        slot: u16,
        packed: ScriptCall,
        tiers: usize,
        deadline: Instant,
    ) -> impl Future<Output = Result<RequestReply, CallError>> {
        // A cluster's future is on the heap, so that one server's stays small.
        match self {
            Self::One(shard) => Either::Left(shard.call(packed, tiers, false, deadline)),
            Self::Cluster(cluster) => Either::Right(Box::pin(cluster.call(slot, packed, tiers, deadline))),
        }
    }

    /// The longest round trip of the servers that were measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::One(shard) => shard.round_trip(),
            Self::Cluster(cluster) => cluster.round_trip(),
        }
    }

    /// Whether the breaker of some server is open.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::One(shard) => shard.is_open(),
            Self::Cluster(cluster) => cluster.is_open(),
        }
    }
}

/// The slot of a key: CRC16 (XMODEM) of its hash tag, the text in its first braces.
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
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"cd:{abc}:x"), slot(b"cd:{abc}:y"));
        assert_eq!(slot(b"{abc}"), slot(b"abc"));
        assert_eq!(slot(b"{}abc"), slot(b"{}abc"));
    }
}
