//! Leases of the Redis store: which tiers of a request are prepaid, and when more
//! tokens are fetched.
//!
//! While a subject's account has the tokens that a request costs, nothing here locks,
//! allocates or calls Redis. A request that must wait for a grant waits no longer
//! than for any other reply of Redis, and is then decided by the rule's failure
//! policy.

mod lifecycle;
mod take;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::fallback::NodeClock;
use crate::decision::{Decision, Verdict};
use crate::hash::{Tag, TagMaker};
use crate::lease::{Account, AccountTable, BeginRefill, LeaseStats, LeaseTerms, Payment, Spend};
use crate::store::Tier;
use crate::time::ManualClock;

/// The maximum number of accounts; other subjects are decided by Redis.
const SUBJECTS_MAX: usize = 8_192;
/// Polling interval of waiting requests: an account is locked for moments by others
/// than those that request a lease.
const RECHECK_PERIOD: Duration = Duration::from_millis(1);

/// What is prepaid on this node.
#[derive(Debug)]
pub(super) struct Leases {
    clock: NodeClock,
    tags: TagMaker,
    /// None until a rule with a lease applies to a request.
    table: OnceLock<LeaseTable>,
    is_closing: watch::Sender<bool>,
    /// How many leases have a task that waits to return them.
    open_leases: watch::Sender<usize>,
}

/// The accounts, and the notifiers of requests that wait for them.
#[derive(Debug)]
pub(super) struct LeaseTable {
    accounts: AccountTable,
    waiters: Box<[RefillWaiters]>,
}

/// Requests that wait for a grant to one account.
#[derive(Debug, Default)]
struct RefillWaiters {
    /// Four times the number of calls that have ended, and how the last did.
    ended: AtomicU64,
    refill_ended: Notify,
}

/// How a call for more ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefillResult {
    /// With a reply.
    Answered = 0,
    /// Without one.
    Failed = 1,
    /// The two keys of a leased bucket are on two servers for a while.
    TryAgain = 2,
}

/// The state of one tier of a take.
enum TierPayment {
    /// It was paid here.
    Paid(Purchase),
    /// It is denied here, and would pass after this time.
    Denied { number: usize, wait_us: u64 },
    /// Redis decides.
    Direct,
    /// A lease was requested and Redis did not reply.
    Failed,
}

/// What was paid from which account.
#[derive(Clone, Copy)]
struct Purchase {
    number: usize,
    paid: Payment,
    /// The time of day.
    at_us: u64,
}

impl Leases {
    pub(super) fn new(clock: Option<Arc<ManualClock>>) -> Self {
        Self {
            clock: NodeClock::new(clock),
            tags: TagMaker::default(),
            table: OnceLock::new(),
            is_closing: watch::Sender::new(false),
            open_leases: watch::Sender::new(0),
        }
    }

    pub(super) fn stats(&self) -> LeaseStats {
        self.table.get().map_or_else(LeaseStats::default, |table| table.accounts.stats(self.clock.read().0))
    }

    pub(super) fn maintain(&self) {
        if let Some(table) = self.table.get() {
            table.accounts.maintain(self.clock.read().0);
        }
    }

    #[inline]
    fn tag(&self, tier: &Tier<'_>) -> Tag {
        // What was prepaid for one time is not spent in another.
        let length_us = tier.lease.map_or(0, |terms| terms.length_us);
        self.tags.tag(tier.bucket_hash() ^ length_us, tier.subject).max(1)
    }

    /// The table, created on first use.
    fn table(&self) -> &LeaseTable {
        self.table.get_or_init(LeaseTable::new)
    }

    /// The table, and the number of the subject's account in it, if there is one.
    #[inline]
    fn find(&self, tier: &Tier<'_>) -> Option<(&LeaseTable, usize, Tag)> {
        let (table, tag) = (self.table.get()?, self.tag(tier));
        Some((table, table.accounts.find(tag)?, tag))
    }

    /// Counts a request to Redis for a subject that could have an account.
    fn note(&self, tier: &Tier<'_>) {
        if let Some(terms) = terms(tier) {
            self.table().accounts.note_demand(self.tag(tier), tier.cost, self.clock.read().0, terms);
        }
    }

    /// Adds the tokens held here to Redis's decision on a tier.
    pub(super) fn add_held(&self, tier: &Tier<'_>, decision: &mut Decision) {
        let Some((table, number, _)) = self.find(tier) else { return };
        let held = table.accounts.account(number).held(self.clock.read().0);
        decision.remaining = (decision.remaining + held).min(decision.limit);
        if decision.verdict == Verdict::Denied && held >= tier.cost.max(1) {
            (decision.verdict, decision.retry_after_us) = (Verdict::Allowed, 0);
        }
    }

    /// The state of a tier, if it has an account here.
    pub(super) fn standing(&self, tier: &Tier<'_>) -> Option<Decision> {
        let (table, number, _) = self.find(tier)?;
        let (now_us, account) = (self.clock.read().0, table.accounts.account(number));
        Some(decision(tier, account, account.held(now_us), now_us))
    }

    /// Discards what is known of a bucket that was reset.
    pub(super) fn forget(&self, tier: &Tier<'_>) {
        if let Some((table, number, _)) = self.find(tier) {
            table.accounts.account(number).forget(self.clock.read().0);
        }
    }

    /// Pays from an account, if there is one that has enough.
    #[inline]
    fn spend(&self, table: &LeaseTable, (number, tag): (usize, Tag), cost: u64) -> Result<Purchase, Spend> {
        let mut at_us = 0;
        let clock = || {
            let (steady_us, now_us) = self.clock.read();
            at_us = now_us;
            steady_us
        };
        match table.accounts.account(number).spend(tag, cost, clock) {
            Spend::Paid(paid) => Ok(Purchase { number, paid, at_us }),
            unpaid => Err(unpaid),
        }
    }
}

impl LeaseTable {
    fn new() -> Self {
        let accounts = AccountTable::new(SUBJECTS_MAX);
        let waiters = (0..accounts.capacity()).map(|_| RefillWaiters::default()).collect();
        Self { accounts, waiters }
    }

    fn deny(&self, number: usize, cost: u64) {
        self.accounts.account(number).note_denied(cost);
        self.accounts.note_cached_denial();
    }
}

impl RefillWaiters {
    fn end(&self, how: RefillResult) {
        let before = self.ended.load(Ordering::Relaxed);
        self.ended.store((before & !3) + 4 + how as u64, Ordering::Release);
        self.refill_ended.notify_waiters();
    }
}

impl RedisStore {
    /// Pays one tier from its account; waits for a grant if necessary.
    async fn pay(&self, tier: &Tier<'_>, deadline: Instant) -> TierPayment {
        let (Some(terms), Some((table, number, tag))) = (terms(tier), self.leases.find(tier)) else {
            return TierPayment::Direct;
        };
        let (account, waiters) = (table.accounts.account(number), &table.waiters[number]);
        let began = waiters.ended.load(Ordering::Acquire);
        let mut is_counted = false;
        loop {
            let refill_ended = waiters.refill_ended.notified();
            tokio::pin!(refill_ended);
            refill_ended.as_mut().enable();
            let seen = waiters.ended.load(Ordering::Acquire);
            match self.leases.spend(table, (number, tag), tier.cost) {
                Ok(bought) => {
                    if bought.paid.is_low {
                        self.refill_ahead(tier, (number, tag), bought.paid.at_us);
                    }
                    return TierPayment::Paid(bought);
                }
                Err(Spend::Reassigned) => return TierPayment::Direct,
                Err(_) => {}
            }
            let now_us = self.leases.clock.read().0;
            if let Some(wait_us) = account.denied_for_us(tier.cost, now_us) {
                table.deny(number, tier.cost);
                return TierPayment::Denied { number, wait_us };
            }
            if *self.leases.is_closing.borrow() {
                return TierPayment::Direct;
            }
            match account.begin_refill(tag, tier.cost, now_us, (terms, tier.quota)) {
                BeginRefill::Request(ask) => self.start_lease(tier, number, ask),
                BeginRefill::Busy if !is_counted => {
                    // Waiting requests are demand too: the next lease must be larger.
                    account.note_denied(tier.cost);
                    is_counted = true;
                }
                BeginRefill::Busy => {}
                BeginRefill::NotYet => continue,
                BeginRefill::Closed => return TierPayment::Direct,
            }
            let now = Instant::now();
            if now >= deadline {
                // The cost is too high, or Redis does not reply.
                let ended = waiters.ended.load(Ordering::Acquire);
                let is_answered = ended != began && ended & 3 == RefillResult::Answered as u64;
                return if is_answered {
                    TierPayment::Denied { number, wait_us: terms.length_us / 8 }
                } else {
                    TierPayment::Failed
                };
            }
            let _ = timeout_at(deadline.min(now + RECHECK_PERIOD), refill_ended).await;
            let ended = waiters.ended.load(Ordering::Acquire);
            if ended != seen && ended & 3 == RefillResult::Failed as u64 {
                return TierPayment::Failed;
            }
            if ended != seen && ended & 3 == RefillResult::TryAgain as u64 {
                return TierPayment::Direct;
            }
        }
    }

    /// Fetches more tokens ahead of need, unless that is under way.
    #[cold]
    fn refill_ahead(&self, tier: &Tier<'_>, (number, tag): (usize, Tag), now_us: u64) {
        let (Some(terms), Some(table)) = (terms(tier), self.leases.table.get()) else { return };
        if *self.leases.is_closing.borrow() {
            return;
        }
        if let BeginRefill::Request(ask) =
            table.accounts.account(number).begin_refill(tag, 0, now_us, (terms, tier.quota))
        {
            self.start_lease(tier, number, ask);
        }
    }
}

/// The terms on which a tier may be paid here, if its cost can be.
#[inline]
fn terms<'a>(tier: &'a Tier<'_>) -> Option<&'a LeaseTerms> {
    tier.lease.as_ref().filter(|terms| tier.cost > 0 && terms.can_grant(tier.quota, tier.cost))
}

/// An allowed tier, with this many tokens held here.
#[inline]
fn decision(tier: &Tier<'_>, account: &Account, held: u64, now_us: u64) -> Decision {
    let (limit, (shared_left, reset_after_us)) = (tier.quota.limit(), account.shared_bucket(now_us));
    let remaining = (held + shared_left).min(limit);
    Decision { verdict: Verdict::Allowed, limit, remaining, debt: 0, retry_after_us: 0, reset_after_us, delay_us: 0 }
}
