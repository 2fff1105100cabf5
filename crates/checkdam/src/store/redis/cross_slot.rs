//! Operations on buckets of several cluster slots.
//!
//! Tiers of one slot are one atomic call. Tiers of several slots are reserved slot by
//! slot; if a later slot denies or fails, the reservations are refunded. Failures on
//! the way over-deny; they never over-admit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::call_error::CallError;
use super::key::Keys;
use super::reply::BucketState;
use super::script::ScriptCall;
use crate::store::{Operation, TIERS_INLINE, Tier};

/// Timeout of a refund: it is correct however late, so it may outlive the request.
const PUT_BACK_LIMIT: Duration = Duration::from_millis(500);

/// Entries of [`RecentDenials`]. Slots share them; a wrong guess costs only a reservation.
const PLACES: usize = 1_024;

/// The tiers of a request that share a slot, by index.
type SlotTiers = SmallVec<[usize; TIERS_INLINE]>;

/// A request on its way.
pub(super) struct CrossSlotCall<'a, 'b> {
    store: &'a RedisStore,
    tiers: &'a [Tier<'b>],
    keys: Keys,
    deadline: Instant,
    /// What the buckets held; none where that no longer matters.
    pub(super) held: SmallVec<[Option<BucketState>; TIERS_INLINE]>,
}

impl<'a, 'b> CrossSlotCall<'a, 'b> {
    pub(super) fn new(store: &'a RedisStore, tiers: &'a [Tier<'b>], deadline: Instant) -> Self {
        Self { store, tiers, keys: store.keys.keys(tiers), deadline, held: tiers.iter().map(|_| None).collect() }
    }

    pub(super) async fn run(&mut self, operation: Operation) -> Result<(), CallError> {
        let parts = self.parts((0..self.tiers.len()).collect());
        if operation == Operation::Record {
            return self.record(parts).await;
        }
        if operation != Operation::Take {
            for part in parts {
                self.call_or_split(operation, part).await?;
            }
            return Ok(());
        }
        if let [part] = parts.as_slice() {
            match self.call(operation, part).await {
                Err(CallError::TryAgain { .. }) if part.len() > 1 => {}
                result => return result,
            }
        }
        self.take_by_groups().await
    }

    /// Records part by part, whatever becomes of the others. Tiers whose server does not
    /// reply are left without a state; an error if all are.
    async fn record(&mut self, parts: SmallVec<[SlotTiers; 4]>) -> Result<(), CallError> {
        let mut waiting = VecDeque::from_iter(parts);
        let mut failed = None;
        while let Some(part) = waiting.pop_front() {
            match self.call(Operation::Record, &part).await {
                Ok(()) => {}
                Err(CallError::TryAgain { .. }) if part.len() > 1 => {
                    for index in part.into_iter().rev() {
                        waiting.push_front(SmallVec::from_iter([index]));
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if self.held.iter().all(Option::is_none) => Err(error),
            Some(error) => {
                self.store.counts.add(&error);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The enforced tiers first; then, if they pass, each rule in shadow by
    /// itself.
    async fn take_by_groups(&mut self) -> Result<(), CallError> {
        let mut groups: SmallVec<[u8; TIERS_INLINE]> = self.tiers.iter().map(|tier| tier.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut charged = Vec::new();
        for group in groups {
            let members = (0..self.tiers.len()).filter(|index| self.tiers[*index].group == group).collect();
            let parts = self.parts(members);
            match self.reserve(parts).await {
                Ok(reserved) if reserved.is_empty() && group == 0 => {
                    return self.peek_other_groups(group).await;
                }
                Ok(reserved) => charged.extend(reserved),
                Err(error) => {
                    self.put_back(&charged).await;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes one part after the other; returns the parts that were charged: all, or none,
    /// and then the parts after the one that denied are only peeked at.
    async fn reserve(&mut self, parts: SmallVec<[SlotTiers; 4]>) -> Result<Vec<SlotTiers>, CallError> {
        let mut waiting = VecDeque::from_iter(parts);
        let mut reserved = Vec::new();
        while let Some(part) = waiting.pop_front() {
            match self.call(Operation::Take, &part).await {
                Ok(()) if self.all_allow(&part) => reserved.push(part),
                Ok(()) => {
                    self.remember_denial(&part);
                    self.put_back(&reserved).await;
                    for part in waiting {
                        // The request is denied, whatever the result.
                        let _ = self.call_or_split(Operation::Peek, part).await;
                    }
                    return Ok(Vec::new());
                }
                Err(CallError::TryAgain { .. }) if part.len() > 1 => {
                    for index in part.into_iter().rev() {
                        waiting.push_front(SmallVec::from_iter([index]));
                    }
                }
                Err(error) => {
                    self.put_back(&reserved).await;
                    return Err(error);
                }
            }
        }
        Ok(reserved)
    }

    /// Looks at the tiers of all other groups: the request is denied.
    async fn peek_other_groups(&mut self, denied: u8) -> Result<(), CallError> {
        let members = (0..self.tiers.len()).filter(|index| self.tiers[*index].group != denied).collect();
        for part in self.parts(members) {
            let _ = self.call_or_split(Operation::Peek, part).await;
        }
        Ok(())
    }

    fn all_allow(&self, part: &SlotTiers) -> bool {
        let allows =
            |index: &usize| self.held[*index].as_ref().is_some_and(|held| held.peek(&self.tiers[*index]).is_allowed());
        part.iter().all(allows)
    }

    fn remember_denial(&self, part: &SlotTiers) {
        let wait = |index: &usize| self.held[*index].as_ref().map(|held| held.peek(&self.tiers[*index]).retry_after_us);
        let wait_us = part.iter().filter_map(wait).max().unwrap_or(0);
        self.store.recent_denials.denied(self.slot(part), wait_us);
    }

    /// Tiers by slot: slots that denied recently first, then in order of first
    /// occurrence.
    fn parts(&self, members: SlotTiers) -> SmallVec<[SlotTiers; 4]> {
        let mut parts: SmallVec<[(u16, SlotTiers); 4]> = SmallVec::new();
        for index in members {
            let slot = self.store.topology.slot(self.keys.get(index));
            match parts.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, part)) => part.push(index),
                None => parts.push((slot, SmallVec::from_iter([index]))),
            }
        }
        if parts.len() > 1 {
            parts.sort_by_key(|(slot, _)| std::cmp::Reverse(self.store.recent_denials.wait_us(*slot)));
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    fn slot(&self, part: &SlotTiers) -> u16 {
        part.first().map_or(0, |index| self.store.topology.slot(self.keys.get(*index)))
    }

    /// As `call`; key by key while the keys are on two servers.
    async fn call_or_split(&mut self, operation: Operation, part: SlotTiers) -> Result<(), CallError> {
        match self.call(operation, &part).await {
            Err(CallError::TryAgain { .. }) if part.len() > 1 => {
                for index in part {
                    self.call(operation, &SmallVec::from_iter([index])).await?;
                }
                Ok(())
            }
            result => result,
        }
    }

    /// One call for tiers that share a slot; keeps what their buckets held.
    async fn call(&mut self, operation: Operation, part: &SlotTiers) -> Result<(), CallError> {
        let tiers: SmallVec<[Tier<'_>; TIERS_INLINE]> = part.iter().map(|index| self.tiers[*index]).collect();
        let mut keys = Keys::default();
        part.iter().for_each(|index| keys.push(&[self.keys.get(*index)]));
        let held = self.store.call(operation, &tiers, keys, (self.slot(part), self.deadline)).await?;
        for (index, held) in part.iter().zip(held) {
            self.held[*index] = held;
        }
        Ok(())
    }

    /// Refunds reservations, and waits for it until the deadline. Failed refunds
    /// over-deny; they are counted.
    async fn put_back(&self, parts: &[SlotTiers]) {
        let mut returns = Vec::new();
        for index in parts.iter().flatten() {
            if let Some(held) = &self.held[*index] {
                let key = self.keys.get(*index);
                let packed = ScriptCall::put_back(&self.tiers[*index], key, held.at_us);
                returns.push((self.store.topology.slot(key), packed));
            }
        }
        if returns.is_empty() {
            return;
        }
        let (topology, counts) = (Arc::clone(&self.store.topology), Arc::clone(&self.store.counts));
        let returning = tokio::spawn(async move {
            for (slot, packed) in returns {
                if topology.call(slot, packed, 1, Instant::now() + PUT_BACK_LIMIT).await.is_err() {
                    counts.unknown.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // It continues in the background after the deadline.
        let _ = timeout_at(self.deadline, returning).await;
    }
}

/// Slots that denied recently: they are called first, so that a request that will be
/// denied reserves nothing in other slots.
#[derive(Debug)]
pub(super) struct RecentDenials {
    started: Instant,
    until_us: Box<[AtomicU64]>,
}

impl RecentDenials {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), until_us: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn denied(&self, slot: u16, wait_us: u64) {
        self.place(slot).store(self.now_us().saturating_add(wait_us), Ordering::Relaxed);
    }

    /// How much longer the slot denies; 0 if it is not known to.
    pub(super) fn wait_us(&self, slot: u16) -> u64 {
        self.place(slot).load(Ordering::Relaxed).saturating_sub(self.now_us())
    }

    fn place(&self, slot: u16) -> &AtomicU64 {
        &self.until_us[usize::from(slot) % PLACES]
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::TestBucket;
    use crate::quota::{Algorithm, Quota};
    use crate::store::redis::RedisOptions;
    use crate::store::{MemoryOptions, MemoryStore, Store};
    use crate::time::ManualClock;

    /// A late refund leaves the bucket as if it had never been charged, or with more
    /// debt; never with less, even if others took from it meanwhile.
    #[tokio::test]
    async fn what_is_put_back_late_is_not_given_twice() {
        let server = testkit::Redis::start();
        let clock = Arc::new(ManualClock::default());
        let options = RedisOptions { deadline: Some(Duration::from_secs(10)), ..RedisOptions::new(server.url()) };
        let redis = RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap();
        let without = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, Arc::clone(&clock));
        let mut now_us = 20_000_000_000_000;
        for (number, late_us) in
            [0, 1, 300, 900, 1_200, 40_000, 700_000, 1_500_000].into_iter().cycle().take(160).enumerate()
        {
            let algorithm = Algorithm::ALL[number / 8 % Algorithm::ALL.len()];
            let text = ["1000/s", "3/s", "10/s", "2/m"][number / 40 % 4];
            let quota = Quota::new(text.parse().unwrap(), algorithm).unwrap();
            let bucket = TestBucket::new("late", &number.to_string());
            let (tiers, tier) = ([bucket.tier(&quota, 2.min(quota.limit()))], bucket.tier(&quota, 1));
            now_us += 3_600_000_000 + 137 * number as u64;
            clock.set(now_us);
            let mut call = CrossSlotCall::new(&redis, &tiers, Instant::now() + redis.deadline());
            call.run(Operation::Take).await.unwrap();
            for step in 1..=4 {
                clock.set(now_us + late_us * step / 4);
                // What Redis admits, and nothing else, is also taken where the
                // reservation never was.
                if redis.try_apply(Operation::Take, &[tier]).await.unwrap().decisions[0].is_allowed() {
                    assert!(without.apply(Operation::Take, &[tier]).await.decisions[0].is_allowed());
                }
            }
            call.put_back(&[SmallVec::from_iter([0])]).await;
            let left = redis.try_apply(Operation::Peek, &[tier]).await.unwrap().decisions[0].remaining;
            let ideal = without.apply(Operation::Peek, &[tier]).await.decisions[0].remaining;
            assert!(left <= ideal, "{text} by {}, {late_us} µs late: {left} left, {ideal} at most", algorithm.name());
            assert!(late_us > 0 || left == ideal, "{text} by {}: {left} left, not {ideal}", algorithm.name());
        }
    }
}
