//! A queue that drains at a steady rate: it answers *when*, or refuses.
//!
//! The state and the arithmetic are the token bucket's: what a token bucket
//! owes is the time that the queue needs to drain. `burst` is its length.

use super::token_bucket::{self, Bucket, State};
use crate::decision::Decision;
use crate::quota::Quota;

/// Joins the queue if there is room, and says for how long to wait in it.
#[must_use]
pub fn decide(quota: &Quota, state: State, now_us: u64, cost: u64) -> (Decision, State) {
    let (decision, kept) = token_bucket::decide(quota, state, now_us, cost);
    (delayed(quota, state, now_us, decision), kept)
}

/// What joining would be answered, without joining.
#[must_use]
pub fn peek(quota: &Quota, state: State, now_us: u64, cost: u64) -> Decision {
    delayed(quota, state, now_us, token_bucket::peek(quota, state, now_us, cost))
}

fn delayed(quota: &Quota, before: State, now_us: u64, mut decision: Decision) -> Decision {
    if decision.is_allowed() {
        let queue = Bucket::at(quota, before, now_us);
        decision.delay_us = queue.micros(queue.owed);
    }
    decision
}
