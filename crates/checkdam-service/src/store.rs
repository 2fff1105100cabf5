//! Opens the store that the settings select.

mod redis_health;

use std::time::Duration;

use checkdam::lease::LeaseStats;
use checkdam::store::redis::{RedisOptions, RedisStats, RedisStore, RedisStoreError};
use checkdam::store::{MemoryOptions, MemoryStore, Operation, Store, TakeTerms, Tier, TierDecisions};

pub use self::redis_health::MonitoredRedis;

/// Where the buckets live.
#[derive(Debug)]
pub enum ConfiguredStore {
    Memory(Box<MemoryStore>),
    Redis(Box<MonitoredRedis>),
}

/// How a store goes.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    kind: &'static str,
    /// Which, for people.
    text: String,
    /// Requests that Redis decided.
    answered: u64,
    /// Requests whose fate in Redis is not known.
    unknown: u64,
    /// Requests that Redis refused.
    refused: u64,
    /// Requests for which it was not asked.
    not_asked: u64,
    /// Cost that was admitted here while it did not answer, and charged to it since.
    charged: u64,
    /// Cost that was admitted here and will not be charged.
    not_charged: u64,
    /// Whether a circuit breaker is open.
    is_open: bool,
    /// Whether it failed some requests when last looked.
    is_failing: bool,
    /// Whether it answered none.
    is_away: bool,
    /// The shortest round trip to Redis lately, to the server farthest away; null if none is known.
    round_trip_us: Option<u64>,
    /// How long a decision may wait for Redis; null if the buckets are in this process.
    deadline_us: Option<u64>,
    /// Whether Redis is too far away for that deadline.
    is_too_far: bool,
    /// What became of prepaid tokens; null if the buckets are in this process.
    leases: Option<LeaseStatus>,
}

/// What became of prepaid tokens since the start.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct LeaseStatus {
    /// Subjects that are spent here now.
    subjects: u64,
    /// Tokens that can be spent here now.
    held: u64,
    /// How often Redis was asked for more.
    asks: u64,
    /// Tokens that it granted.
    granted: u64,
    /// Of those: spent.
    spent: u64,
    /// Of those: given back.
    returned: u64,
    /// Of those: neither, because their time was over.
    lost: u64,
    /// Requests that were denied without asking Redis.
    cached_denials: u64,
}

impl From<LeaseStats> for LeaseStatus {
    fn from(stats: LeaseStats) -> Self {
        let LeaseStats { subjects, held, asks, granted, spent, returned, lost, cached_denials } = stats;
        Self { subjects, held, asks, granted, spent, returned, lost, cached_denials }
    }
}

impl ConfiguredStore {
    pub fn redis_store(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(watched) => Some(&watched.store),
        }
    }

    pub fn status(&self, text: &str) -> StoreStatus {
        let (stats, is_open) = self.request_stats();
        let is_failing = matches!(self, Self::Redis(watched) if watched.is_failing());
        let RedisStats { answered, unknown, refused, not_asked, charged, not_charged, .. } = stats;
        StoreStatus {
            kind: self.kind(),
            text: text.to_owned(),
            answered,
            unknown,
            refused,
            not_asked,
            charged,
            not_charged,
            is_open,
            is_failing,
            is_away: self.is_unreachable(),
            round_trip_us: self.round_trip().map(micros),
            deadline_us: self.deadline().map(micros),
            is_too_far: self.redis_store().is_some_and(|store| !store.is_near_enough()),
            leases: self.leases().map(LeaseStatus::from),
        }
    }

    /// `memory` or `redis`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// What became of requests to Redis, and whether a circuit breaker is open.
    pub fn request_stats(&self) -> (RedisStats, bool) {
        match self {
            Self::Memory(_) => (RedisStats::default(), false),
            Self::Redis(watched) => (watched.store.stats(), watched.store.is_open()),
        }
    }

    pub fn round_trip(&self) -> Option<Duration> {
        self.redis_store().and_then(RedisStore::round_trip)
    }

    /// How long a decision may wait for Redis.
    pub fn deadline(&self) -> Option<Duration> {
        self.redis_store().map(RedisStore::deadline)
    }

    /// What became of prepaid tokens, if buckets are shared.
    pub fn leases(&self) -> Option<LeaseStats> {
        self.redis_store().map(RedisStore::lease_stats)
    }

    /// How many nodes share the limits, as the settings say.
    pub fn nodes(&self) -> u64 {
        match self {
            Self::Memory(_) => 1,
            Self::Redis(watched) => watched.nodes(),
        }
    }

    /// Returns prepaid tokens: no more requests come.
    pub async fn return_leases(&self) {
        if let Some(store) = self.redis_store() {
            store.return_leases().await;
        }
    }

    pub fn memory(max_buckets: usize) -> Self {
        Self::Memory(Box::new(MemoryStore::new(MemoryOptions { max_buckets })))
    }

    pub fn redis(options: &RedisOptions) -> Result<Self, RedisStoreError> {
        Ok(Self::Redis(Box::new(MonitoredRedis::new(options)?)))
    }

    /// Tries it for the first time, and says if it cannot be used.
    pub async fn connect(&self) {
        if let Self::Redis(watched) = self {
            watched.connect().await;
        }
    }

    /// To be called about once a second; if it `is_needed`, it is made sure that
    /// it can be reached.
    pub async fn maintain(&self, is_needed: bool) {
        match self {
            Self::Memory(store) => store.sweep(),
            Self::Redis(watched) => watched.poll(is_needed).await,
        }
    }

    /// Whether no server of it replies.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Redis(watched) if watched.is_unreachable())
    }
}

impl Store for ConfiguredStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        match self {
            Self::Memory(store) => store.apply_now(operation, tiers),
            // On the heap, so that what memory decides does not carry the room for it.
            Self::Redis(watched) => Box::pin(watched.store.apply(operation, tiers)).await,
        }
    }

    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        match self {
            Self::Memory(store) => store.try_apply_now(operation, tiers, answer),
            Self::Redis(watched) => watched.store.try_apply_now(operation, tiers, answer),
        }
    }

    async fn take_on_terms(&self, tiers: &[Tier<'_>], terms: &TakeTerms) -> TierDecisions {
        match self {
            Self::Memory(store) => store.take_on_terms(tiers, terms).await,
            Self::Redis(watched) => watched.store.take_on_terms(tiers, terms).await,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
