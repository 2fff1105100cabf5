//! Leaky bucket as a queue: requests are delayed to a steady rate, or denied when the
//! queue is full.
//!
//! State and arithmetic are the token bucket's: what a token bucket owes is the time
//! that the queue needs to drain. `burst` is the length of the queue.

use super::token_bucket::{self, BucketAt, State};
use crate::decision::Decision;
use crate::quota::Quota;

/// Joins the queue if there is room and the delay is not too long, and returns the
/// delay. The queue ends at the request with the longest permitted delay.
pub fn decide(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let (decision, kept) = token_bucket::decide_below(quota, quota.ceiling(cost), state, now_us, cost);
    (delayed(quota, state, now_us, decision), kept)
}

/// The decision of joining, without joining.
pub fn peek(quota: &Quota, state: State, now_us: u64, cost: u64) -> Decision {
    let decision = token_bucket::peek_below(quota, quota.ceiling(cost), state, now_us, cost);
    delayed(quota, state, now_us, decision)
}

fn delayed(quota: &Quota, before: State, now_us: u64, mut decision: Decision) -> Decision {
    if decision.is_allowed() {
        let queue = BucketAt::at(quota, before, now_us);
        // A request that costs nothing joins no queue: more may be owed than may be waited for.
        decision.delay_us = queue.micros(queue.owed.min(quota.queue_max));
    }
    decision
}
