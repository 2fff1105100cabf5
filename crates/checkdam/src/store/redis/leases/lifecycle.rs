//! Life cycle of one lease: requested, held, and its unused tokens returned.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::call_error::CallError;
use super::super::deferred_charges::send_deferred_charges;
use super::super::fallback::Fallback;
use super::super::reply::RequestReply;
use super::super::run_to_completion::OwnedTiers;
use super::super::script::ScriptCall;
use super::super::topology::Topology;
use super::super::{RedisStore, StatCounters};
use super::{LeaseTable, Leases, RefillResult};
use crate::algorithm::token_bucket::{Grant, LeaseRequest};
use crate::decision::{Decision, Verdict};
use crate::lease::{Account, LeaseTerms, Receipt, RefillRequest};
use crate::quota::Quota;
use crate::store::Tier;

/// The rest of a lease is returned if it is at least this share of it, or if the node
/// shuts down.
const WORTH_SHARE: u64 = 16;
/// With less time than this a return could be late; it would be rejected, and look
/// like a failure of the server.
const RETURN_US_MIN: u64 = 3_000;
/// Timeout of a return: only a shutdown waits for it.
const RETURN_LIMIT: Duration = Duration::from_millis(500);
/// How long before its expiry a lease is returned, at least, unless that is more than
/// half of it.
const MARGIN_US_MIN: u64 = 10_000;

/// A lease, from the call that requests it to the one that returns the rest.
struct LeaseTask {
    leases: Arc<Leases>,
    topology: Arc<Topology>,
    counts: Arc<StatCounters>,
    fallback: Arc<Fallback>,
    tier: OwnedTiers,
    key: Vec<u8>,
    quota: Quota,
    terms: LeaseTerms,
    number: usize,
    ask: RefillRequest,
    deadline: Instant,
}

impl RedisStore {
    /// Requests tokens in a separate task: dropping the request that needs them does not
    /// lose what was granted.
    pub(super) fn start_lease(&self, tier: &Tier<'_>, number: usize, ask: RefillRequest) {
        let Some(terms) = tier.lease else { return };
        let task = LeaseTask {
            leases: Arc::clone(&self.leases),
            topology: Arc::clone(&self.topology),
            counts: Arc::clone(&self.counts),
            fallback: Arc::clone(&self.fallback),
            tier: OwnedTiers::new(&[*tier]),
            key: self.keys.key(tier),
            quota: *tier.quota,
            terms,
            number,
            ask,
            deadline: Instant::now() + self.deadline(),
        };
        self.leases.open_leases.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            task.run().await;
            task.leases.open_leases.send_modify(|count| *count -= 1);
        });
    }

    /// Returns all prepaid tokens, as far as possible, and prepays nothing more. Call
    /// when no more requests come.
    pub async fn return_leases(&self) {
        self.leases.is_closing.send_replace(true);
        let mut open_leases = self.leases.open_leases.subscribe();
        // Every one of them ends by itself: a return has a deadline.
        let _ = open_leases.wait_for(|count| *count == 0).await;
    }
}

impl LeaseTask {
    async fn run(&self) {
        let Some(table) = self.leases.table.get() else { return };
        table.accounts.note_refill();
        let granted = self.call().await;
        match &granted {
            Ok(_) => drop(self.counts.answered.fetch_add(1, Ordering::Relaxed)),
            Err(error) => self.counts.add(error),
        }
        let now_us = self.leases.clock.read().0;
        let account = table.accounts.account(self.number);
        let grant = granted.as_ref().ok().map(|(grant, _)| grant);
        if let Some(grant) = grant {
            self.learn(grant);
            send_deferred_charges(&self.topology, &self.fallback);
        }
        if let Err(CallError::TryAgain { .. }) = granted {
            // Until its keys are together again, one by one will do.
            account.abandon(now_us);
            table.waiters[self.number].end(RefillResult::TryAgain);
            return;
        }
        let receipt = account.finish_refill(&self.ask, grant, now_us, &self.terms);
        table.waiters[self.number].end(if granted.is_err() { RefillResult::Failed } else { RefillResult::Answered });
        let (Ok((grant, mark)), Some(receipt)) = (granted, receipt) else { return };
        // Unused tokens are of more use elsewhere, the sooner the better.
        self.hold(self.terms.life_us() / 2).await;
        if account.left_of(receipt, now_us).0 < grant.granted {
            self.hold(self.terms.life_us() / 8).await;
        }
        self.give_back(table, account, receipt, (grant.granted, mark)).await;
    }

    /// Records what the shared bucket owes, in case Redis stops replying.
    fn learn(&self, grant: &Grant) {
        let undecided = Decision::undecided(self.quota.limit(), Verdict::Allowed);
        let decision = Decision { reset_after_us: grant.reset_after_us, remaining: grant.left, ..undecided };
        for tier in self.tier.tiers() {
            self.fallback.learn(&tier, &decision);
        }
    }

    /// What was granted, and the ledger after it.
    async fn call(&self) -> Result<(Grant, u64), CallError> {
        let RefillRequest { wanted, least, .. } = self.ask;
        let ask = LeaseRequest { wanted, least, length_us: self.terms.length_us };
        let packed = ScriptCall::lease(&self.quota, &self.key, ask);
        let reply = self.topology.call(self.slot(), packed, 1, self.deadline).await?;
        let unread = || CallError::Failed { reason: format!("an answer that is not understood: {reply:?}") };
        reply.lease(&self.quota, ask).ok_or_else(unread)
    }

    /// Waits until the lease has only this much time left, or the node shuts down.
    async fn hold(&self, left_us: u64) {
        let (life_us, now) = (self.terms.life_us(), Instant::now());
        let left_us = left_us.max(MARGIN_US_MIN).min(life_us / 2);
        let until_us = (self.ask.asked_us + life_us - left_us).saturating_sub(self.leases.clock.read().0);
        let mut is_closing = self.leases.is_closing.subscribe();
        tokio::select! {
            () = sleep_until(now + Duration::from_micros(until_us)) => {}
            _ = is_closing.wait_for(|is_closing| *is_closing) => {}
        }
    }

    /// A return must not be executed after the lease has expired: so its time is measured
    /// from before the clock is read, and Redis rejects it when that is over.
    async fn give_back(&self, table: &LeaseTable, account: &Account, receipt: Receipt, (granted, mark): (u64, u64)) {
        let now = Instant::now();
        let now_us = self.leases.clock.read().0;
        let (left, left_us) = account.left_of(receipt, now_us);
        let is_worth_it = left * WORTH_SHARE >= granted || *self.leases.is_closing.borrow();
        if left_us < RETURN_US_MIN || left == 0 || !is_worth_it {
            return;
        }
        let (tokens, left_us) = account.withdraw(receipt, now_us);
        // What joined this lease has a mark of its own: it is lost.
        let tokens = tokens.min(granted);
        if tokens == 0 {
            return;
        }
        let packed = ScriptCall::give_back(&self.quota, tokens, &self.key, mark);
        let deadline = now + Duration::from_micros(left_us).min(RETURN_LIMIT);
        table.accounts.note_returning(tokens);
        let result = self.topology.call(self.slot(), packed, 1, deadline).await;
        let back = result.as_ref().ok().and_then(RequestReply::back);
        table.accounts.note_returned(tokens, back.unwrap_or(0));
        if result.is_err() {
            self.counts.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn slot(&self) -> u16 {
        self.topology.slot(&self.key)
    }
}
