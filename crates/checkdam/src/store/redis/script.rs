//! The script: what is sent with it and what its answer means.
//!
//! The script answers with what each bucket held before; the decision is made
//! from that by the same pure function that the script's Lua transcribes, so
//! nothing but states and times crosses the wire.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use crate::algorithm::token_bucket::{Grant, LeaseAsk};
use crate::algorithm::{WindowState, fixed_window, leaky_bucket, sliding_window, sliding_window_strict, token_bucket};
use crate::decision::{Decision, Verdict};
use crate::quota::{Algorithm, Align, Quota};
use crate::store::{Operation, Tier};
use crate::time::EPOCH_UNIX_US;

/// Every algorithm's Lua twin, and what calls them.
static CODE: &str = concat!(
    include_str!("begin.lua"),
    include_str!("plain.lua"),
    include_str!("../../algorithm/token_bucket.lua"),
    include_str!("../../algorithm/fixed_window.lua"),
    include_str!("../../algorithm/sliding_window.lua"),
    include_str!("../../algorithm/sliding_window_strict.lua"),
    include_str!("../../algorithm/sliding_log.lua"),
    include_str!("end.lua"),
);

static SCRIPT: LazyLock<redis::Script> = LazyLock::new(|| redis::Script::new(CODE));

/// The script's text.
pub(super) fn code() -> &'static str {
    CODE
}

/// The name under which the server knows the script.
pub(super) fn hash() -> &'static str {
    SCRIPT.get_hash()
}

/// What the script calls what it does.
const TAKE: u64 = 1;
const PEEK: u64 = 2;
const REFUND: u64 = 3;
const RESET: u64 = 4;
const PUT_BACK: u64 = 5;
const LEASE: u64 = 6;
const GIVE_BACK: u64 = 7;
const REFUND_BESIDE_LEASES: u64 = 8;
const PUT_BACK_BESIDE_LEASES: u64 = 9;
/// What a ledger is called, after its bucket.
const LEDGER: &[u8] = b":granted";

/// What the script calls the shape of a plain tier: its capacity, and these.
const CAPACITY_UNIT: u64 = 4;
/// A shape stays below 2^53.
const PLAIN_CAPACITY_END: u64 = 1 << 51;
const HAS_NEXT: u64 = 1;
const RENEWS: u64 = 2;
/// The answer to a tier that was alone: what it owed times this, and the time
/// modulo this. Both together stay below 2^53.
const ALONE_UNIT: u64 = 1 << 21;
const ALONE_CAPACITY_END: u64 = 1 << 32;

/// One request as the script reads it: keys and arguments.
#[derive(Debug, Clone)]
pub(super) struct Packed {
    /// Plain requests stand before all others in a call.
    pub(super) is_plain: bool,
    pub(super) keys: Vec<Vec<u8>>,
    arguments: Vec<u64>,
}

impl Packed {
    /// Packs the tiers of one request; `renew` says whether the TTL of a key
    /// with that capacity must be set anew.
    pub(super) fn new(
        operation: Operation,
        tiers: &[Tier<'_>],
        keys: Vec<Vec<u8>>,
        renew: impl Fn(&[u8], u64) -> bool,
    ) -> Self {
        let is_plain = operation == Operation::Take && tiers.iter().all(is_plain);
        let mut arguments = Vec::with_capacity(if is_plain { 2 } else { 11 } * tiers.len());
        if is_plain {
            for (index, (tier, key)) in tiers.iter().zip(&keys).enumerate() {
                let next = if index + 1 < tiers.len() { HAS_NEXT } else { 0 };
                let renewal = if renew(key, tier.quota.capacity) { RENEWS } else { 0 };
                let shape = CAPACITY_UNIT * tier.quota.capacity + next + renewal;
                arguments.extend([tier.cost * tier.quota.interval, shape]);
            }
            return Self { is_plain, keys, arguments };
        }
        arguments.push(tiers.len() as u64);
        let mut all = Vec::with_capacity(keys.len());
        for (tier, key) in tiers.iter().zip(keys) {
            let (operation, ledger) = match operation {
                Operation::Take => (TAKE, None),
                Operation::Peek => (PEEK, None),
                Operation::Refund if tier.lease.is_some() => (REFUND_BESIDE_LEASES, Some(ledger(&key))),
                Operation::Refund => (REFUND, None),
                Operation::Reset => (RESET, None),
            };
            arguments.extend(general(operation, tier.quota, tier.cost, tier.group));
            all.push(key);
            all.extend(ledger);
        }
        Self { is_plain, keys: all, arguments }
    }

    /// Packs the return of what a take charged to one tier at `since_us`. What
    /// has come back by itself since is not given a second time, and nothing while
    /// leases count on what is owed.
    pub(super) fn put_back(tier: &Tier<'_>, key: Vec<u8>, since_us: u64) -> Self {
        if tier.lease.is_some() {
            let numbers = general(PUT_BACK_BESIDE_LEASES, tier.quota, tier.cost, 0);
            return Self::single(numbers, key, &[since_us]).with_ledger();
        }
        Self::single(general(PUT_BACK, tier.quota, tier.cost, 0), key, &[since_us])
    }

    /// Packs a request for tokens that will be spent on this node.
    pub(super) fn lease(quota: &Quota, key: Vec<u8>, ask: LeaseAsk) -> Self {
        Self::single(general(LEASE, quota, ask.wanted, 0), key, &[ask.least, ask.length_us]).with_ledger()
    }

    /// Packs the return of tokens of a lease after which the ledger said `mark`.
    pub(super) fn give_back(quota: &Quota, tokens: u64, key: Vec<u8>, mark: u64) -> Self {
        Self::single(general(GIVE_BACK, quota, tokens, 0), key, &[mark]).with_ledger()
    }

    fn single(numbers: [u64; 10], key: Vec<u8>, more: &[u64]) -> Self {
        let arguments = [1].iter().chain(&numbers).chain(more).copied().collect();
        Self { is_plain: false, keys: vec![key], arguments }
    }

    /// A bucket that is leased has a second key, in the same slot.
    fn with_ledger(mut self) -> Self {
        let ledger = self.keys.first().map(|key| ledger(key));
        self.keys.extend(ledger);
        self
    }

    /// Whether it may be sent without the number of its run, to be answered with
    /// one number.
    pub(super) fn may_be_alone(&self) -> bool {
        let is_short = |shape: u64| shape < CAPACITY_UNIT * ALONE_CAPACITY_END && shape.is_multiple_of(CAPACITY_UNIT);
        self.is_plain && matches!(self.arguments.as_slice(), [_, shape] if is_short(*shape))
    }

    /// Adds the arguments to a command.
    pub(super) fn write(&self, command: &mut Cmd) {
        let mut text = itoa::Buffer::new();
        for number in &self.arguments {
            command.arg(text.format(*number));
        }
    }

    /// Requests are sent in this order: the script reads plain ones first, and
    /// those with the same fields as one run.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let order = |packed: &Self| !packed.is_plain;
        order(self).cmp(&order(other)).then_with(|| match self.is_plain {
            true => self.arguments.cmp(&other.arguments),
            false => std::cmp::Ordering::Equal,
        })
    }

    /// Whether both belong to one run.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.is_plain && other.is_plain && self.arguments == other.arguments
    }
}

/// Reads the answer of a tier that was alone, which came at about `about_us`:
/// when it was decided, and what was owed.
pub(super) fn read_alone(number: i64, about_us: u64) -> Option<(u64, i64)> {
    let number = u64::try_from(number).ok()?;
    let (owed, part) = (number / ALONE_UNIT, number % ALONE_UNIT);
    // Of the times with that part, the one nearest.
    let first = (about_us + ALONE_UNIT / 2).checked_sub(part)? / ALONE_UNIT;
    Some((first * ALONE_UNIT + part, owed as i64))
}

fn ledger(key: &[u8]) -> Vec<u8> {
    [key, LEDGER].concat()
}

/// Reads the answer to a lease: what was granted, and what the ledger said then.
pub(super) fn read_lease(quota: &Quota, now_us: u64, value: &Value, ask: LeaseAsk) -> Option<(Grant, u64)> {
    let Value::BulkString(text) = value else { return None };
    let (mark, full_at) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let state = if full_at.is_empty() { None } else { Some(full_at.parse().ok()?) };
    Some((token_bucket::lease(quota, state, now_us, ask).0, mark.parse().ok()?))
}

/// Reads how many tokens of a lease came back.
pub(super) fn read_back(value: &Value) -> Option<u64> {
    let Value::BulkString(text) = value else { return None };
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether the script may charge the bucket before it looks at it.
fn is_plain(tier: &Tier<'_>) -> bool {
    let quota = tier.quota;
    matches!(quota.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
        && tier.group == 0
        && quota.ticks_per_us == 1
        && quota.remembered == 0
        && quota.capacity < PLAIN_CAPACITY_END
        && (1..=quota.limit).contains(&tier.cost)
}

fn general(operation: u64, quota: &Quota, cost: u64, group: u8) -> [u64; 10] {
    // Doubles hold no more; what exceeds every limit is refused all the same.
    let cost = cost.min(1 << 52);
    let align = match quota.spec.align {
        Align::Epoch => 0,
        Align::Day => 1,
        Align::Week => 2,
        Align::Month => 3,
        Align::Year => 4,
    };
    let kind = match quota.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 1,
        Algorithm::FixedWindow => 2,
        Algorithm::SlidingWindow { strict: false } => 3,
        Algorithm::SlidingWindow { strict: true } => 4,
        Algorithm::SlidingLog => 5,
    };
    let numbers = if kind == 1 {
        [quota.ticks_per_us, quota.interval, quota.capacity, quota.owed_initially, quota.remembered]
    } else {
        [quota.spec.period_us, align, quota.interval, quota.capacity, 0]
    };
    let [a, b, c, d, e] = numbers;
    [u64::from(group), operation, kind, cost, quota.limit, a, b, c, d, e]
}

/// What one tier's bucket held, and what follows for a take.
pub(super) struct Held {
    state: HeldState,
    /// When, by the clock of the server that holds it: no other clock may
    /// decide on it.
    pub(super) at_us: u64,
}

enum HeldState {
    Word(token_bucket::State),
    Window(Option<WindowState>),
    /// A log stays where it is: what is used, the wait, and the reset.
    Log {
        used: u64,
        retry_after_us: u64,
        reset_after_us: u64,
    },
}

impl Held {
    /// Reads one answer of the script.
    pub(super) fn read(quota: &Quota, now_us: u64, value: &Value) -> Option<Self> {
        let text = match value {
            Value::Int(owed) => {
                let full_at = u64::try_from(*owed).ok().filter(|owed| *owed > 0).map(|owed| now_us + owed);
                return Some(Self { state: HeldState::Word(full_at), at_us: now_us });
            }
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
            Value::SimpleString(text) => text,
            _ => return None,
        };
        let numbers = text.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        let state = read_state(quota, &numbers)?;
        Some(Self { state, at_us: now_us })
    }

    /// What a take of the tier is answered if it is charged when it passes.
    pub(super) fn decide(&self, tier: &Tier<'_>) -> Decision {
        let (quota, cost, now_us) = (tier.quota, tier.cost, self.at_us);
        match (&self.state, quota.algorithm) {
            (HeldState::Word(state), Algorithm::LeakyBucket) => leaky_bucket::decide(quota, *state, now_us, cost).0,
            (HeldState::Word(state), _) => token_bucket::decide(quota, *state, now_us, cost).0,
            (HeldState::Window(state), _) => WindowState::take(quota, &mut state.clone(), now_us, cost),
            (HeldState::Log { used, .. }, _) => {
                let mut decision = self.peek(tier);
                if decision.is_allowed() && cost > 0 {
                    decision.remaining = quota.limit.saturating_sub(used + cost);
                    decision.reset_after_us = decision.reset_after_us.max(quota.spec.period_us);
                }
                decision
            }
        }
    }

    /// What it is answered if it is not charged.
    pub(super) fn peek(&self, tier: &Tier<'_>) -> Decision {
        let (quota, cost, now_us) = (tier.quota, tier.cost, self.at_us);
        match (&self.state, quota.algorithm) {
            (HeldState::Word(state), Algorithm::LeakyBucket) => leaky_bucket::peek(quota, *state, now_us, cost),
            (HeldState::Word(state), _) => token_bucket::peek(quota, *state, now_us, cost),
            (HeldState::Window(state), _) => WindowState::peek(quota, state.as_ref(), now_us, cost),
            (HeldState::Log { used, retry_after_us, reset_after_us }, _) => Decision {
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

    /// Where the bucket stands after a refund or a reset.
    pub(super) fn standing(&self, tier: &Tier<'_>) -> Decision {
        let mut decision = self.peek(&Tier { cost: 0, ..*tier });
        decision.delay_us = 0;
        decision
    }
}

fn read_state(quota: &Quota, numbers: &[u64]) -> Option<HeldState> {
    let window = match (quota.algorithm, numbers) {
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, []) => return Some(HeldState::Word(None)),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, [full_at]) => return Some(HeldState::Word(Some(*full_at))),
        (Algorithm::SlidingLog, [used, retry_after_us, reset_after_us]) => {
            let (used, retry_after_us, reset_after_us) = (*used, *retry_after_us, *reset_after_us);
            return Some(HeldState::Log { used, retry_after_us, reset_after_us });
        }
        (_, []) => return Some(HeldState::Window(None)),
        (Algorithm::FixedWindow, [start_us, count]) => {
            WindowState::Fixed(fixed_window::State { start_us: *start_us, count: *count })
        }
        (Algorithm::SlidingWindow { strict: false }, [start_us, current, previous]) => {
            WindowState::Sliding(sliding_window::State { start_us: *start_us, current: *current, previous: *previous })
        }
        (Algorithm::SlidingWindow { strict: true }, [start_us, counts @ ..]) => {
            let counts = counts.try_into().ok()?;
            WindowState::Strict(Box::new(sliding_window_strict::State { start_us: *start_us, counts }))
        }
        _ => return None,
    };
    Some(HeldState::Window(Some(window)))
}

/// A time since 1970 in ours; 0 before 2026.
pub(super) const fn since_2026_us(unix_us: i64) -> u64 {
    if unix_us > EPOCH_UNIX_US as i64 { unix_us as u64 - EPOCH_UNIX_US } else { 0 }
}

/// The latest time of the script's clock, in microseconds since 1970, for a
/// deadline in ours.
pub(super) const fn unix_us(at_us: u64) -> u64 {
    at_us + EPOCH_UNIX_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_time_says_the_rest_while_clocks_are_a_second_apart_at_most() {
        for at_us in [ALONE_UNIT, 27_000_000_000_000, 27_000_000_000_000 + ALONE_UNIT - 1, 536_457_600_000_000] {
            let number = (4_294_967_295 * ALONE_UNIT + at_us % ALONE_UNIT) as i64;
            for about_us in [at_us - 1_000_000, at_us - 1, at_us, at_us + 15_000, at_us + 1_000_000] {
                assert_eq!(read_alone(number, about_us), Some((at_us, 4_294_967_295)), "at {at_us}, about {about_us}");
            }
        }
        assert_eq!(read_alone(-1, 27_000_000_000_000), None);
    }
}
