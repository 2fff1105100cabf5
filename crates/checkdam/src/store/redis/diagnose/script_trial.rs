//! Runs the script as the store does, on keys of its own.

use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

use super::Finding;
use super::latency::ms;
use super::probe::{Probe, REPLY_TIMEOUT, is_denied};
use crate::quota::{Algorithm, Quota};
use crate::store::redis::call_error::CallError;
use crate::store::redis::{RedisOptions, RedisStore, RedisStoreError, script};
use crate::store::{BucketName, FailurePolicy, Operation, Tier};

/// A store on the examined server with keys under the doctor's prefix.
pub(super) struct ScriptTrial {
    store: RedisStore,
}

impl ScriptTrial {
    pub(super) fn new(options: &RedisOptions) -> Result<Self, RedisStoreError> {
        let options = RedisOptions { deadline: Some(REPLY_TIMEOUT), readable_keys: true, ..options.clone() };
        Ok(Self { store: RedisStore::new(options)? })
    }

    /// The key of a subject, and the slot that it is in.
    pub(super) fn key_and_slot(&self, subject: &str) -> (String, u16) {
        let quota = quota(Algorithm::TokenBucket);
        let key = quota.map(|quota| self.store.keys.key(&tier(&quota, &BucketName::new("doctor", 0), subject)));
        let key = key.unwrap_or_default();
        let slot = self.store.topology.slot(&key);
        (String::from_utf8_lossy(&key).into_owned(), slot)
    }

    /// Takes, peeks, refunds and resets, with every algorithm.
    pub(super) async fn decide(&self, subject: &str) -> Finding {
        const LOOK: &str = "decisions";
        let mut longest = Duration::ZERO;
        for algorithm in Algorithm::ALL {
            let Some(quota) = quota(algorithm) else { continue };
            let bucket = BucketName::new("doctor", 0);
            let tier = tier(&quota, &bucket, subject);
            for operation in [Operation::Take, Operation::Peek, Operation::Refund, Operation::Reset] {
                let asked = Instant::now();
                if let Err(error) = self.store.try_apply(operation, &[tier]).await {
                    // Whatever the result, nothing should remain.
                    let _ = self.store.try_apply(Operation::Reset, &[tier]).await;
                    return Finding::problem(LOOK, format!("{}: {error}", algorithm.name()), remedy(&error));
                }
                longest = longest.max(asked.elapsed());
            }
        }
        Finding::ok(LOOK, format!("every algorithm decides; the longest took {}", ms(longest)))
    }
}

/// Loads the script, and calls it by its hash.
pub(super) async fn script(probe: &mut Probe) -> Finding {
    const LOOK: &str = "script";
    // A deadline of 1970 makes the script return without doing anything.
    let by_hash = ["EVALSHA", script::hash(), "0", "1", ""];
    let whole = ["EVAL", script::code(), "0", "1", ""];
    let is_unknown = |error: &RedisError| error.code() == Some("NOSCRIPT");
    let loading = Instant::now();
    let was_known = match probe.command(&by_hash).await {
        Err(error) if is_unknown(&error) => {
            if let Err(error) = probe.command(&whole).await {
                return refused(LOOK, &error);
            }
            false
        }
        Err(error) => return refused(LOOK, &error),
        Ok(_) => true,
    };
    let (load, asked) = (loading.elapsed(), Instant::now());
    match probe.command(&by_hash).await {
        Ok(_) if was_known => Finding::ok(LOOK, format!("known already; a call takes {}", ms(asked.elapsed()))),
        Ok(_) => Finding::ok(LOOK, format!("loaded in {}; a call takes {}", ms(load), ms(asked.elapsed()))),
        Err(error) if is_unknown(&error) => {
            let remedy = "find out who flushes scripts: every decision then sends the whole script";
            Finding::warning(LOOK, "the server forgets the script at once", remedy)
        }
        Err(error) => refused(LOOK, &error),
    }
}

fn refused(look: &'static str, error: &RedisError) -> Finding {
    let remedy = if is_denied(error) {
        "see permissions"
    } else {
        "without its script checkdam cannot decide: allow EVAL and EVALSHA, and see the server's log"
    };
    Finding::problem(look, error.to_string(), remedy)
}

fn remedy(error: &CallError) -> String {
    let text = error.to_string();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["OOM"]) {
        "see memory: the server is full and refuses to write"
    } else if says(&["READONLY"]) {
        "name the master: a replica refuses to write"
    } else if says(&["MISCONF"]) {
        "see persistence: the server refuses to write until a snapshot succeeds"
    } else if says(&["NOREPLICAS"]) {
        "see replicas: fewer are connected than min-replicas-to-write asks for"
    } else if says(&["MOVED", "CLUSTERDOWN", "moved"]) {
        "write redis-cluster:// for a cluster, and see slots"
    } else {
        "read the server's log; each rule's on_store_failure answers until this works"
    }
    .to_owned()
}

fn quota(algorithm: Algorithm) -> Option<Quota> {
    Quota::new("10/s".parse().ok()?, algorithm).ok()
}

fn tier<'a>(quota: &'a Quota, bucket: &'a BucketName, subject: &'a str) -> Tier<'a> {
    let on_failure = FailurePolicy::Closed;
    Tier { quota, bucket, subject: subject.as_bytes(), cost: 1, group: 0, on_failure, lease: None }
}
