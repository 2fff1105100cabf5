//! A queue that drains at a steady rate: it answers *when*, or refuses.
//!
//! The state and the arithmetic are the token bucket's: what a token bucket
//! owes is the time that the queue needs to drain. `burst` is its length.

use super::token_bucket::{self, Bucket, State};
use crate::decision::Decision;
use crate::quota::Quota;

/// Joins the queue if there is room and the wait is not too long, and says how
/// long it is.
#[must_use]
pub fn decide(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let (decision, kept) = match shorter(quota, cost) {
        Some(shorter) => token_bucket::decide(&shorter, state, now_us, cost),
        None => token_bucket::decide(quota, state, now_us, cost),
    };
    (delayed(quota, state, now_us, decision), kept)
}

/// What joining would be answered, without joining.
#[must_use]
pub fn peek(quota: &Quota, state: State, now_us: u64, cost: u64) -> Decision {
    let decision = match shorter(quota, cost) {
        Some(shorter) => token_bucket::peek(&shorter, state, now_us, cost),
        None => token_bucket::peek(quota, state, now_us, cost),
    };
    delayed(quota, state, now_us, decision)
}

/// The queue as a request sees it whose wait is bounded below the queue's length:
/// it ends where the request itself would end that waits as long as it may.
#[inline]
fn shorter(quota: &Quota, cost: u64) -> Option<Quota> {
    let capacity = quota.ceiling(cost);
    (capacity < quota.capacity).then_some(Quota { capacity, ..*quota })
}

fn delayed(quota: &Quota, before: State, now_us: u64, mut decision: Decision) -> Decision {
    if decision.is_allowed() {
        let queue = Bucket::at(quota, before, now_us);
        // More is owed only to a request that costs nothing and joins no queue.
        decision.delay_us = queue.micros(queue.owed.min(quota.queue_max));
    }
    decision
}
