//! Health of Redis.
//!
//! It is derived from the results of requests. If there are none yet, or some failed,
//! Redis is probed with a call that charges nothing.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;
use checkdam::store::redis::{CallError, RedisOptions, RedisStats, RedisStore, RedisStoreError, startup_check};
use checkdam::store::{BucketName, FailurePolicy, Operation, Tier};
use checkdam::{Algorithm, Quota, QuotaSpec};

/// How often Redis is probed at the start: a first connection may take longer than
/// the deadline of a decision.
const FIRST_TRIES: u32 = 3;
/// The pause between them.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long the start may wait for it, however patient decisions are.
const FIRST_LIMIT: Duration = Duration::from_secs(1);

/// Redis, and what was last said of it.
#[derive(Debug)]
pub struct MonitoredRedis {
    pub(super) store: RedisStore,
    /// Its URL without the password.
    url: String,
    options: RedisOptions,
    /// A bucket that no rule has: rules have names.
    bucket: BucketName,
    quota: Option<Quota>,
    seen: Mutex<RedisHealth>,
}

#[derive(Debug, Default)]
struct RedisHealth {
    stats: RedisStats,
    /// Whether requests failed at the last poll.
    is_failing: bool,
    /// Whether nothing replied then.
    is_away: bool,
    /// Whether Redis was too far away for the deadline.
    is_too_far: bool,
}

/// Results of requests since the last poll.
#[derive(Debug, Clone, Copy)]
struct RequestOutcomes {
    failed: u64,
    answered: u64,
}

impl MonitoredRedis {
    pub(super) fn new(options: &RedisOptions) -> Result<Self, RedisStoreError> {
        let spec = QuotaSpec::new(1, 1_000_000);
        Ok(Self {
            url: options.shown_url(),
            options: options.clone(),
            bucket: BucketName::new("", 0),
            quota: Quota::new(spec, Algorithm::TokenBucket).ok(),
            seen: Mutex::default(),
            store: RedisStore::new(options.clone())?,
        })
    }

    /// Tries Redis for the first time, and says at once if it cannot be used; what
    /// else is wrong with it is said in a moment. The connection stays: the first
    /// request need not wait for it.
    pub(super) async fn connect(&self) {
        tokio::spawn(log_warnings(self.options.clone()));
        let tried = tokio::time::timeout(FIRST_LIMIT, self.first_probe()).await;
        self.log_round_trip(true);
        let Err(error) = tried.unwrap_or(Err(CallError::TimedOut)) else { return };
        let mut seen = lock(&self.seen);
        (seen.is_failing, seen.is_away) = (true, true);
        tracing::warn!(
            store = self.url,
            %error,
            "Redis cannot be used: rules follow their on_store_failure until it answers; \
             check --store and the server, checkdam doctor says what is wrong"
        );
    }

    /// Call about once a second: logs once when Redis begins to fail, and once when it
    /// replies again. If it `is_needed`, it is probed also without requests.
    pub(super) async fn poll(&self, is_needed: bool) {
        let passed = self.outcomes_since_last();
        let is_failing = lock(&self.seen).is_failing || passed.failed > 0;
        let is_asked = is_failing || is_needed && passed.answered == 0;
        let probed = if is_asked { Some(self.probe().await) } else { None };
        self.log_transitions(passed, probed.as_ref());
        self.log_round_trip(false);
    }

    /// Says how far Redis is: at the start, and when the deadline can no longer be
    /// met, or again.
    fn log_round_trip(&self, is_start: bool) {
        let Some(round_trip) = self.store.round_trip() else { return };
        let (deadline, is_too_far) = (self.store.deadline(), !self.store.is_near_enough());
        let was_too_far = std::mem::replace(&mut lock(&self.seen).is_too_far, is_too_far);
        if is_too_far && !was_too_far {
            tracing::warn!(
                store = self.url,
                ?round_trip,
                ?deadline,
                "the round trip to Redis is too long for the deadline: most decisions follow on_store_failure; move it closer, or \
                 set --store-deadline to three round trips, and Envoy's timeout to more than that"
            );
        } else if is_start || was_too_far && !is_too_far {
            tracing::info!(store = self.url, ?round_trip, ?deadline, "the round trip to Redis fits the deadline");
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        lock(&self.seen).is_failing
    }

    /// Whether no server replied to the last probe.
    pub(super) fn is_unreachable(&self) -> bool {
        lock(&self.seen).is_away
    }

    /// How many nodes share the limits, as the settings say.
    pub(super) const fn nodes(&self) -> u64 {
        self.options.nodes
    }

    /// Tells the other nodes that something has changed.
    pub async fn publish_change(&self) {
        if let Err(error) = self.store.publish_rules_changed().await {
            tracing::debug!(%error, "cannot notify other nodes of a change; they poll for it");
        }
    }

    /// A message whenever another node has changed something.
    pub fn change_notifications(&self) -> tokio::sync::mpsc::Receiver<()> {
        self.store.subscribe_rules_changed()
    }

    async fn first_probe(&self) -> Result<(), CallError> {
        let mut tried = self.probe().await;
        for _ in 1..FIRST_TRIES {
            if tried.is_ok() {
                break;
            }
            tokio::time::sleep(FIRST_PAUSE).await;
            tried = self.probe().await;
        }
        tried
    }

    fn outcomes_since_last(&self) -> RequestOutcomes {
        let stats = self.store.stats();
        let mut seen = lock(&self.seen);
        let failures = |stats: &RedisStats| stats.unknown + stats.refused + stats.not_asked;
        let passed = RequestOutcomes {
            failed: failures(&stats) - failures(&seen.stats),
            answered: stats.answered - seen.stats.answered,
        };
        seen.stats = stats;
        passed
    }

    /// Calls Redis as a decision would, without charging.
    async fn probe(&self) -> Result<(), CallError> {
        // One a second is a quota: there is always one.
        let Some(quota) = &self.quota else { return Ok(()) };
        let tier = Tier {
            quota,
            bucket: &self.bucket,
            subject: b"",
            cost: 1,
            group: 0,
            on_failure: FailurePolicy::Closed,
            lease: None,
        };
        self.store.try_apply(Operation::Peek, &[tier]).await.map(drop)
    }

    fn log_transitions(&self, passed: RequestOutcomes, probed: Option<&Result<(), CallError>>) {
        let RequestOutcomes { failed, answered } = passed;
        let mut seen = lock(&self.seen);
        let refused = probed.and_then(|probed| probed.as_ref().err());
        seen.is_away = answered == 0 && refused.is_some();
        if !seen.is_failing && (failed > 0 || seen.is_away) {
            seen.is_failing = true;
            // What is wrong with it, such as that it is a replica, follows in a moment.
            tokio::spawn(log_warnings(self.options.clone()));
            tracing::warn!(
                store = self.url,
                failed,
                answered,
                breaker_open = self.store.is_open(),
                error = refused.map(tracing::field::display),
                "Redis does not answer: rules follow their on_store_failure; check --store and the server"
            );
        } else if seen.is_failing && failed == 0 && refused.is_none() {
            seen.is_failing = false;
            tracing::info!(store = self.url, answered, "Redis answers again");
        }
    }
}

/// Says what lets limits fail, or will one day.
async fn log_warnings(options: RedisOptions) {
    // An invalid URL was rejected before.
    for (server, finding) in startup_check(&options).await.unwrap_or_default() {
        let remedy = finding.remedy.unwrap_or_default();
        tracing::warn!(server, look = finding.look, seen = finding.seen, remedy, "the store check found a problem");
    }
}
