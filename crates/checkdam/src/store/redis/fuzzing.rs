//! Entry points of the fuzz targets: replies of Redis and sealed messages, as bytes.

use super::pubsub::Sealer;
use super::reply::ScriptReply;
use crate::algorithm::token_bucket::LeaseRequest;
use crate::decision::{Decision, FailurePolicy};
use crate::quota::Quota;
use crate::store::{BucketName, Tier};

/// Decodes a reply of the script in RESP, to a request with one tier for each quota, and decides
/// by it: take, peek and refund of each tier. `None` if it is no reply of the script.
#[must_use]
pub fn decide_by_reply(resp: &[u8], quotas: &[Quota], cost: u64) -> Option<Vec<[Decision; 3]>> {
    let bucket = BucketName::new("fuzzing", 0);
    let mut reply = ScriptReply::read(redis::parse_redis_value(resp).ok()?)?;
    let request = reply.next(quotas.len());
    let tiers = quotas.iter().enumerate().map(|(place, quota)| {
        let (subject, on_failure) = (&b""[..], FailurePolicy::Closed);
        let tier = Tier { quota, bucket: &bucket, subject, cost, group: 0, on_failure, lease: None };
        let held = request.held(place, quota)?;
        Some([held.decide(&tier), held.peek(&tier), held.standing(&tier)])
    });
    tiers.collect()
}

/// Decodes a reply to a lease: tokens granted and left, and the ledger after it.
#[must_use]
pub fn lease_by_reply(resp: &[u8], quota: &Quota, wanted: u64) -> Option<(u64, u64, u64)> {
    let mut reply = ScriptReply::read(redis::parse_redis_value(resp).ok()?)?;
    let ask = LeaseRequest { wanted, least: 1, length_us: 1_000_000 };
    let request = reply.next(1);
    let _ = request.back();
    let (grant, ledger) = request.lease(quota, ask)?;
    Some((grant.granted, grant.left, ledger))
}

/// Seals a message between nodes.
#[must_use]
pub fn seal(secret: &str, message: &[u8]) -> Option<Vec<u8>> {
    Sealer::new(secret)?.seal(message)
}

/// Opens a sealed message.
#[must_use]
pub fn open(secret: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    Sealer::new(secret)?.open(sealed)
}
