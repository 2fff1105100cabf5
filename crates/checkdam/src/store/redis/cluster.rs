//! Redis Cluster: its servers, and the slots that each of them holds.
//!
//! One task at a time refreshes the slot map, independent of any request and its
//! deadline, and at a bounded rate however many requests fail.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{RedisError, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::call_error::CallError;
use super::reply::RequestReply;
use super::script::ScriptCall;
use super::script_connection::{Connector, connect, send_command};
use super::server_queue::{Shard, ShardOptions};
use super::target::Endpoint;
use super::topology::SLOTS;

/// Initial pause before a cluster that is being resharded is called again; doubled
/// each time.
const CHANGING_PAUSE: Duration = Duration::from_millis(1);
/// More redirections than this are a loop.
const REDIRECTIONS_MAX: usize = 8;
/// How long one server may take to return the slot map.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(250);
/// The least time between two such questions.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
const NO_SHARD: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<Endpoint>,
    options: ShardOptions,
    table: ArcSwap<SlotTable>,
    /// Locked while the slot map is replaced.
    replacing: Mutex<()>,
    is_refreshing: AtomicBool,
    /// The server to query first the next time, so that a stale one is not queried for
    /// ever.
    turn: AtomicUsize,
    /// When the slot map was last refreshed, and whether a server replied.
    learned: watch::Sender<Option<(Instant, bool)>>,
}

#[derive(Debug)]
struct SlotTable {
    shards: Vec<(String, Arc<Shard>)>,
    /// A slot's index in `shards`, or none.
    slots: Box<[AtomicU16]>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Endpoint>, options: ShardOptions) -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU16::new(NO_SHARD)).collect();
        Self {
            seeds,
            options,
            table: ArcSwap::from_pointee(SlotTable { shards: Vec::new(), slots }),
            replacing: Mutex::default(),
            is_refreshing: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            learned: watch::Sender::new(None),
        }
    }

    /// Whether the breaker of some server is open, or no server is known.
    pub(super) fn is_open(&self) -> bool {
        let table = self.table.load();
        let has_failed = self.learned.borrow().is_some_and(|(_, has_answered)| !has_answered);
        table.shards.iter().any(|(_, shard)| shard.is_open()) || (table.shards.is_empty() && has_failed)
    }

    /// The longest round trip of the servers that were measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.table.load().shards.iter().filter_map(|(_, shard)| shard.round_trip()).max()
    }

    /// Follows redirections until the deadline: a call that was redirected was not
    /// executed.
    pub(super) async fn call(
        self: &Arc<Self>,
        slot: u16,
        packed: ScriptCall,
        tiers: usize,
        deadline: Instant,
    ) -> Result<RequestReply, CallError> {
        let mut asked: Option<Arc<Shard>> = None;
        let mut pause = CHANGING_PAUSE;
        for _ in 0..REDIRECTIONS_MAX {
            let is_asking = asked.is_some();
            let shard = match asked.take() {
                Some(shard) => shard,
                None => self.shard_of(slot, deadline).await?,
            };
            let error = match shard.call(packed.clone(), tiers, is_asking, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match &error {
                CallError::Moved { to: Some(address), is_ask: true, .. } => asked = Some(self.shard_at(address)),
                CallError::Moved { to: Some(address), .. } => {
                    self.move_slot(slot, address);
                    self.start_refresh();
                }
                CallError::Moved { .. } => {
                    self.start_refresh();
                    sleep_until(deadline.min(Instant::now() + pause)).await;
                    pause *= 2;
                }
                CallError::Failed { .. } | CallError::TryAgain { .. } => return Err(error),
                // A server that fails may have been replaced: for the next request.
                _ => {
                    self.start_refresh();
                    return Err(error);
                }
            }
            if Instant::now() >= deadline {
                return Err(error);
            }
        }
        Err(CallError::Refused { reason: format!("slot {slot} is sent from server to server") })
    }

    /// The server of a slot; refreshes the slot map if it is unknown.
    async fn shard_of(self: &Arc<Self>, slot: u16, deadline: Instant) -> Result<Arc<Shard>, CallError> {
        if let Some(shard) = self.known_shard_of(slot) {
            return Ok(shard);
        }
        let mut learned = self.learned.subscribe();
        if self.start_refresh() {
            // Either way the slot map has the result.
            let _ = timeout_at(deadline, learned.changed()).await;
        }
        let unknown = || CallError::Unreachable { reason: format!("no server is known to hold slot {slot}") };
        self.known_shard_of(slot).ok_or_else(unknown)
    }

    fn known_shard_of(&self, slot: u16) -> Option<Arc<Shard>> {
        let table = self.table.load();
        let place = usize::from(table.slots[usize::from(slot)].load(Ordering::Relaxed));
        table.shards.get(place).map(|(_, shard)| Arc::clone(shard))
    }

    /// The shard at an address, a new one if it is unknown.
    fn shard_at(&self, address: &str) -> Arc<Shard> {
        let known = |table: &SlotTable| table.shards.iter().find(|(at, _)| at == address).map(|(_, it)| Arc::clone(it));
        if let Some(shard) = known(&self.table.load()) {
            return shard;
        }
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load();
        if let Some(shard) = known(&table) {
            return shard;
        }
        let shard = self.connect_to(address);
        let mut shards = table.shards.clone();
        shards.push((address.to_owned(), Arc::clone(&shard)));
        let slots = table.slots.iter().map(|place| AtomicU16::new(place.load(Ordering::Relaxed))).collect();
        self.table.store(Arc::new(SlotTable { shards, slots }));
        shard
    }

    fn connect_to(&self, address: &str) -> Arc<Shard> {
        Arc::new(Shard::new(Connector::Direct(self.endpoint(address)), self.options.clone()))
    }

    /// A node's address with our login; a node that announces no host is where
    /// we entered.
    fn endpoint(&self, address: &str) -> Endpoint {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
        let host = if host.is_empty() { self.seeds[0].host() } else { host.to_owned() };
        self.seeds[0].at(&host, port.parse().unwrap_or(6379))
    }

    fn move_slot(&self, slot: u16, address: &str) {
        self.shard_at(address);
        let table = self.table.load();
        if let Some(place) = table.shards.iter().position(|(at, _)| at == address) {
            table.slots[usize::from(slot)].store(place as u16, Ordering::Relaxed);
        }
    }

    /// Has the slots learned anew, unless that was done just now; whether
    /// someone is at it.
    fn start_refresh(self: &Arc<Self>) -> bool {
        let is_due = self.learned.borrow().is_none_or(|(at, _)| at.elapsed() >= REFRESH_PAUSE);
        if is_due && !self.is_refreshing.swap(true, Ordering::AcqRel) {
            let cluster = Arc::clone(self);
            tokio::spawn(async move {
                let has_answered = cluster.refresh_slots().await;
                cluster.learned.send_replace(Some((Instant::now(), has_answered)));
                cluster.is_refreshing.store(false, Ordering::Release);
            });
        }
        is_due
    }

    /// Queries one server after the other until one replies: healthy ones first, then the
    /// others, then the configured ones.
    async fn refresh_slots(&self) -> bool {
        let table = self.table.load_full();
        let mut known: Vec<&(String, Arc<Shard>)> = table.shards.iter().collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let middle = turn % known.len().max(1);
        known.rotate_left(middle);
        known.sort_by_key(|(_, shard)| shard.is_open());
        let known: Vec<Endpoint> = known.into_iter().map(|(address, _)| self.endpoint(address)).collect();
        for endpoint in known.iter().chain(&self.seeds) {
            // A server outside a cluster has no slots.
            if let Ok(Ok(ranges)) = timeout(REFRESH_TIMEOUT, fetch_slots(endpoint)).await
                && !ranges.is_empty()
            {
                self.replace(&ranges);
                return true;
            }
        }
        false
    }

    /// Replaces the slot map. Servers without slots are dropped.
    fn replace(&self, ranges: &[(usize, usize, String)]) {
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.table.load();
        let mut shards: Vec<(String, Arc<Shard>)> = Vec::new();
        let slots: Box<[AtomicU16]> = (0..SLOTS).map(|_| AtomicU16::new(NO_SHARD)).collect();
        for (first, last, address) in ranges {
            let place = shards.iter().position(|(at, _)| at == address).unwrap_or_else(|| {
                let known = before.shards.iter().find(|(at, _)| at == address);
                let shard = known.map_or_else(|| self.connect_to(address), |(_, shard)| Arc::clone(shard));
                shards.push((address.clone(), shard));
                shards.len() - 1
            });
            for slot in slots.iter().take(last + 1).skip(*first) {
                slot.store(place as u16, Ordering::Relaxed);
            }
        }
        self.table.store(Arc::new(SlotTable { shards, slots }));
    }
}

/// Asks one server which server holds which slots: first, last, address.
async fn fetch_slots(endpoint: &Endpoint) -> Result<Vec<(usize, usize, String)>, RedisError> {
    let mut link = connect(endpoint).await?;
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let ranges = parse_slots(send_command(&mut link, &command).await?, endpoint)?;
    let range = |range: SlotRange| (range.first.into(), range.last.into(), format!("{}:{}", range.host, range.port));
    Ok(ranges.into_iter().map(range).collect())
}

/// Slots and the master that holds them.
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) replicas: usize,
}

/// The reply of `asked` to `CLUSTER SLOTS`. A node that announces no host has that of
/// `asked`.
pub(super) fn parse_slots(reply: Value, asked: &Endpoint) -> Result<Vec<SlotRange>, RedisError> {
    let mut ranges = Vec::new();
    for range in redis::from_redis_value::<Vec<Vec<Value>>>(reply)? {
        let [first, last, Value::Array(node), replicas @ ..] = range.as_slice() else { continue };
        let [host, port, ..] = node.as_slice() else { continue };
        let host: Option<String> = redis::from_redis_value(host.clone())?;
        ranges.push(SlotRange {
            first: redis::from_redis_value(first.clone())?,
            last: redis::from_redis_value(last.clone())?,
            host: host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.host()),
            port: redis::from_redis_value(port.clone())?,
            replicas: replicas.len(),
        });
    }
    Ok(ranges)
}
