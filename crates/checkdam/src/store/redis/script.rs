//! The Lua script and its arguments.

use std::sync::LazyLock;

use redis::Cmd;
use smallvec::SmallVec;

use super::key::Keys;
use crate::algorithm::starts_around;
use crate::algorithm::token_bucket::LeaseRequest;
use crate::quota::{Algorithm, Quota};
use crate::store::{Operation, TIERS_INLINE, Tier};
use crate::time::EPOCH_UNIX_US;

/// Every algorithm's Lua twin, and what calls them.
static CODE: &str = concat!(
    include_str!("prelude.lua"),
    include_str!("fast_path.lua"),
    include_str!("../../algorithm/token_bucket.lua"),
    include_str!("../../algorithm/fixed_window.lua"),
    include_str!("../../algorithm/sliding_window.lua"),
    include_str!("../../algorithm/sliding_window_strict.lua"),
    include_str!("../../algorithm/sliding_log.lua"),
    include_str!("general_path.lua"),
);

static SCRIPT: LazyLock<redis::Script> = LazyLock::new(|| redis::Script::new(CODE));

pub(super) fn code() -> &'static str {
    CODE
}

/// The script's SHA-1, by which the server caches it.
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
const CHARGE: u64 = 10;
/// What it calls a bucket that denies what would owe more than one more number.
const QUEUE_WITHIN: u64 = 6;
/// What it calls a fixed window that follows the calendar.
const CALENDAR_WINDOW: u64 = 7;
/// What it answers for each tier of a request if its time is in none of the calendar windows that
/// it was sent; nothing was done then.
pub(super) const OUTSIDE_WINDOWS: &[u8] = b"outside";
/// What a ledger is called, after its bucket.
const LEDGER: &[u8] = b":granted";

/// What the script calls the shape of a plain tier: its capacity, and these.
const CAPACITY_UNIT: u64 = 2;
/// A shape stays below 2^53.
const FAST_PATH_CAPACITY_END: u64 = 1 << 52;
const HAS_NEXT: u64 = 1;

/// One request as the script reads it: keys and arguments.
#[derive(Debug, Clone)]
pub(super) struct ScriptCall {
    /// Plain requests come before all others in a call.
    pub(super) is_fast_path: bool,
    pub(super) keys: Keys,
    arguments: SmallVec<[u64; TIERS_INLINE]>,
}

impl ScriptCall {
    /// Packs a request. `now_us` is this node's time, which is read only for windows of the
    /// calendar: the script is sent those around it.
    pub(super) fn new(operation: Operation, tiers: &[Tier<'_>], keys: Keys, now_us: impl Fn() -> u64) -> Self {
        let is_fast_path = operation == Operation::Take && tiers.iter().all(is_fast_path);
        let mut arguments = SmallVec::new();
        if is_fast_path {
            for (index, tier) in tiers.iter().enumerate() {
                let next = if index + 1 < tiers.len() { HAS_NEXT } else { 0 };
                arguments.extend([tier.cost * tier.quota.interval, CAPACITY_UNIT * tier.quota.capacity + next]);
            }
            return Self { is_fast_path, keys, arguments };
        }
        arguments.push(tiers.len() as u64);
        let mut all = Keys::default();
        for (tier, key) in tiers.iter().zip(keys.iter()) {
            all.push(&[key]);
            let operation = match operation {
                Operation::Take => TAKE,
                Operation::Peek => PEEK,
                Operation::Refund if tier.lease.is_some() => {
                    all.push(&[key, LEDGER]);
                    REFUND_BESIDE_LEASES
                }
                Operation::Refund => REFUND,
                Operation::Charge => CHARGE,
                Operation::Reset => RESET,
            };
            let mut numbers = tier_arguments(operation, tier.quota, tier.cost, tier.group, &now_us);
            let ceiling = tier.quota.ceiling(tier.cost);
            let is_shorter = tier.quota.algorithm == Algorithm::LeakyBucket && ceiling < tier.quota.capacity;
            if is_shorter && operation == TAKE {
                numbers[2] = QUEUE_WITHIN;
                arguments.extend(numbers.into_iter().chain([ceiling]));
            } else {
                arguments.extend(numbers);
            }
        }
        Self { is_fast_path, keys: all, arguments }
    }

    /// Packs the refund of what a take charged to one tier at `since_us`. What has
    /// returned by itself since is not refunded again, and nothing is while leases rely
    /// on what is owed.
    pub(super) fn put_back(tier: &Tier<'_>, key: &[u8], since_us: u64) -> Self {
        if tier.lease.is_some() {
            let numbers = tier_arguments(PUT_BACK_BESIDE_LEASES, tier.quota, tier.cost, 0, || since_us);
            return Self::single(numbers, key, &[since_us]).with_ledger(key);
        }
        Self::single(tier_arguments(PUT_BACK, tier.quota, tier.cost, 0, || since_us), key, &[since_us])
    }

    /// Packs a charge for what was admitted elsewhere: as much of it as is left. `now_us` is this
    /// node's time.
    pub(super) fn charge(quota: &Quota, cost: u64, key: &[u8], now_us: u64) -> Self {
        Self::single(tier_arguments(CHARGE, quota, cost, 0, || now_us), key, &[])
    }

    /// Packs a request for tokens that will be spent on this node.
    pub(super) fn lease(quota: &Quota, key: &[u8], ask: LeaseRequest) -> Self {
        // Of buckets only, which need no time.
        let numbers = tier_arguments(LEASE, quota, ask.wanted, 0, || 0);
        Self::single(numbers, key, &[ask.least, ask.length_us]).with_ledger(key)
    }

    /// Packs the return of tokens of a lease after whose grant the ledger was `mark`.
    pub(super) fn give_back(quota: &Quota, tokens: u64, key: &[u8], mark: u64) -> Self {
        Self::single(tier_arguments(GIVE_BACK, quota, tokens, 0, || 0), key, &[mark]).with_ledger(key)
    }

    fn single(numbers: [u64; 10], key: &[u8], more: &[u64]) -> Self {
        let arguments = [1].iter().chain(&numbers).chain(more).copied().collect();
        let mut keys = Keys::default();
        keys.push(&[key]);
        Self { is_fast_path: false, keys, arguments }
    }

    /// A bucket that is leased has a second key, in the same slot.
    fn with_ledger(mut self, key: &[u8]) -> Self {
        self.keys.push(&[key, LEDGER]);
        self
    }

    /// Whether it is one tier, and may be sent without the number of its run.
    pub(super) fn is_single_tier(&self) -> bool {
        self.is_fast_path && self.arguments.len() == 2
    }

    pub(super) fn arguments(&self) -> usize {
        self.arguments.len()
    }

    pub(super) fn write(&self, command: &mut Cmd) {
        let mut text = itoa::Buffer::new();
        for number in &self.arguments {
            command.arg(text.format(*number));
        }
    }

    /// Requests are sent in this order: the script reads plain ones first, and
    /// those with the same fields as one run.
    pub(super) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let order = |packed: &Self| !packed.is_fast_path;
        order(self).cmp(&order(other)).then_with(|| match self.is_fast_path {
            true => self.arguments.cmp(&other.arguments),
            false => std::cmp::Ordering::Equal,
        })
    }

    /// Whether both belong to one run.
    pub(super) fn shares_run_with(&self, other: &Self) -> bool {
        self.is_fast_path && other.is_fast_path && self.arguments == other.arguments
    }
}

/// Whether the script may charge the bucket before it reads it.
fn is_fast_path(tier: &Tier<'_>) -> bool {
    let quota = tier.quota;
    quota.algorithm.is_bucket()
        && tier.group == 0
        && quota.ticks_per_us == 1
        && quota.remembered == 0
        && quota.capacity < FAST_PATH_CAPACITY_END
        && quota.ceiling(tier.cost) == quota.capacity
        && (1..=quota.limit).contains(&tier.cost)
}

fn tier_arguments(operation: u64, quota: &Quota, cost: u64, group: u8, now_us: impl Fn() -> u64) -> [u64; 10] {
    // Doubles hold no more; a cost above every limit is denied all the same.
    let cost = cost.min(1 << 52);
    let kind = match quota.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 1,
        Algorithm::FixedWindow => 2,
        Algorithm::SlidingWindow { strict: false } => 3,
        Algorithm::SlidingWindow { strict: true } => 4,
        Algorithm::SlidingLog => 5,
    };
    let (kind, numbers) = match kind {
        1 => (kind, [quota.ticks_per_us, quota.interval, quota.capacity, quota.owed_initially, quota.remembered]),
        2 if quota.follows_calendar() => {
            let [before, at, after, last] = starts_around(quota, unix_us(now_us()));
            (CALENDAR_WINDOW, [before, at, after, last, 0])
        }
        _ => (kind, [quota.spec.period_us, quota.interval, quota.capacity, 0, 0]),
    };
    let [a, b, c, d, e] = numbers;
    [u64::from(group), operation, kind, cost, quota.limit, a, b, c, d, e]
}

/// A time of ours in microseconds since 1970.
pub(super) const fn unix_us(at_us: u64) -> u64 {
    at_us + EPOCH_UNIX_US
}
