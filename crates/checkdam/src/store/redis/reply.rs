//! Decodes the script's reply.
//!
//! The script returns what each bucket held before. The decision is computed from
//! that by the same pure function that the Lua code transcribes, so only states and
//! times cross the wire.

use redis::Value;
use smallvec::SmallVec;

use super::script::OUTSIDE_WINDOWS;
use crate::algorithm::token_bucket::{Grant, LeaseRequest};
use crate::algorithm::{
    WindowState, decide_bucket, fixed_window, peek_bucket, sliding_window, sliding_window_strict, token_bucket,
};
use crate::decision::{Decision, Verdict};
use crate::quota::{Algorithm, Quota};
use crate::store::{TIERS_INLINE, Tier};

/// The length of a number in the reply to plain requests.
const DOUBLE: usize = size_of::<f64>();

/// The script's reply to all requests of a call.
#[derive(Debug)]
pub(super) struct ScriptReply {
    /// The time of the decision.
    pub(super) at_us: u64,
    pending: PendingTiers,
}

/// The tiers whose requests have not got their part yet.
#[derive(Debug)]
enum PendingTiers {
    /// Of plain tiers, what they owed, as doubles; and how many bytes of them are
    /// done with.
    Owed(Vec<u8>, usize),
    Values(std::vec::IntoIter<Value>),
}

#[derive(Debug)]
pub(super) struct RequestReply {
    /// The time of the decision.
    pub(super) at_us: u64,
    tiers: TierStates,
}

#[derive(Debug)]
enum TierStates {
    /// Plain ones: the time that their buckets owed.
    Owed(SmallVec<[u64; TIERS_INLINE]>),
    Values(Vec<Value>),
}

impl ScriptReply {
    /// Decodes a reply; `None` if it is not one of the script's.
    pub(super) fn read(value: Value) -> Option<Self> {
        match value {
            Value::BulkString(bytes) if bytes.len().is_multiple_of(DOUBLE) && are_whole(&bytes) => {
                let at_us = doubles(&bytes).next()?;
                Some(Self { at_us, pending: PendingTiers::Owed(bytes, DOUBLE) })
            }
            Value::Array(values) => {
                let mut values = values.into_iter();
                let Value::Int(at_us) = values.next()? else { return None };
                Some(Self { at_us: u64::try_from(at_us).ok()?, pending: PendingTiers::Values(values) })
            }
            _ => None,
        }
    }

    pub(super) fn tiers(&self) -> usize {
        match &self.pending {
            PendingTiers::Owed(bytes, done) => (bytes.len() - done) / DOUBLE,
            PendingTiers::Values(values) => values.len(),
        }
    }

    /// The part of the next request, which has this many tiers.
    pub(super) fn next(&mut self, tiers: usize) -> RequestReply {
        let tiers = match &mut self.pending {
            PendingTiers::Owed(bytes, done) => {
                let owed = doubles(&bytes[*done..]).take(tiers).collect();
                *done = bytes.len().min(*done + DOUBLE * tiers);
                TierStates::Owed(owed)
            }
            PendingTiers::Values(values) => TierStates::Values(values.take(tiers).collect()),
        };
        RequestReply { at_us: self.at_us, tiers }
    }
}

/// Whether the numbers are such as the script has: from 0 to below 2^53.
fn are_whole(bytes: &[u8]) -> bool {
    bytes
        .as_chunks::<DOUBLE>()
        .0
        .iter()
        .all(|chunk| (0.0..9_007_199_254_740_992.0).contains(&f64::from_le_bytes(*chunk)))
}

fn doubles(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<DOUBLE>().0.iter().map(|chunk| f64::from_le_bytes(*chunk) as u64)
}

impl RequestReply {
    /// What the bucket of the tier at that index held.
    pub(super) fn held(&self, place: usize, quota: &Quota) -> Option<BucketState> {
        // The state of other algorithms is not one number.
        let is_bucket = quota.algorithm.is_bucket();
        let word = |owed: u64| is_bucket.then(|| StoredState::Word((owed > 0).then_some(self.at_us + owed)));
        let state = match &self.tiers {
            TierStates::Owed(owed) => word(*owed.get(place)?)?,
            TierStates::Values(values) => match values.get(place)? {
                Value::Int(owed) => word(u64::try_from(*owed).ok()?)?,
                _ => {
                    let numbers = self.text(place)?.split_ascii_whitespace().map(str::parse);
                    read_state(quota, &numbers.collect::<Result<Vec<u64>, _>>().ok()?)?
                }
            },
        };
        Some(BucketState { state, at_us: self.at_us })
    }

    /// Whether the server's time was in none of the calendar windows that it was sent. Nothing
    /// was done then.
    pub(super) fn is_outside_windows(&self) -> bool {
        let TierStates::Values(values) = &self.tiers else { return false };
        matches!(values.first(), Some(Value::BulkString(bytes)) if bytes == OUTSIDE_WINDOWS)
    }

    /// What was granted, and the ledger after it.
    pub(super) fn lease(&self, quota: &Quota, ask: LeaseRequest) -> Option<(Grant, u64)> {
        let (mark, full_at) = self.text(0)?.split_once(' ')?;
        let state = if full_at.is_empty() { None } else { Some(full_at.parse().ok()?) };
        Some((token_bucket::lease(quota, state, self.at_us, ask).0, mark.parse().ok()?))
    }

    /// How many tokens of a lease were accepted back.
    pub(super) fn back(&self) -> Option<u64> {
        self.text(0)?.parse().ok()
    }

    fn text(&self, place: usize) -> Option<&str> {
        match &self.tiers {
            TierStates::Owed(_) => None,
            TierStates::Values(values) => match values.get(place)? {
                Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
                Value::SimpleString(text) => Some(text),
                _ => None,
            },
        }
    }
}

/// What one tier's bucket held, and what follows for a take.
pub(super) struct BucketState {
    state: StoredState,
    /// When, by the clock of the server that holds it: no other clock may
    /// decide on it.
    pub(super) at_us: u64,
}

enum StoredState {
    Word(token_bucket::State),
    Window(Option<WindowState>),
    /// A log stays in Redis: its use, the wait, and the reset.
    Log {
        used: u64,
        retry_after_us: u64,
        reset_after_us: u64,
    },
}

impl BucketState {
    /// The decision of a take of the tier that is charged if it passes.
    pub(super) fn decide(&self, tier: &Tier<'_>) -> Decision {
        let (quota, cost, now_us) = (tier.quota, tier.cost, self.at_us);
        match &self.state {
            StoredState::Word(state) => decide_bucket(quota, *state, now_us, cost).0,
            StoredState::Window(state) => WindowState::take(quota, &mut state.clone(), now_us, cost),
            StoredState::Log { used, .. } => {
                let mut decision = self.peek(tier);
                if decision.is_allowed() && cost > 0 {
                    decision.remaining = quota.limit.saturating_sub(used.saturating_add(cost));
                    decision.reset_after_us = decision.reset_after_us.max(quota.spec.period_us);
                }
                decision
            }
        }
    }

    /// The decision if it is not charged.
    pub(super) fn peek(&self, tier: &Tier<'_>) -> Decision {
        let (quota, cost, now_us) = (tier.quota, tier.cost, self.at_us);
        match &self.state {
            StoredState::Word(state) => peek_bucket(quota, *state, now_us, cost),
            StoredState::Window(state) => WindowState::peek(quota, state.as_ref(), now_us, cost),
            StoredState::Log { used, retry_after_us, reset_after_us } => Decision {
                verdict: match (cost > quota.limit, *retry_after_us) {
                    (true, _) => Verdict::CostExceedsBurst,
                    (false, 0) => Verdict::Allowed,
                    (false, _) => Verdict::Denied,
                },
                limit: quota.limit,
                remaining: quota.limit.saturating_sub(*used),
                retry_after_us: if cost > quota.limit { 0 } else { *retry_after_us },
                reset_after_us: *reset_after_us,
                delay_us: 0,
            },
        }
    }

    /// The decision after a refund or a reset.
    pub(super) fn standing(&self, tier: &Tier<'_>) -> Decision {
        let mut decision = self.peek(&Tier { cost: 0, ..*tier });
        decision.delay_us = 0;
        decision
    }
}

/// The state that these numbers of the script are; none if they are of no such state. A
/// bucket that does not exist has none.
fn read_state(quota: &Quota, numbers: &[u64]) -> Option<StoredState> {
    if numbers.is_empty() {
        return Some(if quota.algorithm.is_bucket() { StoredState::Word(None) } else { StoredState::Window(None) });
    }
    let window = match quota.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let [full_at] = *numbers else { return None };
            return Some(StoredState::Word(Some(full_at)));
        }
        Algorithm::SlidingLog => {
            let [used, retry_after_us, reset_after_us] = *numbers else { return None };
            return Some(StoredState::Log { used, retry_after_us, reset_after_us });
        }
        Algorithm::FixedWindow => {
            let [start_us, count] = *numbers else { return None };
            WindowState::Fixed(fixed_window::State { start_us, count })
        }
        Algorithm::SlidingWindow { strict: false } => {
            let [start_us, current, previous] = *numbers else { return None };
            WindowState::Sliding(sliding_window::State { start_us, current, previous })
        }
        Algorithm::SlidingWindow { strict: true } => {
            let (start_us, counts) = numbers.split_first()?;
            let counts = counts.try_into().ok()?;
            WindowState::Strict(Box::new(sliding_window_strict::State { start_us: *start_us, counts }))
        }
    };
    Some(StoredState::Window(Some(window)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::FailurePolicy;
    use crate::store::BucketName;

    const AT_US: i64 = 31_000_000_000_000;

    fn held(algorithm: Algorithm, value: Value) -> Option<Decision> {
        let quota = Quota::new("10/s".parse().unwrap(), algorithm).unwrap();
        let mut reply = ScriptReply::read(Value::Array(vec![Value::Int(AT_US), value])).unwrap();
        let (bucket, subject, on_failure) = (BucketName::new("a", 0), &b""[..], FailurePolicy::Closed);
        let tier = Tier { quota: &quota, bucket: &bucket, subject, cost: 1, group: 0, on_failure, lease: None };
        reply.next(1).held(0, &quota).map(|held| held.decide(&tier))
    }

    #[test]
    fn a_number_is_the_state_of_a_bucket_and_of_no_window() {
        assert_eq!(held(Algorithm::TokenBucket, Value::Int(0)).map(|decision| decision.remaining), Some(9));
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow { strict: false }, Algorithm::SlidingLog] {
            assert_eq!(held(algorithm, Value::Int(0)), None, "{algorithm:?}");
        }
    }

    #[test]
    fn a_log_of_any_length_leaves_nothing() {
        let text = Value::BulkString(format!("{} 0 0", u64::MAX).into_bytes());
        assert_eq!(held(Algorithm::SlidingLog, text).map(|decision| decision.remaining), Some(0));
    }
}
