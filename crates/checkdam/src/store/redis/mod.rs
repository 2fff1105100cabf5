//! The Redis store (Redis or Valkey): limits shared by many nodes.
//!
//! All tiers of a request that share a slot are decided by one call of one Lua
//! script, on the server's clock. A request without a reply in time is decided by
//! each rule's failure policy; no error ever becomes a silent allow. Rules with a
//! lease are decided on this node while it has prepaid tokens.

mod breaker;
mod call_error;
mod cluster;
mod cross_slot;
mod deferred_charges;
mod diagnose;
mod fallback;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod in_flight_window;
mod key;
mod leases;
#[cfg(test)]
mod lua_parity_tests;
mod pubsub;
mod reply;
mod run_to_completion;
mod script;
mod script_connection;
mod server_queue;
mod target;
mod topology;

pub use breaker::BreakerOptions;
pub use call_error::CallError;
pub use diagnose::{Diagnosis, Finding, Level, Role, ServerDiagnosis, diagnose, startup_check};
pub use pubsub::{PubSubError, PubSubEvent, Publisher};
pub use target::{StoreUrlError, redacted_url};

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior};

use self::cross_slot::{CrossSlotCall, RecentDenials};
use self::deferred_charges::send_deferred_charges;
use self::fallback::Fallback;
use self::key::{KeyMaker, Keys};
use self::leases::Leases;
use self::reply::BucketState;
use self::run_to_completion::{OwnedTiers, RunToCompletion};
use self::script::ScriptCall;
use self::server_queue::ShardOptions;
use self::target::Target;
use self::topology::Topology;
use super::{Decisions, DeniedGroups, Operation, Store, TIERS_INLINE, TakeTerms, Tier, TierDecisions};
use crate::decision::{DecidedBy, Decision, Verdict};
use crate::lease::LeaseStats;
use crate::time::ManualClock;

/// The bounds of the default deadline. The upper one leaves time for the round trip
/// between Envoy, which waits 20 ms, and this node.
const DEADLINE_MIN: Duration = Duration::from_millis(15);
const DEADLINE_MAX: Duration = Duration::from_millis(18);

/// How often what has expired is freed.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// Why a store cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisStoreError {
    /// The URL or the certificate is invalid.
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    /// The store was made outside a tokio runtime.
    #[error("the Redis store needs a tokio runtime: make it inside one, for example in #[tokio::main]")]
    NoRuntime,
    /// The URL asks for TLS, and the process has not chosen its cryptography.
    #[error("{}", target::NO_CRYPTO_PROVIDER)]
    NoCryptoProvider,
}

/// A client certificate with its private key, both in PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate, followed by the intermediate ones of its chain.
    pub chain: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ClientCertificate(…)")
    }
}

/// How Redis is reached and how long it is waited for.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://…`, `rediss://…`, `redis+unix://…`, `redis-cluster://…` or
    /// `redis-sentinel://…/name`.
    pub url: String,
    /// A CA in PEM for TLS, in place of the system's.
    pub root_certificate: Option<Vec<u8>>,
    /// The certificate by which the server knows this client, for TLS.
    pub client_certificate: Option<ClientCertificate>,
    /// How long a decision may take. None: it follows the measured round trip, see
    /// [`RedisStore::deadline`].
    pub deadline: Option<Duration>,
    /// When calls to a server are stopped.
    pub breaker: BreakerOptions,
    /// The maximum number of queued requests per server.
    pub waiting_max: usize,
    /// The most requests that one call carries.
    pub batch_max: usize,
    /// The number of nodes that share the limits: each allows its share by itself when
    /// Redis does not reply and the rule's policy is `local`.
    pub nodes: u64,
    /// The maximum number of buckets for that.
    pub max_buckets: usize,
    /// The same on every node: without it, keys cannot be traced to subjects, and
    /// messages between nodes can be neither read nor forged.
    pub key_secret: String,
    /// What every key begins with after `cd:`, without braces: deployments with
    /// different prefixes share a server and count apart. The same on every node.
    pub key_prefix: String,
    /// Whether keys contain subjects in clear, for debugging.
    pub readable_keys: bool,
}

impl RedisOptions {
    /// The URL without its password.
    #[must_use]
    pub fn shown_url(&self) -> String {
        target::redacted_url(&self.url)
    }

    /// Whether a store could be opened with these options. Does not connect.
    ///
    /// # Errors
    /// If the URL or the certificate is invalid.
    pub fn validate(&self) -> Result<(), StoreUrlError> {
        Target::of_options(self).map(drop)
    }

    /// How long a decision may take on a server so far away.
    fn deadline_for(&self, round_trip: Option<Duration>) -> Duration {
        deadline(self.deadline, round_trip)
    }

    /// The usual settings for a server at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            root_certificate: None,
            client_certificate: None,
            deadline: None,
            breaker: BreakerOptions::default(),
            waiting_max: 4_096,
            batch_max: 32,
            nodes: 1,
            max_buckets: 100_000,
            key_secret: String::new(),
            key_prefix: String::new(),
            readable_keys: false,
        }
    }
}

/// What became of the store's requests so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedisStats {
    /// Decided by Redis.
    pub answered: u64,
    /// Decided by policy because the result is unknown: late or disconnected; and
    /// reservations that may not have been refunded. Never too few.
    pub unknown: u64,
    /// Decided by policy because Redis returned an error.
    pub refused: u64,
    /// Decided by policy without asking: breaker open, no connection, or too
    /// many waiting.
    pub not_asked: u64,
    /// Cost that was admitted or recorded here while Redis did not reply, and was charged to
    /// it since.
    pub charged: u64,
    /// Cost that was admitted or recorded here and will not be charged: too many buckets
    /// waited, or it is unknown whether it was.
    pub not_charged: u64,
}

/// The same, while they are counted.
#[derive(Debug, Default)]
struct StatCounters {
    answered: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    not_asked: AtomicU64,
}

impl StatCounters {
    fn add(&self, error: &CallError) {
        let counter = match error {
            CallError::TimedOut | CallError::Disconnected { .. } => &self.unknown,
            CallError::NotSent { .. } | CallError::Unreachable { .. } => &self.not_asked,
            _ => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the buckets of a request held; none where that no longer matters.
type BucketStates = SmallVec<[Option<BucketState>; TIERS_INLINE]>;

/// Buckets in Redis. A clone is the same store.
#[derive(Debug, Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

/// The parts of a store, shared with work that outlives its caller.
#[derive(Debug)]
#[doc(hidden)]
pub struct Inner {
    runtime: Handle,
    target: Target,
    /// As it was set, if it was.
    deadline: Option<Duration>,
    keys: KeyMaker,
    /// None without a secret.
    sealer: Option<pubsub::Sealer>,
    topology: Arc<Topology>,
    recent_denials: RecentDenials,
    fallback: Arc<Fallback>,
    leases: Arc<Leases>,
    counts: Arc<StatCounters>,
}

impl Deref for RedisStore {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl RedisStore {
    /// A store that connects on first use. It runs on the tokio runtime in which it is
    /// made, and needs nothing to be called from time to time.
    ///
    /// # Errors
    /// If the URL is invalid, if there is no tokio runtime here, or if it needs TLS and the
    /// program has installed no cryptography provider of rustls.
    pub fn new(options: RedisOptions) -> Result<Self, RedisStoreError> {
        Self::with_clock(options, None)
    }

    /// A store on a clock that a test sets.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_clock(options: RedisOptions, clock: Option<Arc<ManualClock>>) -> Result<Self, RedisStoreError> {
        let target = Target::of_options(&options)?;
        if target.is_tls() && !target::has_crypto_provider() {
            return Err(RedisStoreError::NoCryptoProvider);
        }
        let runtime = Handle::try_current().map_err(|_| RedisStoreError::NoRuntime)?;
        let RedisOptions { deadline, breaker, waiting_max, batch_max, nodes, max_buckets, .. } = options;
        let RedisOptions { key_secret, key_prefix, readable_keys, .. } = options;
        let leases = Arc::new(Leases::new(clock.clone()));
        let fallback = Arc::new(Fallback::new(nodes, max_buckets, clock.clone()));
        let shards = ShardOptions { breaker, waiting_max, batch_max: batch_max.max(1), clock };
        let inner = Inner {
            runtime,
            deadline,
            keys: KeyMaker::new(&key_secret, &key_prefix, readable_keys),
            sealer: pubsub::Sealer::new(&key_secret),
            topology: Arc::new(Topology::new(target.clone(), shards)),
            target,
            recent_denials: RecentDenials::new(),
            fallback,
            leases,
            counts: Arc::default(),
        };
        let inner = Arc::new(inner);
        inner.runtime.spawn(maintain_while_used(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Whether the breaker of some server is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.topology.is_open()
    }

    /// The shortest round trip of the last seconds, to the most distant server; none
    /// without a reply yet.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.topology.round_trip()
    }

    /// How long a decision may take. The configured value; otherwise 15 ms, or three
    /// round trips if that is more, and at most 18 ms: by default Envoy waits 20 ms for a
    /// rate limit service.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        match self.deadline {
            Some(deadline) => deadline,
            None => deadline(None, self.topology.round_trip()),
        }
    }

    /// Whether the round trip leaves enough of the deadline for Redis to decide most
    /// requests. True while it is unknown.
    #[must_use]
    pub fn is_near_enough(&self) -> bool {
        self.round_trip().is_none_or(|round_trip| is_near_enough(round_trip, self.deadline()))
    }

    /// What became of the requests so far.
    #[must_use]
    pub fn stats(&self) -> RedisStats {
        let (charged, not_charged) = self.fallback.charges.counts();
        RedisStats {
            charged,
            not_charged,
            answered: self.counts.answered.load(Ordering::Relaxed),
            unknown: self.counts.unknown.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
            not_asked: self.counts.not_asked.load(Ordering::Relaxed),
        }
    }

    /// What became of the tokens that were prepaid so far.
    #[must_use]
    pub fn lease_stats(&self) -> LeaseStats {
        self.leases.stats()
    }

    /// Calls Redis, within the deadline, without failure policies.
    ///
    /// # Errors
    /// If it does not reply in time.
    pub async fn try_apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> Result<TierDecisions, CallError> {
        self.try_apply_by(operation, tiers, Instant::now() + self.deadline()).await
    }

    async fn try_apply_by(
        &self,
        operation: Operation,
        tiers: &[Tier<'_>],
        deadline: Instant,
    ) -> Result<TierDecisions, CallError> {
        if tiers.is_empty() {
            return Ok(self.fallback.apply(operation, tiers, &self.keys));
        }
        let keys = self.keys.keys(tiers);
        let held = if let Some(slot) = self.topology.only_slot(&keys) {
            match self.call(operation, tiers, keys, (slot, deadline)).await {
                Err(CallError::TryAgain { .. }) if tiers.len() > 1 => {
                    self.apply_cross_slot(operation, tiers, deadline).await?
                }
                result => result?,
            }
        } else {
            self.apply_cross_slot(operation, tiers, deadline).await?
        };
        let at_us = held.iter().flatten().map(|held| held.at_us).max().unwrap_or(0);
        let mut decisions = decisions(operation, tiers, &held);
        for ((tier, decision), held) in tiers.iter().zip(&decisions).zip(&held) {
            if held.is_some() {
                self.fallback.learn(tier, decision);
            }
        }
        if operation == Operation::Reset {
            self.fallback.forget(tiers, &self.keys);
        }
        send_deferred_charges(&self.topology, &self.fallback);
        let cut_off = held.iter().flatten().fold(0, |sum: u64, held| sum.saturating_add(held.cut_off));
        let mut by = DecidedBy::Redis;
        if operation == Operation::Record && held.iter().any(Option::is_none) {
            by = self.record_missing(tiers, &held, &mut decisions);
        }
        Ok(TierDecisions { decisions, at_us, by, cut_off })
    }

    /// Queues a record of the tiers whose servers did not reply.
    fn record_missing(&self, tiers: &[Tier<'_>], held: &BucketStates, decisions: &mut Decisions) -> DecidedBy {
        let is_missing: SmallVec<[bool; TIERS_INLINE]> = held.iter().map(Option::is_none).collect();
        let missing: Vec<Tier<'_>> =
            tiers.iter().zip(&is_missing).filter(|(_, is_missing)| **is_missing).map(|(tier, _)| *tier).collect();
        let answer = self.fallback.apply(Operation::Record, &missing, &self.keys);
        let replaced = decisions.iter_mut().zip(&is_missing).filter(|(_, is_missing)| **is_missing);
        for ((decision, _), local) in replaced.zip(&answer.decisions) {
            *decision = *local;
        }
        answer.by
    }

    /// Asks slot by slot, to the end even if the caller leaves: what was reserved in
    /// one slot must not stay charged if another denies.
    fn apply_cross_slot(
        &self,
        operation: Operation,
        tiers: &[Tier<'_>],
        deadline: Instant,
    ) -> RunToCompletion<Result<BucketStates, CallError>> {
        let (store, owned) = (self.clone(), OwnedTiers::new(tiers));
        RunToCompletion::new(&self.runtime, async move {
            let tiers = owned.tiers();
            let mut call = CrossSlotCall::new(&store, &tiers, deadline);
            call.run(operation).await?;
            Ok(call.held)
        })
    }

    /// One call for tiers that share a slot: what their buckets held.
    async fn call(
        &self,
        operation: Operation,
        tiers: &[Tier<'_>],
        keys: Keys,
        (slot, deadline): (u16, Instant),
    ) -> Result<BucketStates, CallError> {
        let packed = ScriptCall::new(operation, tiers, keys, || self.fallback.now_us());
        let reply = self.topology.call(slot, packed, tiers.len(), deadline).await?;
        let unread = || CallError::Failed { reason: format!("an answer that is not understood: {reply:?}") };
        let held = |(place, tier): (usize, &Tier<'_>)| {
            let held = match operation {
                Operation::Record => reply.recorded(place, tier.quota),
                _ => reply.held(place, tier.quota),
            };
            held.map(Some).ok_or_else(unread)
        };
        tiers.iter().enumerate().map(held).collect()
    }
}

/// Tiers with a lease are decided on this node while it has prepaid tokens:
///
/// - A peek is decided by Redis, and tokens held here count as remaining.
/// - A refund of a tier that any node has leased is ignored: the bucket could
///   otherwise owe less than nodes hold, and too much would be admitted.
/// - A reset discards what is held here. Other nodes may still spend what they
///   hold, for as long as a lease lasts.
impl Store for RedisStore {
    async fn apply(&self, operation: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        if tiers.is_empty() {
            return self.fallback.apply(operation, tiers, &self.keys);
        }
        if operation == Operation::Record {
            // The shared buckets are charged, also of leased tiers.
            return self.record(tiers).await;
        }
        if tiers.iter().all(|tier| tier.lease.is_none()) {
            return self.apply_direct(operation, tiers, Instant::now() + self.deadline()).await;
        }
        let mut answer = TierDecisions::new();
        if self.try_apply_now(operation, tiers, &mut answer) {
            return answer;
        }
        // On the heap, so that what needs no waiting has a small future.
        match operation {
            Operation::Take => Box::pin(self.take_leased(tiers)).await,
            Operation::Refund => Box::pin(self.refund_leased(tiers)).await,
            Operation::Peek | Operation::Charge | Operation::Record | Operation::Reset => {
                let deadline = Instant::now() + self.deadline();
                let mut answer = Box::pin(self.apply_direct(operation, tiers, deadline)).await;
                for (tier, decision) in
                    tiers.iter().zip(answer.decisions.iter_mut()).filter(|(tier, _)| tier.lease.is_some())
                {
                    match operation {
                        Operation::Reset => self.leases.forget(tier),
                        _ => self.leases.add_held(tier, decision),
                    }
                }
                answer
            }
        }
    }

    /// All steps complete even if the caller is dropped.
    fn take_on_terms(&self, tiers: &[Tier<'_>], terms: &TakeTerms) -> impl Future<Output = TierDecisions> + Send {
        let (store, owned, terms) = (self.clone(), OwnedTiers::new(tiers), terms.clone());
        RunToCompletion::new(&self.runtime, async move {
            let tiers = owned.tiers();
            let mut answer = store.apply(terms.operation(), &tiers).await;
            let refunds = terms.refunds(&tiers, &answer);
            if !refunds.is_empty() {
                store.apply(Operation::Refund, &refunds).await;
            }
            let records = terms.records(&tiers, &answer);
            if !records.is_empty() {
                let recorded = match answer.by {
                    // Redis did not reply: it is charged later, and not waited for again.
                    DecidedBy::Local | DecidedBy::Policy => {
                        store.fallback.apply(Operation::Record, &records, &store.keys)
                    }
                    // The caller waits for the verdict: no longer than for a take.
                    _ => store.apply_direct(Operation::Record, &records, Instant::now() + store.deadline()).await,
                };
                answer.cut_off = recorded.cut_off;
            }
            answer
        })
    }

    #[inline]
    fn try_apply_now(&self, operation: Operation, tiers: &[Tier<'_>], answer: &mut TierDecisions) -> bool {
        let is_leased = operation == Operation::Take && tiers.first().is_some_and(|tier| tier.lease.is_some());
        is_leased && self.try_take_now(tiers, answer)
    }
}

/// The shortest timeout of a record.
const RECORD_LIMIT: Duration = Duration::from_millis(250);

impl RedisStore {
    /// Records what was used, even if the caller leaves. No request waits for it, so it has
    /// more time than a decision: a late reply would lead to a second charge.
    fn record(&self, tiers: &[Tier<'_>]) -> RunToCompletion<TierDecisions> {
        let (store, owned) = (self.clone(), OwnedTiers::new(tiers));
        RunToCompletion::new(&self.runtime, async move {
            let deadline = Instant::now() + store.deadline().max(RECORD_LIMIT);
            store.apply_direct(Operation::Record, &owned.tiers(), deadline).await
        })
    }

    /// Redis decides, or the failure policies if it cannot.
    async fn apply_direct(&self, operation: Operation, tiers: &[Tier<'_>], deadline: Instant) -> TierDecisions {
        match self.try_apply_by(operation, tiers, deadline).await {
            Ok(answer) => {
                self.counts.answered.fetch_add(1, Ordering::Relaxed);
                answer
            }
            Err(error) => {
                self.counts.add(&error);
                self.fallback.apply(operation, tiers, &self.keys)
            }
        }
    }
}

/// Frees what has expired, as long as the store exists.
async fn maintain_while_used(store: Weak<Inner>) {
    let mut ticks = tokio::time::interval(MAINTAIN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(store) = store.upgrade() else { return };
        store.fallback.maintain();
        store.leases.maintain();
    }
}

/// The deadline that was set, or the one that follows from the round trip.
fn deadline(set: Option<Duration>, round_trip: Option<Duration>) -> Duration {
    let following = || (3 * round_trip.unwrap_or_default()).clamp(DEADLINE_MIN, DEADLINE_MAX);
    set.unwrap_or_else(following)
}

/// Whether a call may take half as long again as the round trip and still be in time.
fn is_near_enough(round_trip: Duration, deadline: Duration) -> bool {
    round_trip + round_trip / 2 <= deadline
}

/// The decisions of the tiers, from what their buckets held.
fn decisions(operation: Operation, tiers: &[Tier<'_>], held: &[Option<BucketState>]) -> Decisions {
    let each = |decide: fn(&BucketState, &Tier<'_>) -> Decision| -> Decisions {
        let one = |(tier, held): (&Tier<'_>, &Option<BucketState>)| {
            held.as_ref().map_or_else(|| not_decided(tier), |held| decide(held, tier))
        };
        tiers.iter().zip(held).map(one).collect()
    };
    match operation {
        Operation::Take => {
            let mut decisions = each(BucketState::decide);
            let denied = DeniedGroups::new(tiers, decisions.iter().map(Decision::is_allowed));
            for ((decision, tier), held) in decisions.iter_mut().zip(tiers).zip(held) {
                if let Some(held) = held
                    && decision.is_allowed()
                    && !denied.is_charged(tier)
                {
                    *decision = held.peek(tier);
                }
            }
            decisions
        }
        Operation::Peek => each(BucketState::peek),
        Operation::Record => each(BucketState::after_record),
        Operation::Refund | Operation::Charge | Operation::Reset => each(BucketState::standing),
    }
}

/// The decision of a tier without a reply that no longer matters, because another
/// denied.
fn not_decided(tier: &Tier<'_>) -> Decision {
    let limit = tier.quota.limit();
    Decision { remaining: 0, ..Decision::undecided(limit, Verdict::Allowed) }
}
