//! Buckets in Redis or Valkey: one limit for many nodes.
//!
//! All tiers of a request that share a slot go out in one call of one script,
//! which decides on the server's own clock. A request that is not answered in
//! time is decided by each rule's failure policy; no error ever becomes a
//! silent allow.

mod breaker;
mod fallback;
mod key;
mod script;
mod server;
mod shard;
mod target;
mod topology;

pub use breaker::BreakerOptions;
pub use shard::CallError;
pub use target::StoreUrlError;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use self::fallback::Fallback;
use self::key::KeyMaker;
use self::script::{Held, Packed};
use self::shard::ShardOptions;
use self::target::Target;
use self::topology::Topology;
use super::{Answer, Groups, Operation, Store, TIERS_INLINE, Tier};
use crate::decision::{DecidedBy, Decision};
use crate::time::ManualClock;

/// How Redis is reached and how long it is waited for.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://…`, `rediss://…`, `redis+unix://…`, `redis-cluster://…` or
    /// `redis-sentinel://…/name`.
    pub url: String,
    /// A CA in PEM for TLS, in place of the system's.
    pub root_certificate: Option<Vec<u8>>,
    /// How long a decision may take.
    pub deadline: Duration,
    /// When a server is no longer asked.
    pub breaker: BreakerOptions,
    /// The most requests that may wait for one server.
    pub waiting_max: usize,
    /// How many nodes share the limits: each allows a share by itself when
    /// Redis does not answer and the rule's policy is local.
    pub nodes: u64,
    /// The most buckets that are held for that.
    pub max_buckets: usize,
    /// The same on every node: without it, keys cannot be traced to subjects.
    pub key_secret: String,
    /// Keys that people can read, for those who want to.
    pub readable_keys: bool,
}

impl RedisOptions {
    /// The URL without its password.
    #[must_use]
    pub fn shown_url(&self) -> String {
        target::without_password(&self.url)
    }

    /// The usual settings for a server at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            root_certificate: None,
            deadline: Duration::from_millis(15),
            breaker: BreakerOptions::default(),
            waiting_max: 4_096,
            nodes: 1,
            max_buckets: 100_000,
            key_secret: String::new(),
            readable_keys: false,
        }
    }
}

/// What became of the store's requests so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedisStats {
    /// Decided by Redis.
    pub answered: u64,
    /// Decided by policy because the outcome is unknown: late or disconnected.
    pub unknown: u64,
    /// Decided by policy because Redis refused.
    pub refused: u64,
    /// Decided by policy without asking: breaker open, or too many waiting.
    pub not_asked: u64,
}

/// Buckets in Redis.
#[derive(Debug)]
pub struct RedisStore {
    deadline: Duration,
    keys: KeyMaker,
    topology: Topology,
    fallback: Fallback,
    answered: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    not_asked: AtomicU64,
}

/// The tiers of a request that share a slot, by their place in the request.
type Part = SmallVec<[usize; TIERS_INLINE]>;

/// A request on its way through the slots.
struct Ask<'a, 'b> {
    tiers: &'a [Tier<'b>],
    keys: Vec<Vec<u8>>,
    held: SmallVec<[Option<Held>; TIERS_INLINE]>,
    deadline: Instant,
    at_us: u64,
}

impl RedisStore {
    /// A store that connects when it is first asked. Must be made inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the URL is not understood.
    pub fn new(options: RedisOptions) -> Result<Self, StoreUrlError> {
        Self::with_clock(options, None)
    }

    /// A store on a clock that a test sets.
    ///
    /// # Errors
    /// If the URL is not understood.
    pub fn with_clock(options: RedisOptions, clock: Option<Arc<ManualClock>>) -> Result<Self, StoreUrlError> {
        let target = Target::parse(&options.url, options.root_certificate.as_deref())?;
        let RedisOptions { breaker, waiting_max, .. } = options;
        let shards = ShardOptions { breaker, waiting_max, is_cluster: false, clock };
        Ok(Self {
            deadline: options.deadline,
            keys: KeyMaker::new(&options.key_secret, options.readable_keys),
            topology: Topology::new(target, shards),
            fallback: Fallback::new(options.nodes, options.max_buckets),
            answered: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            not_asked: AtomicU64::new(0),
        })
    }

    /// Whether some server is not asked at the moment because it failed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.topology.is_open()
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn stats(&self) -> RedisStats {
        RedisStats {
            answered: self.answered.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            not_asked: self.not_asked.load(Ordering::Relaxed),
        }
    }

    /// To be called about once a second.
    pub fn maintain(&self) {
        self.fallback.maintain();
    }

    /// Asks Redis, within the deadline, whatever the tiers' failure policies.
    ///
    /// # Errors
    /// If it does not answer, or not in time.
    pub async fn try_apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Result<Answer, CallError> {
        let mut ask = Ask {
            tiers,
            keys: tiers.iter().map(|tier| self.keys.key(tier)).collect(),
            held: tiers.iter().map(|_| None).collect(),
            deadline: Instant::now() + self.deadline,
            at_us: 0,
        };
        let all: Part = (0..tiers.len()).collect();
        let parts = self.parts(&ask.keys, &all);
        if operation == Operation::Take && parts.len() > 1 {
            self.take_apart(&mut ask).await?;
        } else {
            for part in &parts {
                self.call_part(operation, &mut ask, part).await?;
            }
        }
        let held: Option<Vec<Held>> = ask.held.into_iter().collect();
        let held = held.ok_or(CallError::Late)?;
        Ok(Answer { decisions: decisions(operation, tiers, &held, ask.at_us), at_us: ask.at_us, by: DecidedBy::Redis })
    }

    /// Takes tiers of different slots: reserves one slot after the other, and
    /// gives back what was reserved if a later one denies. The enforced tiers
    /// first; then, if they pass, each rule in shadow by itself.
    async fn take_apart(&self, ask: &mut Ask<'_, '_>) -> Result<(), CallError> {
        let mut groups: SmallVec<[u8; TIERS_INLINE]> = ask.tiers.iter().map(|tier| tier.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut passes = true;
        for group in groups {
            let members: Part = (0..ask.tiers.len()).filter(|index| ask.tiers[*index].group == group).collect();
            let parts = self.parts(&ask.keys, &members);
            let operation = if passes { Operation::Take } else { Operation::Peek };
            let reserved = self.reserve(operation, ask, &parts).await?;
            if group == 0 {
                passes = reserved;
            }
        }
        Ok(())
    }

    /// Takes part after part; whether all passed. Otherwise nothing is charged
    /// in the end, and the parts after the one that denied are only looked at.
    async fn reserve(
        &self,
        mut operation: Operation,
        ask: &mut Ask<'_, '_>,
        parts: &[Part],
    ) -> Result<bool, CallError> {
        let mut passes = true;
        for (number, part) in parts.iter().enumerate() {
            match self.call_part(operation, ask, part).await {
                Ok(()) => {
                    let is_allowed = |index: &usize| {
                        let held = ask.held[*index].as_ref();
                        held.is_some_and(|held| held.peek(&ask.tiers[*index], ask.at_us).is_allowed())
                    };
                    if operation == Operation::Take && !part.iter().all(is_allowed) {
                        self.put_back(ask, &parts[..number]).await;
                        (passes, operation) = (false, Operation::Peek);
                    }
                }
                Err(error) => {
                    if passes {
                        self.put_back(ask, &parts[..number]).await;
                    }
                    return Err(error);
                }
            }
        }
        Ok(passes)
    }

    /// Tiers by slot, in the order in which the slots first occur.
    fn parts(&self, keys: &[Vec<u8>], members: &Part) -> SmallVec<[Part; 4]> {
        let mut parts: SmallVec<[(u16, Part); 4]> = SmallVec::new();
        for index in members {
            let slot = self.topology.slot(&keys[*index]);
            match parts.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, part)) => part.push(*index),
                None => parts.push((slot, SmallVec::from_iter([*index]))),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// One call for tiers that share a slot; keeps what their buckets held.
    async fn call_part(&self, operation: Operation, ask: &mut Ask<'_, '_>, part: &Part) -> Result<(), CallError> {
        let (now_us, held) = self.call(operation, ask, part).await?;
        ask.at_us = ask.at_us.max(now_us);
        for (index, held) in part.iter().zip(held) {
            ask.held[*index] = Some(held);
        }
        Ok(())
    }

    async fn call(&self, operation: Operation, ask: &Ask<'_, '_>, part: &Part) -> Result<(u64, Vec<Held>), CallError> {
        let tiers: SmallVec<[Tier<'_>; TIERS_INLINE]> = part.iter().map(|index| ask.tiers[*index]).collect();
        let keys: Vec<Vec<u8>> = part.iter().map(|index| ask.keys[*index].clone()).collect();
        let slot = keys.first().map_or(0, |key| self.topology.slot(key));
        let packed = Packed::new(operation, &tiers, keys, |_| true);
        let (now_us, values) = self.topology.call(slot, packed, tiers.len(), ask.deadline).await?;
        let read = |(tier, value)| {
            let unread = || CallError::Refused { reason: format!("an answer that is not understood: {value:?}") };
            Held::read(operation, tier, now_us, value).ok_or_else(unread)
        };
        Ok((now_us, tiers.iter().zip(&values).map(read).collect::<Result<_, _>>()?))
    }

    /// Gives back what was reserved. What cannot be given back in time
    /// over-denies, never over-admits; it is counted.
    async fn put_back(&self, ask: &Ask<'_, '_>, parts: &[Part]) {
        for part in parts {
            if self.call(Operation::Refund, ask, part).await.is_err() {
                self.unknown.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn count(&self, error: &CallError) {
        let counter = match error {
            CallError::Late | CallError::Disconnected { .. } => &self.unknown,
            CallError::Refused { .. } | CallError::Moved { .. } => &self.refused,
            CallError::NotAsked { .. } => &self.not_asked,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Store for RedisStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Answer {
        if tiers.is_empty() {
            return self.fallback.apply(operation, tiers);
        }
        match self.try_apply(operation, tiers).await {
            Ok(answer) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                answer
            }
            Err(error) => {
                self.count(&error);
                self.fallback.apply(operation, tiers)
            }
        }
    }
}

/// What the tiers answer, given what their buckets held.
fn decisions(
    operation: Operation,
    tiers: &[Tier<'_>],
    held: &[Held],
    now_us: u64,
) -> SmallVec<[Decision; TIERS_INLINE]> {
    let tiers_held = || tiers.iter().zip(held);
    match operation {
        Operation::Take => {
            let alone: SmallVec<[Decision; TIERS_INLINE]> =
                tiers_held().map(|(tier, held)| held.decide(tier, now_us)).collect();
            let denied = Groups::denied(tiers, alone.iter().map(Decision::is_allowed));
            let charged = |(decision, (tier, held)): (Decision, (&Tier<'_>, &Held))| {
                if decision.is_allowed() && !denied.is_charged(tier) { held.peek(tier, now_us) } else { decision }
            };
            alone.into_iter().zip(tiers_held()).map(charged).collect()
        }
        Operation::Peek => tiers_held().map(|(tier, held)| held.peek(tier, now_us)).collect(),
        Operation::Refund | Operation::Reset => tiers_held().map(|(tier, held)| held.standing(tier, now_us)).collect(),
    }
}
